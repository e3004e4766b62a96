#include "kernels/kept_rows.h"

#include "kernels/cuda_check.cuh"

namespace regather::kernels {
namespace {

constexpr int kThreads = 1024;

// One block: a prefix sum over the rows, kThreads at a time.
__global__ void find_kept_rows_kernel(KeptRows problem) {
  __shared__ int32_t warp_total[kThreads / kWarp];
  __shared__ int32_t bad;
  __shared__ int64_t bad_target;
  const int lane = threadIdx.x % kWarp;
  const int warp = threadIdx.x / kWarp;
  if (threadIdx.x == 0) {
    bad = 0;
    bad_target = 0;
  }
  __syncthreads();
  const int64_t length = problem.rows / problem.sequences;
  int32_t before = 0;
  for (int64_t first = 0; first < problem.rows; first += kThreads) {
    const int64_t position = first + threadIdx.x;
    int64_t row = position;
    if (problem.paired && position < problem.rows) {
      const int64_t sequence = position / length;
      row = ((sequence % 2) * (problem.sequences / 2) + sequence / 2) * length + position % length;
    }
    const int64_t target = position < problem.rows ? problem.targets[row] : problem.ignore_index;
    const bool ignored = target == problem.ignore_index;
    const bool keep = !ignored && target >= 0 && target < problem.vocab;
    if (!ignored && !keep) {
      atomicAdd(&bad, 1);
      bad_target = target;
    }
    const unsigned int ballot = __ballot_sync(0xffffffffU, keep);
    if (lane == 0) warp_total[warp] = __popc(ballot);
    __syncthreads();
    int32_t at = before + __popc(ballot & ((1U << lane) - 1));
    int32_t total = 0;
    for (int other = 0; other < kThreads / kWarp; ++other) {
      if (other < warp) at += warp_total[other];
      total += warp_total[other];
    }
    if (keep) {
      problem.kept[at] = static_cast<int32_t>(row);
      problem.kept_target[at] = static_cast<int32_t>(target);
    }
    if (position < problem.rows && position % length == 0) problem.start[position / length] = at;
    before += total;
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    problem.start[problem.sequences] = before;
    *problem.summary = {before, bad, bad_target};
  }
}

}  // namespace

void find_kept_rows(const KeptRows& problem, Stream stream) {
  find_kept_rows_kernel<<<1, kThreads, 0, stream>>>(problem);
  check_launch("find_kept_rows");
}

}  // namespace regather::kernels
