#include "comm/collective.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace regather::comm {
namespace {

const char* reduction_name(c10d::ReduceOp::RedOpType op) {
  switch (op) {
    case c10d::ReduceOp::SUM:
      return " sum";
    case c10d::ReduceOp::AVG:
      return " avg";
    case c10d::ReduceOp::PRODUCT:
      return " product";
    case c10d::ReduceOp::MIN:
      return " min";
    case c10d::ReduceOp::MAX:
      return " max";
    default:
      return "";
  }
}

// So many tensors of a coalesced call are named; the rest are counted.
constexpr size_t kNamed = 4;

}  // namespace

const char* kind_name(Kind kind) {
  switch (kind) {
    case Kind::all_gather:
      return "all_gather";
    case Kind::reduce_scatter:
      return "reduce_scatter";
    case Kind::all_reduce:
      return "all_reduce";
    case Kind::reduce:
      return "reduce";
    case Kind::broadcast:
      return "broadcast";
    case Kind::gather:
      return "gather";
    case Kind::scatter:
      return "scatter";
    case Kind::all_to_all:
      return "all_to_all";
    case Kind::barrier:
      return "barrier";
  }
  return "";
}

void check_tensor(const at::Tensor& tensor, const char* name) {
  REGATHER_CHECK(tensor.defined(), "comm", "{}: a tensor is undefined", name);
  REGATHER_CHECK(tensor.device().is_cpu() && tensor.layout() == at::kStrided, "comm",
                 "{} of a tensor on {}: expected a dense CPU tensor", name, tensor.device().str());
  REGATHER_CHECK(tensor.is_contiguous(), "comm", "{} of a {} {} tensor that is not contiguous: call contiguous() first",
                 name, c10::toString(tensor.scalar_type()), tensor.sizes());
}

void Contribution::add(const at::Tensor& tensor, bool give) {
  check_tensor(tensor, name());
  const size_t bytes = tensor.nbytes();
  pieces_.push_back({tensor.scalar_type(), tensor.sizes().vec(), tensor.numel(), bytes, give ? payload_bytes_ : 0});
  given_.push_back(give ? tensor : at::Tensor());
  // Pieces of different dtypes share the payload: each starts aligned for any of them.
  if (give)
    payload_bytes_ += (bytes + alignof(std::max_align_t) - 1) / alignof(std::max_align_t) * alignof(std::max_align_t);
}

void Contribution::set_splits(std::vector<int64_t> sent, std::vector<int64_t> received) {
  sent_ = std::move(sent);
  received_ = std::move(received);
}

void Contribution::copy_payload() {
  payload_ = std::make_unique_for_overwrite<std::byte[]>(payload_bytes_);
  for (size_t piece = 0; piece < pieces_.size(); ++piece) {
    if (!given_[piece].defined() || pieces_[piece].bytes == 0) continue;
    std::memcpy(payload_.get() + pieces_[piece].offset, given_[piece].const_data_ptr(), pieces_[piece].bytes);
  }
  given_.clear();
}

size_t Contribution::sent_offset(int rank) const {
  const int64_t before = std::accumulate(sent_.begin(), sent_.begin() + rank, int64_t{0});
  return static_cast<size_t>(before) * c10::elementSize(pieces_[0].dtype);
}

std::string Contribution::text() const {
  std::vector<std::string> tensors;
  for (size_t piece = 0; piece < pieces_.size() && piece < kNamed; ++piece) {
    tensors.push_back(
        fmt::format("{} [{}]", c10::toString(pieces_[piece].dtype), fmt::join(pieces_[piece].sizes, ", ")));
  }
  if (pieces_.size() > kNamed) tensors.push_back(fmt::format("and {} more", pieces_.size() - kNamed));
  std::string text = fmt::format("{}{}", name(), reduction_name(op_));
  if (root_ >= 0) text += fmt::format(" root {}", root_);
  if (!tensors.empty()) text += fmt::format(" {}", fmt::join(tensors, ", "));
  if (!sent_.empty()) text += fmt::format(" sends {} receives {}", fmt::join(sent_, ","), fmt::join(received_, ","));
  return text;
}

// Shapes may differ as long as the elements are as many: that is all that a real transport would notice.
bool Contribution::agrees(const Offer& other, int rank, int other_rank) const {
  const auto* that = dynamic_cast<const Contribution*>(&other);
  if (that == nullptr || kind_ != that->kind_ || op_ != that->op_ || root_ != that->root_ ||
      pieces_.size() != that->pieces_.size()) {
    return false;
  }
  for (size_t piece = 0; piece < pieces_.size(); ++piece) {
    if (pieces_[piece].dtype != that->pieces_[piece].dtype) return false;
    if (kind_ != Kind::all_to_all && pieces_[piece].numel != that->pieces_[piece].numel) return false;
  }
  if (kind_ != Kind::all_to_all) return true;
  return sent_[static_cast<size_t>(other_rank)] == that->received_[static_cast<size_t>(rank)] &&
         received_[static_cast<size_t>(other_rank)] == that->sent_[static_cast<size_t>(rank)];
}

}  // namespace regather::comm
