#include "kernels/finish_rows.h"

#include "kernels/coefficient.cuh"
#include "kernels/cuda_check.cuh"
#include "kernels/defect.h"
#include "kernels/target_logits.h"

namespace regather::kernels {
namespace {

// A block reads the partial sums of its few rows together, since those of neighbouring rows are neighbours; then two
// warps have a row.
constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kRows = 4;
constexpr int kRowThreads = kThreads / kRows;
constexpr int kSumThreads = kThreads / kRows;

// Above this the row's maximum is more than 80 above the target's logit, and scales come near what bf16 can hold.
constexpr float kLargestSum = 2.3538527e17F;  // e^40

// hidden[row] . weight[v] by one warp, the same in all of its lanes.
__device__ float dot(const ChunkRows& chunk, int64_t row, int64_t v) {
  const int64_t vectors = chunk.width / 8;
  const Eight* x = static_cast<const Eight*>(chunk.hidden) + row * vectors;
  const Eight* w = static_cast<const Eight*>(chunk.weight) + v * vectors;
  float sum = warp_dot(x, w, vectors);
  if (chunk.bias != nullptr) sum += __bfloat162float(static_cast<const __nv_bfloat16*>(chunk.bias)[v]);
  return sum;
}

struct Row {
  float sum;
  float target_exponent;
};

// Slow and sure: the row's maximum, then E and its sum again with that as the shift.
__device__ __noinline__ Row repaired(const ChunkRows& chunk, int64_t row) {
  __shared__ float target_logit;
  const int warp = threadIdx.x / kWarp;
  const int64_t target = chunk.kept_target[row];
  float largest = -INFINITY;
  for (int64_t v = warp; v < chunk.vocab; v += kWarps) {
    const float logit = dot(chunk, row, v);
    largest = fmaxf(largest, logit);
    if (v == target && threadIdx.x % kWarp == 0) target_logit = logit;
  }
  largest = block_max<kThreads>(largest);
  const float negative_shift = -largest * kLog2E;
  auto* e = static_cast<__nv_bfloat16*>(chunk.exponentials) + row * chunk.pitch;
  float sum = 0;
  for (int64_t v = warp; v < chunk.vocab; v += kWarps) {
    const float exponential = exp2_fast(fmaf(dot(chunk, row, v), kLog2E, negative_shift));
    if (threadIdx.x % kWarp != 0) continue;
    sum += exponential;
    if (chunk.exponentials != nullptr) e[v] = __float2bfloat16(exponential);
  }
  sum = block_sum<kThreads>(sum);
  const float exponent = fmaf(target_logit, kLog2E, negative_shift);
  if (threadIdx.x == 0) chunk.target_exponent[row] = exponent;
  return {sum, exponent};
}

// What a seeded fault adds to a row's sum.
__device__ float astray(const ChunkRows& chunk, int64_t row) {
  if (chunk.defect == Defect::counted_pad) return kCountedPad * exp2_fast(chunk.negative_shift[row]);
  return chunk.defect == Defect::stale_sum ? chunk.sum[row] : 0.0F;
}

// By the whole block; each thread gets its own row's.
__device__ Row summed(const ChunkRows& chunk, int64_t first_row) {
  __shared__ float partial[kSumThreads][kRows];
  __shared__ Row found[kRows];
  float sum = 0;
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll 8
  for (int64_t i = thread / kRows; i < chunk.partials; i += kSumThreads) {
    sum += chunk.partial_sums[i * chunk.partial_pitch + first_row + thread % kRows];
  }
  partial[thread / kRows][thread % kRows] = sum;
  __syncthreads();
  const int warp = thread / kWarp;
  if (warp < kRows) {
    sum = 0;
    for (int i = thread % kWarp; i < kSumThreads; i += kWarp) sum += partial[i][warp];
    sum = warp_sum(sum);
    const int64_t row = first_row + warp;
    if (thread % kWarp == 0 && row < chunk.rows) {
      if (chunk.defect != Defect::none) sum += astray(chunk, row);
      found[warp] = {sum, chunk.target_exponent[row]};
    }
  }
  __syncthreads();
  for (int i = 0; i < kRows && first_row + i < chunk.rows; ++i) {
    // Not where the target's own logit is no number: nothing helps there.
    if (found[i].sum <= kLargestSum || !isfinite(found[i].target_exponent)) continue;
    const Row again = repaired(chunk, first_row + i);
    __syncthreads();
    if (thread == 0) found[i] = again;
    __syncthreads();
  }
  return found[thread / kRowThreads];
}

__device__ float log_probability_of(const Row& row) {
  return fminf(fmaf(row.target_exponent, kLn2, -logf(row.sum)), 0.0F);
}

__device__ void store_log_probability(const ChunkRows& chunk, int64_t row, const Row& summary, float log_probability) {
  if (threadIdx.x % kRowThreads != 0) return;
  chunk.sum[row] = summary.sum;
  chunk.log_probability[row] = log_probability;
  if (chunk.all_log_probabilities != nullptr) chunk.all_log_probabilities[chunk.kept[row]] = log_probability;
}

// By the threads of a row.
__device__ void scale_row(const ChunkRows& chunk, int64_t row, const Row& summary, float coefficient) {
  const int lane = static_cast<int>(threadIdx.x) % kRowThreads;
  float scale = -coefficient / summary.sum;
  if (chunk.defect == Defect::scaled_twice) scale *= coefficient;
  const int64_t vectors = chunk.width / 8;
  const Eight* x = static_cast<const Eight*>(chunk.hidden) + row * vectors;
  auto* scaled = static_cast<Eight*>(chunk.scaled) + row * vectors;
#pragma unroll 4
  for (int64_t i = lane; i < vectors; i += kRowThreads) {
    Eight eight = x[i];
    for (int j = 0; j < 4; ++j) {
      float2 p = __bfloat1622float2(eight.pair[j]);
      p.x *= scale;
      p.y *= scale;
      eight.pair[j] = __float22bfloat162_rn(p);
    }
    scaled[i] = eight;
  }
  if (lane == 0) {
    chunk.scale[row] = scale;
    const float exact = exp2_fast(summary.target_exponent) - summary.sum;
    const __nv_bfloat16 rounded = __float2bfloat16(exact);
    if (chunk.defect == Defect::unpatched_target) {
      chunk.lost[row] = 0;
      return;
    }
    chunk.lost[row] = scale * (exact - __bfloat162float(rounded));
    static_cast<__nv_bfloat16*>(chunk.exponentials)[row * chunk.pitch + chunk.kept_target[row]] = rounded;
  }
}

__device__ int64_t first_row() { return static_cast<int64_t>(blockIdx.x) * kRows; }

template <class Loss>
__global__ void finish_rows_kernel(ChunkRows chunk, Loss loss, float* value) {
  const Row summary = summed(chunk, first_row());
  const int64_t row = first_row() + threadIdx.x / kRowThreads;
  if (row >= chunk.rows) return;
  const float log_probability = log_probability_of(summary);
  const Coefficient coefficient = loss(chunk.kept[row], log_probability);
  store_log_probability(chunk, row, summary, log_probability);
  if (threadIdx.x % kRowThreads == 0) value[row] = coefficient.value;
  scale_row(chunk, row, summary, coefficient.by_log_probability);
}

__global__ void sum_rows_kernel(ChunkRows chunk) {
  const Row summary = summed(chunk, first_row());
  const int64_t row = first_row() + threadIdx.x / kRowThreads;
  if (row < chunk.rows) store_log_probability(chunk, row, summary, log_probability_of(summary));
}

__global__ void scale_rows_kernel(ChunkRows chunk, const float* coefficient) {
  const int64_t row = first_row() + threadIdx.x / kRowThreads;
  if (row < chunk.rows) scale_row(chunk, row, {chunk.sum[row], chunk.target_exponent[row]}, coefficient[row]);
}

__global__ void scatter_rows_kernel(ChunkRows chunk, const float* product, Eight* gradient) {
  const int64_t row = blockIdx.x;
  const int64_t vectors = chunk.width / 8;
  const float scale = chunk.scale[row];
  const float lost = chunk.lost[row];
  const Eight* target = static_cast<const Eight*>(chunk.weight) + chunk.kept_target[row] * vectors;
  const auto* from = reinterpret_cast<const float4*>(product + row * chunk.width);
  Eight* to = gradient + chunk.kept[row] * vectors;
  for (int64_t i = threadIdx.x; i < vectors; i += blockDim.x) {
    const float4 a = from[2 * i];
    const float4 b = from[2 * i + 1];
    Eight eight = target[i];
    const float2 w0 = __bfloat1622float2(eight.pair[0]);
    const float2 w1 = __bfloat1622float2(eight.pair[1]);
    const float2 w2 = __bfloat1622float2(eight.pair[2]);
    const float2 w3 = __bfloat1622float2(eight.pair[3]);
    eight.pair[0] = __floats2bfloat162_rn(fmaf(a.x, scale, w0.x * lost), fmaf(a.y, scale, w0.y * lost));
    eight.pair[1] = __floats2bfloat162_rn(fmaf(a.z, scale, w1.x * lost), fmaf(a.w, scale, w1.y * lost));
    eight.pair[2] = __floats2bfloat162_rn(fmaf(b.x, scale, w2.x * lost), fmaf(b.y, scale, w2.y * lost));
    eight.pair[3] = __floats2bfloat162_rn(fmaf(b.z, scale, w3.x * lost), fmaf(b.w, scale, w3.y * lost));
    to[i] = eight;
  }
}

// A thread a column.
__global__ void add_bias_gradient_kernel(ChunkRows chunk, float* gradient, bool accumulate) {
  const int64_t v = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (v >= chunk.vocab) return;
  const auto* e = static_cast<const __nv_bfloat16*>(chunk.exponentials) + v;
  float sum = 0;
  for (int64_t row = 0; row < chunk.rows; ++row) {
    sum = fmaf(chunk.scale[row], __bfloat162float(e[row * chunk.pitch]), sum);
  }
  gradient[v] = accumulate ? gradient[v] + sum : sum;
}

unsigned int blocks_of(const ChunkRows& chunk) { return static_cast<unsigned int>(divide_up(chunk.rows, kRows)); }

}  // namespace

void finish_rows(const ChunkRows& chunk, const Sft& /*loss*/, float* value, int64_t kept_in_all, Stream stream) {
  const SftCoefficient coefficient{1.0F / static_cast<float>(kept_in_all)};
  finish_rows_kernel<<<blocks_of(chunk), kThreads, 0, stream>>>(chunk, coefficient, value);
  check_launch("finish_rows");
}

void finish_rows(const ChunkRows& chunk, const Grpo& loss, float* value, int64_t sequences, const int32_t* start,
                 Stream stream) {
  const GrpoCoefficient coefficient{loss, start, static_cast<float>(sequences)};
  finish_rows_kernel<<<blocks_of(chunk), kThreads, 0, stream>>>(chunk, coefficient, value);
  check_launch("finish_rows");
}

void sum_rows(const ChunkRows& chunk, Stream stream) {
  sum_rows_kernel<<<blocks_of(chunk), kThreads, 0, stream>>>(chunk);
  check_launch("sum_rows");
}

void scale_rows(const ChunkRows& chunk, const float* coefficient, Stream stream) {
  scale_rows_kernel<<<blocks_of(chunk), kThreads, 0, stream>>>(chunk, coefficient);
  check_launch("scale_rows");
}

void scatter_rows(const ChunkRows& chunk, const float* product, void* gradient, Stream stream) {
  scatter_rows_kernel<<<static_cast<unsigned int>(chunk.rows), 128, 0, stream>>>(chunk, product,
                                                                                 static_cast<Eight*>(gradient));
  check_launch("scatter_rows");
}

void add_bias_gradient(const ChunkRows& chunk, float* gradient, bool accumulate, Stream stream) {
  const auto blocks = static_cast<unsigned int>(divide_up(chunk.vocab, kThreads));
  add_bias_gradient_kernel<<<blocks, kThreads, 0, stream>>>(chunk, gradient, accumulate);
  check_launch("add_bias_gradient");
}

}  // namespace regather::kernels
