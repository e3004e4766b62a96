#include "kernels/trial.h"

#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/cuda_check.cuh"

namespace regather::kernels {
namespace {

// The smallest of this many times counts.
constexpr int kTimes = 3;
constexpr int kExcluded = 1 << 20;

}  // namespace

Trial::~Trial() {
  for (const Timed& timed : pending_) {
    cudaEventDestroy(timed.begin);
    cudaEventDestroy(timed.end);
  }
}

void Trial::collect() {
  auto timed = pending_.begin();
  for (; timed != pending_.end() && cudaEventQuery(timed->end) == cudaSuccess; ++timed) {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, timed->begin, timed->end), "cudaEventElapsedTime");
    float& best = best_[static_cast<size_t>(timed->way)];
    best = best == 0 ? milliseconds : std::min(best, milliseconds);
    cudaEventDestroy(timed->begin);
    cudaEventDestroy(timed->end);
  }
  pending_.erase(pending_.begin(), timed);
}

int Trial::next() {
  timing_ = false;
  if (settled_) return chosen_;
  collect();
  const auto least = std::min_element(tried_.begin(), tried_.end());
  if (*least < kTimes) {
    timing_ = true;
    return static_cast<int>(least - tried_.begin());
  }
  for (size_t way = 0; way < best_.size(); ++way) {
    const bool better = best_[way] > 0 && (best_[static_cast<size_t>(chosen_)] == 0 ||
                                           best_[way] < best_[static_cast<size_t>(chosen_)]);
    if (better) chosen_ = static_cast<int>(way);
  }
  settled_ = pending_.empty();
  return chosen_;
}

void Trial::begin(Stream stream) {
  if (!timing_) return;
  check(cudaEventCreate(&begun_), "cudaEventCreate");
  check(cudaEventRecord(begun_, stream), "cudaEventRecord");
}

void Trial::end(int way, Stream stream) {
  if (!timing_) return;
  ++tried_[static_cast<size_t>(way)];
  cudaEvent_t end = nullptr;
  check(cudaEventCreate(&end), "cudaEventCreate");
  check(cudaEventRecord(end, stream), "cudaEventRecord");
  pending_.push_back({way, begun_, end});
  begun_ = nullptr;
}

void Trial::exclude(int way) {
  tried_[static_cast<size_t>(way)] = kExcluded;
  cudaEventDestroy(begun_);
  begun_ = nullptr;
}

}  // namespace regather::kernels
