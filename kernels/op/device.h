// What runs a pass on a device: the CPU's is always there, CUDA's comes with a library of its own.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "kernels/problem.h"

namespace regather::kernels::op {

struct How {
  // Bytes beside inputs and results that a pass may use; whole sequences of Dpo and Kto take what they need.
  int64_t workspace = int64_t{512} << 20U;
  bool float_weight_gradient = false;
  bool deterministic = false;
  int64_t chunk_rows = 0;  // of a chunk at most; 0: as the workspace allows
  Defect defect = Defect::none;
};

// `on` is a tensor on the device.
struct Device {
  void (*run)(const at::Tensor& on, const Linear& linear, const LossParameters& loss, const Results& results,
              const How& how);
  void (*log_probabilities)(const at::Tensor& on, const Linear& linear, float* out);
  void (*scale)(const at::Tensor& stash, Dtype dtype, const at::Tensor& by);
  // Whether every product met so far has come to its fastest kernel.
  bool (*products_settled)(const at::Tensor& on);
};

const Device& cpu_device();
const Device& cuda_device();

// From then on tensors on CUDA go to `device`.
void use_cuda(const Device& device);

}  // namespace regather::kernels::op
