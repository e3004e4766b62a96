// The coefficient of a row, for losses in which it depends on that row's log-probability alone.
#pragma once

#include <cstdint>

#include "kernels/cuda_check.cuh"
#include "kernels/linear_loss.h"

namespace regather::kernels {

struct Coefficient {
  float by_log_probability;  // d loss / d log p(target)
  float value;               // the row's share of the loss
};

// `row` is the row's number in the batch.
struct SftCoefficient {
  float share;
  __device__ Coefficient operator()(int64_t /*row*/, float log_probability) const {
    return {-share, -share * log_probability};
  }
};

struct GrpoCoefficient {
  Grpo loss;
  const int32_t* start;
  float sequences;
  __device__ Coefficient operator()(int64_t row, float log_probability) const {
    const int64_t sequence = row / loss.length;
    const float share = 1.0F / (static_cast<float>(start[sequence + 1] - start[sequence]) * sequences);
    const float advantage = loss.advantages[sequence];
    const float old = loss.old_log_probabilities != nullptr ? loss.old_log_probabilities[row] : log_probability;
    const float ratio = expf(log_probability - old);
    const float clipped = fminf(fmaxf(ratio, 1.0F - loss.epsilon_low), 1.0F + loss.epsilon_high);
    const float gain = ratio * advantage;
    const float clipped_gain = clipped * advantage;
    // Where the clip decides, the gain does not depend on the policy.
    const bool decides = clipped_gain < gain;
    float by_log_probability = decides ? 0.0F : -gain;
    float value = decides ? -clipped_gain : -gain;
    if (loss.reference_log_probabilities != nullptr) {
      const float distance = loss.reference_log_probabilities[row] - log_probability;
      const float grown = expm1f(distance);
      by_log_probability -= loss.beta * grown;
      value += loss.beta * (grown - distance);
    }
    return {by_log_probability * share, value * share};
  }
};

}  // namespace regather::kernels
