#include "shard/fsdp2/flat_gather.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "base/error.h"

namespace regather::shard {
namespace {

at::Tensor bytes_of(const at::Tensor& tensor) { return tensor.view({-1}).view(at::kByte); }

}  // namespace

FlatGather::FlatGather(comm::World& world, const std::vector<at::Tensor>& mine) {
  const at::NoGradGuard no_grad;
  REGATHER_CHECK(!mine.empty(), "fsdp2", "an all-gather of nothing");
  std::vector<at::Tensor> parts;
  offsets_.push_back(0);
  for (const at::Tensor& part : mine) {
    parts.push_back(bytes_of(part));
    offsets_.push_back(offsets_.back() + parts.back().numel());
  }
  input_ = at::cat(parts);
  at::Tensor flat = at::empty({world.size() * input_.numel()}, input_.options());
  output_ = flat.view({world.size(), -1});
  work_ = world.all_gather(flat, input_);
}

void FlatGather::copy_to(size_t index, const at::Tensor& whole) const {
  const at::NoGradGuard no_grad;
  const at::Tensor bytes = bytes_of(whole);
  const int64_t part = offsets_[index + 1] - offsets_[index];
  if (output_.size(0) * part == bytes.numel()) {  // nothing is padded: one copy
    bytes.view({output_.size(0), part}).copy_(output_.narrow(1, offsets_[index], part));
    return;
  }
  for (int64_t rank = 0; rank < output_.size(0); ++rank) {
    const int64_t start = std::min(rank * part, bytes.numel());
    const int64_t length = std::min(part, bytes.numel() - start);
    if (length > 0) bytes.narrow(0, start, length).copy_(output_[rank].narrow(0, offsets_[index], length));
  }
}

}  // namespace regather::shard
