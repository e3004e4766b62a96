#include "kernels/workspace.h"

#include <algorithm>

#include "kernels/cuda_check.cuh"
#include "kernels/exp_product.h"
#include "kernels/kept_rows.h"
#include "kernels/matmul.h"
#include "kernels/plain_rows.h"

namespace regather::kernels {
namespace {

// Whole lines of the cache, and what the copy engine asks for.
constexpr int64_t kPitchMultiple = 64;
constexpr size_t kAlignment = 256;

class Arranger {
 public:
  explicit Arranger(void* base) : base_(static_cast<char*>(base)) {}

  template <class T>
  T* take(int64_t count) {
    return static_cast<T*>(bytes(static_cast<size_t>(count) * sizeof(T)));
  }
  void* bytes(size_t size) {
    void* at = base_ == nullptr ? nullptr : base_ + used_;
    used_ += (size + kAlignment - 1) / kAlignment * kAlignment;
    return at;
  }
  void advance_to(const Arranger& other) { used_ = std::max(used_, other.used_); }
  size_t used() const { return used_; }

 private:
  char* base_;
  size_t used_ = 0;
};

// Rows of a chunk of which only sums are kept: their hidden states stay in the cache.
constexpr int64_t kSumsChunk = 2048;
// The plain path has logits beside the sums.
constexpr int64_t kPlainChunk = 256;

Workspace of_call(const Linear& linear, int64_t sequences, Arranger& arranger) {
  Workspace space;
  const int64_t rows = std::max<int64_t>(linear.rows, 1);
  space.summary = arranger.take<KeptSummary>(1);
  space.start = arranger.take<int32_t>(sequences + 1);
  space.kept = arranger.take<int32_t>(rows);
  space.kept_target = arranger.take<int32_t>(rows);
  space.negative_shift = arranger.take<float>(rows);
  space.target_exponent = arranger.take<float>(rows);
  space.log_probability = arranger.take<float>(rows);
  return space;
}

bool has_wgmma() {
  static const bool has = [] {
    int device = 0;
    int major = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
    return major == 9;
  }();
  return has;
}

// What is dead once a chunk's rows have their scales.
void add_sums(const Linear& linear, int64_t chunk, Workspace& space, Arranger& arranger) {
  space.chunk_rows = chunk;
  space.gathered = arranger.bytes(static_cast<size_t>(chunk * linear.width * size_of(linear.dtype)));
  const SumTile tile = sum_tile();
  space.partial_sums = arranger.take<float>(divide_up(linear.vocab, tile.columns) * round_up(chunk, tile.rows));
}

}  // namespace

bool plain_path(const Linear& linear, const Options& options) {
  return options.plain || linear.dtype != Dtype::bf16 || linear.width % 8 != 0 || !has_wgmma();
}

Workspace lay_out(const Linear& linear, const Sequences& sequences, const Options& options, void* base) {
  const bool plain = plain_path(linear, options);
  Arranger arranger(base);
  Workspace space = of_call(linear, sequences.count, arranger);
  const int64_t rows = std::max<int64_t>(linear.rows, 1);
  space.value = arranger.take<float>(std::max(rows, sequences.count));
  space.coefficient = arranger.take<float>(rows);

  require(options.chunk_rows > 0, "a chunk must have rows");
  const int64_t chunk = std::min(rows, std::max(options.chunk_rows, sequences.together * sequences.length));
  // The hidden states' gradient before it is scaled comes when the sums are done with, and takes their place.
  Arranger sums = arranger;
  add_sums(linear, chunk, space, sums);
  space.hidden_product = arranger.take<float>(chunk * linear.width);
  arranger.advance_to(sums);
  space.sum = arranger.take<float>(chunk);
  space.pitch = plain ? linear.vocab : round_up(linear.vocab, kPitchMultiple);
  space.scaled = arranger.bytes(static_cast<size_t>(chunk * linear.width * size_of(linear.dtype)));
  space.scale = arranger.take<float>(chunk);
  space.lost = arranger.take<float>(chunk);
  space.exponentials = arranger.bytes(static_cast<size_t>(chunk * space.pitch * size_of(linear.dtype)));
  space.product_workspace = arranger.bytes(kProductWorkspace);
  if (plain) space.logits = arranger.take<float>(chunk * linear.vocab);
  if (plain) space.factors = arranger.take<float>(3);
  space.bytes = arranger.used();
  return space;
}

Workspace lay_out_sums(const Linear& linear, bool plain, void* base) {
  Arranger arranger(base);
  Workspace space = of_call(linear, 1, arranger);
  add_sums(linear, std::min(std::max<int64_t>(linear.rows, 1), plain ? kPlainChunk : kSumsChunk), space, arranger);
  space.sum = arranger.take<float>(space.chunk_rows);
  if (plain) {
    space.logits = arranger.take<float>(space.chunk_rows * linear.vocab);
    space.product_workspace = arranger.bytes(kProductWorkspace);
  }
  space.bytes = arranger.used();
  return space;
}

size_t workspace_bytes(const Linear& linear, const LossParameters& loss, const Options& options) {
  return lay_out(linear, sequences_of(linear, loss), options, nullptr).bytes;
}

size_t log_probabilities_workspace_bytes(const Linear& linear) {
  return lay_out_sums(linear, plain_path(linear, {}), nullptr).bytes;
}

int64_t chunk_rows_within(const Linear& linear, const LossParameters& loss, size_t bytes) {
  int64_t low = 0;
  int64_t high = std::max<int64_t>(linear.rows, 1);
  while (low < high) {
    const int64_t middle = low + (high - low + 1) / 2;
    Options options;
    options.chunk_rows = middle;
    if (workspace_bytes(linear, loss, options) <= bytes) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace regather::kernels
