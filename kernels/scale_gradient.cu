#include "kernels/scale_gradient.h"

#include <algorithm>

#include "kernels/cuda_check.cuh"
#include "kernels/multiprocessors.cuh"
#include "kernels/numbers.cuh"

namespace regather::kernels {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void scale_gradient_kernel(T* values, int64_t count, const float* by) {
  const float factor = *by;
  if (factor == 1) return;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += stride) {
    values[i] = narrowed<T>(widened(values[i]) * factor);
  }
}

}  // namespace

void scale_gradient(void* values, int64_t count, Dtype dtype, const float* by, Stream stream) {
  if (count == 0) return;
  const auto blocks = static_cast<unsigned int>(std::min<int64_t>(divide_up(count, kThreads), 16 * multiprocessors()));
  with_dtype(dtype, [&](auto zero) {
    using T = decltype(zero);
    scale_gradient_kernel<<<blocks, kThreads, 0, stream>>>(static_cast<T*>(values), count, by);
  });
  check_launch("scale_gradient");
}

}  // namespace regather::kernels
