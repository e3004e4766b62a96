// The same losses and gradients in double: products by cuBLAS, coefficients on the host from the formulas.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>
#include <vector>

#include "kernels/linear_loss.h"
#include "kernels/tests/device.cuh"
#include "kernels/tests/host_losses.h"

namespace regather::kernels::testing {

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
