// What the losses make of log-probabilities: each row's share of the gradient, and the value.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/problem.h"
#include "kernels/spans.h"

namespace regather::kernels::cpu {

// Which rows take part, in the order in which they are worked on: DPO's pairs beside each other.
struct Kept {
  std::vector<int32_t> row;
  std::vector<int32_t> target;
  std::vector<int32_t> start;  // [sequences + 1]

  int64_t count() const { return static_cast<int64_t>(row.size()); }
};
Kept find_kept(const Linear& linear, const Sequences& sequences);

// log_probability of all kept rows, of which the span's are read; coefficient [span.count]: the loss's derivative by
// each. Returns the span's share of the loss.
double coefficients(const LossParameters& loss, const Kept& kept, const Sequences& sequences, const Span& span,
                    const float* log_probability, float* coefficient);

}  // namespace regather::kernels::cpu
