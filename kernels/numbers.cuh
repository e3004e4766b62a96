// Numbers of any dtype as floats, and back, on the device; and code for whichever dtype it is.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/problem.h"

namespace regather::kernels {

__device__ inline float widened(float x) { return x; }
__device__ inline float widened(__half x) { return __half2float(x); }
__device__ inline float widened(__nv_bfloat16 x) { return __bfloat162float(x); }

template <class T>
__device__ T narrowed(float x);
template <>
__device__ inline float narrowed<float>(float x) {
  return x;
}
template <>
__device__ inline __half narrowed<__half>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ inline __nv_bfloat16 narrowed<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

// function(T{}) with the dtype's T.
template <class Function>
void with_dtype(Dtype dtype, const Function& function) {
  switch (dtype) {
    case Dtype::bf16:
      return function(__nv_bfloat16());
    case Dtype::fp16:
      return function(__half());
    case Dtype::fp32:
      return function(float());
  }
}

}  // namespace regather::kernels
