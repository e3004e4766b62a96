// Random operands: a weight like a language model's head, hidden states that lean towards their targets, targets drawn
// by Zipf's law (uniform ones hide the rounding of a weight gradient that is added to often), and what losses are
// given.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/linear_loss.h"
#include "kernels/tests/device.cuh"

namespace regather::kernels::testing {

struct DataOptions {
  int64_t rows = 0;
  int64_t width = 0;
  int64_t vocab = 0;
  uint64_t seed = 0;
  bool bias = false;
  double masked = 0;  // share of rows
  float weight_scale = 0.02F;
  float hidden_scale = 1;
  // The target's logit is about base + range * uniform above the others.
  float lean_base = 6;
  float lean_range = 8;
};

struct Data {
  Buffer<__nv_bfloat16> hidden;
  Buffer<__nv_bfloat16> weight;
  Buffer<__nv_bfloat16> bias;
  Buffer<int64_t> targets;
  Linear linear;
};

Data make_data(const DataOptions& options);

// The same values in another dtype.
Buffer<char> converted(const Buffer<__nv_bfloat16>& values, Dtype dtype);

// values[i] += scale * normal, in double: old or reference log-probabilities near the policy's.
void add_normal(float* values, int64_t count, float scale, uint64_t seed);

}  // namespace regather::kernels::testing
