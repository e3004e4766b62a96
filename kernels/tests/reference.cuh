// The same losses and gradients in double: products by cuBLAS, coefficients on the host from the formulas.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>
#include <vector>

#include "kernels/linear_loss.h"
#include "kernels/tests/device.cuh"

namespace regather::kernels::testing {

// What LossParameters points to, on the host.
struct HostParameters {
  int64_t length = 0;
  std::vector<float> advantages;
  std::vector<float> old_log_probabilities;
  std::vector<float> reference_log_probabilities;
  std::vector<bool> desirable;
  double kl = 0;
};

enum class LossName { sft, grpo, dpo, kto };

struct Reference {
  double loss = 0;
  std::vector<double> log_probabilities;  // [N], 0 where masked
  Buffer<double> hidden_gradient;         // [N, H]
  Buffer<double> weight_gradient;         // [V, H]
  Buffer<double> bias_gradient;           // [V]
};

Reference reference(const Linear& linear, LossName loss, const HostParameters& parameters);
// Only log p(target).
std::vector<double> reference_log_probabilities(const Linear& linear);

// ||a - b|| / ||b||, Frobenius; NaN where a has one; ||a|| where b is zero.
double relative_error(const void* a, Dtype dtype, const Buffer<double>& b);

}  // namespace regather::kernels::testing
