// CUDA calls that throw, and small device helpers that several kernels share.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <string>

#include "kernels/error.h"

namespace regather::kernels {

inline void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw Error(std::string(what) + ": " + cudaGetErrorString(status));
}

inline void check_launch(const char* kernel) { check(cudaGetLastError(), kernel); }

constexpr int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t round_up(int64_t a, int64_t b) { return divide_up(a, b) * b; }

constexpr float kLog2E = 1.44269504088896340736F;
constexpr float kLn2 = 0.69314718055994530942F;
constexpr int kWarp = 32;

#ifdef __CUDACC__

__device__ inline float warp_sum(float value) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffU, value, offset);
  return value;
}

__device__ inline float warp_max(float value) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xffffffffU, value, offset));
  }
  return value;
}

// The same value in every thread; Threads is the block's size. Order of additions fixed.
template <int Threads>
__device__ float block_sum(float value) {
  __shared__ float partial[Threads / kWarp];
  value = warp_sum(value);
  __syncthreads();
  if (threadIdx.x % kWarp == 0) partial[threadIdx.x / kWarp] = value;
  __syncthreads();
  float total = 0;
  for (int warp = 0; warp < Threads / kWarp; ++warp) total += partial[warp];
  return total;
}

template <int Threads>
__device__ float block_max(float value) {
  __shared__ float partial[Threads / kWarp];
  value = warp_max(value);
  __syncthreads();
  if (threadIdx.x % kWarp == 0) partial[threadIdx.x / kWarp] = value;
  __syncthreads();
  float total = partial[0];
  for (int warp = 1; warp < Threads / kWarp; ++warp) total = fmaxf(total, partial[warp]);
  return total;
}

// 2^x, flushing what is below the smallest normal number: as in the fused product.
__device__ inline float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Eight bf16 as loaded in one access.
struct alignas(16) Eight {
  __nv_bfloat162 pair[4];
};

// x . w, `vectors` times eight numbers each, by one warp: the same in all of its lanes.
__device__ inline float warp_dot(const Eight* x, const Eight* w, int64_t vectors) {
  float sum = 0;
  for (int64_t i = threadIdx.x % kWarp; i < vectors; i += kWarp) {
    const Eight a = x[i];
    const Eight b = w[i];
    for (int j = 0; j < 4; ++j) {
      const float2 p = __bfloat1622float2(a.pair[j]);
      const float2 q = __bfloat1622float2(b.pair[j]);
      sum = fmaf(p.x, q.x, sum);
      sum = fmaf(p.y, q.y, sum);
    }
  }
  return warp_sum(sum);
}

#endif

}  // namespace regather::kernels
