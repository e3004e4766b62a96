// Timing on a card whose power is limited: what a program costs shows only in steady state, and the steady state
// drifts. So blocks of about 0.2 s of the bare products and of the subject alternate, only the second half of each
// block is timed, and medians are taken.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "kernels/cuda_check.cuh"

namespace regather::kernels::bench {

using Work = std::function<void()>;

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

class Block {
 public:
  explicit Block(double seconds) : seconds_(seconds) {
    for (cudaEvent_t& event : events_) check(cudaEventCreate(&event), "cudaEventCreate");
  }
  ~Block() {
    for (cudaEvent_t event : events_) cudaEventDestroy(event);
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  // Milliseconds a call in the second half of a block, which has as many calls as `expected_ms` suggests.
  double run(const Work& work, double expected_ms) {
    const int half = std::max(1, static_cast<int>(seconds_ * 500 / expected_ms + 0.5));
    for (int i = 0; i < half; ++i) work();
    check(cudaEventRecord(events_[0]), "cudaEventRecord");
    for (int i = 0; i < half; ++i) work();
    check(cudaEventRecord(events_[1]), "cudaEventRecord");
    check(cudaEventSynchronize(events_[1]), "cudaEventSynchronize");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, events_[0], events_[1]), "cudaEventElapsedTime");
    return static_cast<double>(milliseconds) / half;
  }

 private:
  double seconds_;
  cudaEvent_t events_[2] = {};
};

struct Alternated {
  double base_ms = 0;
  double subject_ms = 0;
  double percent = 0;  // median of base / subject, each pair of neighbours
  double spread = 0;   // largest less smallest of those
};

inline Alternated alternate(const Work& base, const Work& subject, double seconds, int rounds) {
  Block block(seconds);
  double base_expected = block.run(base, seconds * 1000);
  double subject_expected = block.run(subject, seconds * 1000);
  std::vector<double> bases;
  std::vector<double> subjects;
  std::vector<double> percents;
  for (int round = 0; round < rounds; ++round) {
    bases.push_back(base_expected = block.run(base, base_expected));
    subjects.push_back(subject_expected = block.run(subject, subject_expected));
    percents.push_back(100 * bases.back() / subjects.back());
  }
  const auto [low, high] = std::minmax_element(percents.begin(), percents.end());
  return {median(bases), median(subjects), median(percents), *high - *low};
}

}  // namespace regather::kernels::bench
