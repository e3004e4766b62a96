// What percentages are of: the matrix products of a linear layer, forward and backward, by plain cuBLAS calls on whole
// matrices, with the gradient by the logits that a cross entropy gives.
#pragma once

#include <cublas_v2.h>
#include <cuda_bf16.h>

#include "kernels/tests/data.cuh"
#include "kernels/tests/device.cuh"

namespace regather::kernels::bench {

class BareProducts {
 public:
  explicit BareProducts(const Linear& linear);
  ~BareProducts();
  BareProducts(const BareProducts&) = delete;
  BareProducts& operator=(const BareProducts&) = delete;

  void logits();
  void hidden_gradient();
  void weight_gradient();
  void three() {
    logits();
    hidden_gradient();
    weight_gradient();
  }

 private:
  Linear linear_;
  cublasHandle_t handle_ = nullptr;
  testing::Buffer<__nv_bfloat16> logits_;
  testing::Buffer<__nv_bfloat16> by_logits_;
  testing::Buffer<__nv_bfloat16> hidden_gradient_;
  testing::Buffer<__nv_bfloat16> weight_gradient_;
  testing::Buffer<char> workspace_;
};

}  // namespace regather::kernels::bench
