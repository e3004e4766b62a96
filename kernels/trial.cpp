#include "kernels/trial.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <limits>

#include "kernels/cuda_check.cuh"

namespace regather::kernels {
namespace {

constexpr int kRounds = 2;
constexpr int kCalls[kRounds] = {3, 8};  // of each way
constexpr float kNear = 1.06F;

float median(std::vector<float> values) {
  if (values.empty()) return std::numeric_limits<float>::infinity();
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

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
    ways_[static_cast<size_t>(timed->way)].milliseconds.push_back(milliseconds);
    cudaEventDestroy(timed->begin);
    cudaEventDestroy(timed->end);
  }
  pending_.erase(pending_.begin(), timed);
}

// The round is over: the best so far is chosen, and goes on with those that are near it.
void Trial::judge() {
  std::vector<float> times;
  for (const Way& way : ways_) {
    times.push_back(way.out ? std::numeric_limits<float>::infinity() : median(way.milliseconds));
  }
  const auto best = std::min_element(times.begin(), times.end());
  chosen_ = static_cast<int>(best - times.begin());
  for (size_t i = 0; i < ways_.size(); ++i) {
    ways_[i].out = !(times[i] <= *best * kNear);
    ways_[i].enqueued = 0;
    ways_[i].milliseconds.clear();
  }
  ++round_;
}

int Trial::next() {
  timing_ = false;
  if (round_ == kRounds) return chosen_;
  collect();
  // Each turn begins with another way, so that none always has the same place in a call of several products.
  const size_t count = ways_.size();
  int fewest = kCalls[round_];
  for (const Way& way : ways_) {
    if (!way.out) fewest = std::min(fewest, way.enqueued);
  }
  if (fewest < kCalls[round_]) {
    for (size_t i = 0; i < count; ++i) {
      const size_t way = (static_cast<size_t>(fewest) + i) % count;
      if (ways_[way].out || ways_[way].enqueued > fewest) continue;
      timing_ = true;
      return static_cast<int>(way);
    }
  }
  if (pending_.empty()) judge();
  return chosen_;
}

bool Trial::settled() const { return round_ == kRounds; }

void Trial::begin(Stream stream) {
  if (!timing_) return;
  check(cudaEventCreate(&begun_), "cudaEventCreate");
  check(cudaEventRecord(begun_, stream), "cudaEventRecord");
}

void Trial::end(int way, Stream stream) {
  if (!timing_) return;
  ++ways_[static_cast<size_t>(way)].enqueued;
  cudaEvent_t end = nullptr;
  check(cudaEventCreate(&end), "cudaEventCreate");
  check(cudaEventRecord(end, stream), "cudaEventRecord");
  pending_.push_back({way, begun_, end});
}

bool Trial::exclude(int way) {
  if (!timing_) return false;
  ways_[static_cast<size_t>(way)].out = true;
  cudaEventDestroy(begun_);
  return true;
}

}  // namespace regather::kernels
