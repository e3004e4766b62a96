#include "kernels/target_logits.h"

#include "kernels/cuda_check.cuh"

namespace regather::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kRowsPerBlock = kThreads / kWarp;

// A warp a row.
__global__ void target_logits_kernel(TargetLogits problem) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRowsPerBlock + threadIdx.x / kWarp;
  if (row >= problem.summary->kept) return;
  const int lane = threadIdx.x % kWarp;
  const int64_t vectors = problem.width / 8;
  const auto* x = static_cast<const Eight*>(problem.hidden) + problem.kept[row] * vectors;
  const auto* w = static_cast<const Eight*>(problem.weight) + problem.kept_target[row] * vectors;
  float sum = warp_dot(x, w, vectors);
  if (lane != 0) return;
  if (problem.bias != nullptr) {
    sum += __bfloat162float(static_cast<const __nv_bfloat16*>(problem.bias)[problem.kept_target[row]]);
  }
  const float negative_shift = -(sum + kShiftAboveTarget) * kLog2E;
  problem.negative_shift[row] = negative_shift;
  problem.target_exponent[row] = fmaf(sum, kLog2E, negative_shift);
}

__global__ void gather_rows_kernel(const Eight* hidden, const int32_t* kept, int64_t vectors, Eight* gathered) {
  const Eight* from = hidden + kept[blockIdx.x] * vectors;
  Eight* to = gathered + blockIdx.x * vectors;
  for (int64_t i = threadIdx.x; i < vectors; i += blockDim.x) to[i] = from[i];
}

}  // namespace

void target_logits(const TargetLogits& problem, Stream stream) {
  const auto blocks = static_cast<unsigned int>(divide_up(problem.rows_at_most, kRowsPerBlock));
  target_logits_kernel<<<blocks, kThreads, 0, stream>>>(problem);
  check_launch("target_logits");
}

void gather_rows(const void* hidden, const int32_t* kept, int64_t count, int64_t width, void* gathered, Stream stream) {
  gather_rows_kernel<<<static_cast<unsigned int>(count), 128, 0, stream>>>(static_cast<const Eight*>(hidden), kept,
                                                                           width / 8, static_cast<Eight*>(gathered));
  check_launch("gather_rows");
}

}  // namespace regather::kernels
