#include "kernels/tests/data.cuh"

#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace regather::kernels::testing {
namespace {

constexpr int kThreads = 256;

__device__ uint64_t mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31U);
}

__device__ float uniform(uint64_t seed, uint64_t i) {
  return (static_cast<float>(mixed(seed * 0x2545f4914f6cdd1dULL + i) >> 40U) + 0.5F) * 0x1p-24F;
}

__device__ float normal(uint64_t seed, uint64_t i) {
  return sqrtf(-2 * logf(uniform(seed, 2 * i))) * cosf(6.2831853F * uniform(seed, 2 * i + 1));
}

__global__ void normal_kernel(__nv_bfloat16* out, int64_t count, float scale, uint64_t seed) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += stride) {
    out[i] = __float2bfloat16(scale * normal(seed, i));
  }
}

__global__ void lean_kernel(__nv_bfloat16* hidden, const __nv_bfloat16* weight, const int64_t* targets,
                            DataOptions options) {
  const int64_t row = blockIdx.x;
  const int64_t target = targets[row];
  if (target < 0) return;
  const float squared = options.weight_scale * options.weight_scale * static_cast<float>(options.width);
  const float lean = (options.lean_base + options.lean_range * uniform(options.seed + 77, row)) / squared;
  for (int64_t i = threadIdx.x; i < options.width; i += kThreads) {
    __nv_bfloat16& x = hidden[row * options.width + i];
    x = __float2bfloat16(__bfloat162float(x) + lean * __bfloat162float(weight[target * options.width + i]));
  }
}

__global__ void add_normal_kernel(float* values, int64_t count, float scale, uint64_t seed) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < count) values[i] += scale * normal(seed, i);
}

__global__ void convert_kernel(const __nv_bfloat16* in, int64_t count, float* wide, __half* half) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += stride) {
    const float value = __bfloat162float(in[i]);
    if (wide != nullptr) wide[i] = value;
    if (half != nullptr) half[i] = __float2half_rn(value);
  }
}

std::vector<int64_t> zipf_targets(const DataOptions& options) {
  std::mt19937_64 random(options.seed + 5);
  std::vector<double> cumulative(static_cast<size_t>(options.vocab));
  double total = 0;
  for (size_t i = 0; i < cumulative.size(); ++i) cumulative[i] = total += 1.0 / static_cast<double>(i + 1);
  std::vector<int64_t> token(cumulative.size());
  for (size_t i = 0; i < token.size(); ++i) token[i] = static_cast<int64_t>(i);
  std::shuffle(token.begin(), token.end(), random);
  std::uniform_real_distribution<double> drawn(0, 1);
  std::vector<int64_t> targets;
  for (int64_t row = 0; row < options.rows; ++row) {
    const auto at = std::upper_bound(cumulative.begin(), cumulative.end(), drawn(random) * total) - cumulative.begin();
    const bool masked = drawn(random) < options.masked;
    targets.push_back(masked ? -100 : token[std::min(static_cast<size_t>(at), token.size() - 1)]);
  }
  return targets;
}

void fill_normal(const Buffer<__nv_bfloat16>& buffer, float scale, uint64_t seed) {
  if (buffer.count() == 0) return;
  const int64_t blocks = std::min<int64_t>(divide_up(buffer.count(), kThreads), 8192);
  normal_kernel<<<static_cast<unsigned int>(blocks), kThreads>>>(buffer.get(), buffer.count(), scale, seed);
  check_launch("normal");
}

}  // namespace

Data make_data(const DataOptions& options) {
  Data data;
  data.hidden = Buffer<__nv_bfloat16>(options.rows * options.width);
  data.weight = Buffer<__nv_bfloat16>(options.vocab * options.width);
  data.bias = Buffer<__nv_bfloat16>(options.bias ? options.vocab : 0);
  data.targets = Buffer<int64_t>(zipf_targets(options));
  fill_normal(data.hidden, options.hidden_scale, options.seed * 8 + 1);
  fill_normal(data.weight, options.weight_scale, options.seed * 8 + 2);
  fill_normal(data.bias, 0.5F, options.seed * 8 + 3);
  if (options.rows > 0) {
    lean_kernel<<<static_cast<unsigned int>(options.rows), kThreads>>>(data.hidden.get(), data.weight.get(),
                                                                       data.targets.get(), options);
    check_launch("lean");
  }
  check(cudaDeviceSynchronize(), "make_data");
  data.linear.rows = options.rows;
  data.linear.width = options.width;
  data.linear.vocab = options.vocab;
  data.linear.hidden = data.hidden.get();
  data.linear.weight = data.weight.get();
  data.linear.bias = options.bias ? data.bias.get() : nullptr;
  data.linear.targets = data.targets.get();
  return data;
}

Buffer<char> converted(const Buffer<__nv_bfloat16>& values, Dtype dtype) {
  Buffer<char> out(values.count() * (dtype == Dtype::fp32 ? 4 : 2));
  if (values.count() == 0) return out;
  const int64_t blocks = std::min<int64_t>(divide_up(values.count(), kThreads), 8192);
  convert_kernel<<<static_cast<unsigned int>(blocks), kThreads>>>(
      values.get(), values.count(), dtype == Dtype::fp32 ? reinterpret_cast<float*>(out.get()) : nullptr,
      dtype == Dtype::fp16 ? reinterpret_cast<__half*>(out.get()) : nullptr);
  check_launch("convert");
  return out;
}

void add_normal(float* values, int64_t count, float scale, uint64_t seed) {
  if (count == 0) return;
  add_normal_kernel<<<static_cast<unsigned int>(divide_up(count, kThreads)), kThreads>>>(values, count, scale, seed);
  check_launch("add_normal");
}

}  // namespace regather::kernels::testing
