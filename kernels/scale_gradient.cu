#include "kernels/scale_gradient.h"

#include <cuda_fp16.h>

#include <algorithm>

#include "kernels/cuda_check.cuh"
#include "kernels/multiprocessors.cuh"

namespace regather::kernels {
namespace {

constexpr int kThreads = 256;

__device__ float widened(float x) { return x; }
__device__ float widened(__half x) { return __half2float(x); }
__device__ float widened(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ void narrow(float x, float& to) { to = x; }
__device__ void narrow(float x, __half& to) { to = __float2half_rn(x); }
__device__ void narrow(float x, __nv_bfloat16& to) { to = __float2bfloat16_rn(x); }

template <class T>
__global__ void scale_gradient_kernel(T* values, int64_t count, const float* by) {
  const float factor = *by;
  if (factor == 1) return;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += stride) {
    narrow(widened(values[i]) * factor, values[i]);
  }
}

}  // namespace

void scale_gradient(void* values, int64_t count, Dtype dtype, const float* by, Stream stream) {
  if (count == 0) return;
  const auto blocks = static_cast<unsigned int>(std::min<int64_t>(divide_up(count, kThreads), 16 * multiprocessors()));
  switch (dtype) {
    case Dtype::bf16:
      scale_gradient_kernel<<<blocks, kThreads, 0, stream>>>(static_cast<__nv_bfloat16*>(values), count, by);
      break;
    case Dtype::fp16:
      scale_gradient_kernel<<<blocks, kThreads, 0, stream>>>(static_cast<__half*>(values), count, by);
      break;
    case Dtype::fp32:
      scale_gradient_kernel<<<blocks, kThreads, 0, stream>>>(static_cast<float*>(values), count, by);
      break;
  }
  check_launch("scale_gradient");
}

}  // namespace regather::kernels
