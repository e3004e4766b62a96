#include "kernels/plain_rows.h"

#include "kernels/coefficient.cuh"
#include "kernels/cuda_check.cuh"
#include "kernels/defect.h"
#include "kernels/numbers.cuh"

namespace regather::kernels {
namespace {

constexpr int kThreads = 256;

unsigned int blocks_of(int64_t count) { return static_cast<unsigned int>(count); }

template <class T>
__global__ void gather_kernel(const T* hidden, const int32_t* kept, int64_t width, T* gathered) {
  for (int64_t i = threadIdx.x; i < width; i += kThreads) {
    gathered[blockIdx.x * width + i] = hidden[kept[blockIdx.x] * width + i];
  }
}

// A block a row.
template <class T>
__global__ void rows_kernel(PlainRows chunk) {
  const int64_t row = blockIdx.x;
  const float* logits = chunk.logits + row * chunk.vocab;
  const T* bias = static_cast<const T*>(chunk.bias);
  const auto logit = [&](int64_t v) { return bias == nullptr ? logits[v] : logits[v] + widened(bias[v]); };
  float largest = -INFINITY;
  for (int64_t v = threadIdx.x; v < chunk.vocab; v += kThreads) largest = fmaxf(largest, logit(v));
  largest = block_max<kThreads>(largest);
  float sum = 0;
  for (int64_t v = threadIdx.x; v < chunk.vocab; v += kThreads) sum += expf(logit(v) - largest);
  if (chunk.defect == Defect::counted_pad && threadIdx.x == 0) sum += kCountedPad * expf(-largest);
  if (chunk.stale_sum != nullptr && threadIdx.x == 0) sum += chunk.stale_sum[row];
  sum = block_sum<kThreads>(sum);
  if (chunk.stale_sum != nullptr && threadIdx.x == 0) chunk.stale_sum[row] = sum;
  const int64_t target = chunk.kept_target[row];
  if (threadIdx.x == 0) {
    const float log_probability = logit(target) - largest - logf(sum);
    chunk.log_probability[row] = log_probability;
    if (chunk.all_log_probabilities != nullptr) chunk.all_log_probabilities[chunk.kept[row]] = log_probability;
  }
  if (chunk.by_logits == nullptr) return;
  const float inverse = 1.0F / sum;
  // What is left of 1 is summed where it may be little.
  float others = 0;
  T* by_logits = static_cast<T*>(chunk.by_logits) + row * chunk.vocab;
  for (int64_t v = threadIdx.x; v < chunk.vocab; v += kThreads) {
    if (v == target) continue;
    const float p = expf(logit(v) - largest) * inverse;
    others += p;
    by_logits[v] = narrowed<T>(-p);
  }
  others = block_sum<kThreads>(others);
  if (chunk.defect == Defect::unpatched_target) others = -expf(logit(target) - largest) * inverse;
  if (threadIdx.x == 0) by_logits[target] = narrowed<T>(others);
}

template <class Loss>
__global__ void coefficients_kernel(PlainRows chunk, Loss loss, float* value, float* coefficient) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (row >= chunk.rows) return;
  const Coefficient found = loss(chunk.kept[row], chunk.log_probability[row]);
  value[row] = found.value;
  coefficient[row] = found.by_log_probability;
}

__global__ void factors_kernel(const float* coefficient, int64_t rows, float* factors) {
  float largest = 0;
  for (int64_t row = threadIdx.x; row < rows; row += kThreads) largest = fmaxf(largest, fabsf(coefficient[row]));
  largest = block_max<kThreads>(largest);
  if (threadIdx.x != 0) return;
  factors[0] = largest;
  factors[1] = 0;
  factors[2] = 1;
}

__global__ void square_kernel(float* values, int64_t count) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < count) values[i] *= values[i];
}

template <class T>
__global__ void scale_kernel(PlainRows chunk, const float* coefficient) {
  const int64_t row = blockIdx.x;
  const float largest = chunk.factors[0];
  const float scale = largest == 0 ? 0 : coefficient[row] / largest;
  const T* x = static_cast<const T*>(chunk.hidden) + row * chunk.width;
  T* scaled = static_cast<T*>(chunk.scaled) + row * chunk.width;
  for (int64_t i = threadIdx.x; i < chunk.width; i += kThreads) scaled[i] = narrowed<T>(widened(x[i]) * scale);
}

template <class T>
__global__ void scatter_kernel(PlainRows chunk, const float* coefficient, const float* product, T* gradient) {
  const int64_t row = blockIdx.x;
  for (int64_t i = threadIdx.x; i < chunk.width; i += kThreads) {
    gradient[chunk.kept[row] * chunk.width + i] = narrowed<T>(product[row * chunk.width + i] * coefficient[row]);
  }
}

template <class T>
__global__ void bias_gradient_kernel(PlainRows chunk, const float* coefficient, float* gradient, bool accumulate) {
  const int64_t v = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (v >= chunk.vocab) return;
  const T* by_logits = static_cast<const T*>(chunk.by_logits) + v;
  float sum = 0;
  for (int64_t row = 0; row < chunk.rows; ++row) {
    sum = fmaf(coefficient[row], widened(by_logits[row * chunk.vocab]), sum);
  }
  gradient[v] = accumulate ? gradient[v] + sum : sum;
}

}  // namespace

void plain_gather(const Linear& linear, const int32_t* kept, int64_t count, void* gathered, Stream stream) {
  with_dtype(linear.dtype, [&](auto zero) {
    using T = decltype(zero);
    gather_kernel<<<blocks_of(count), kThreads, 0, stream>>>(static_cast<const T*>(linear.hidden), kept, linear.width,
                                                             static_cast<T*>(gathered));
  });
  check_launch("plain_gather");
}

void plain_rows(const PlainRows& chunk, Stream stream) {
  with_dtype(chunk.dtype,
             [&](auto zero) { rows_kernel<decltype(zero)><<<blocks_of(chunk.rows), kThreads, 0, stream>>>(chunk); });
  check_launch("plain_rows");
}

void plain_coefficients(const PlainRows& chunk, const Sft& /*loss*/, float* value, float* coefficient,
                        int64_t kept_in_all, Stream stream) {
  const SftCoefficient of_row{1.0F / static_cast<float>(kept_in_all)};
  coefficients_kernel<<<blocks_of(divide_up(chunk.rows, kThreads)), kThreads, 0, stream>>>(chunk, of_row, value,
                                                                                           coefficient);
  check_launch("plain_coefficients");
}

void plain_coefficients(const PlainRows& chunk, const Grpo& loss, float* value, float* coefficient, int64_t sequences,
                        const int32_t* start, Stream stream) {
  const GrpoCoefficient of_row{loss, start, static_cast<float>(sequences)};
  coefficients_kernel<<<blocks_of(divide_up(chunk.rows, kThreads)), kThreads, 0, stream>>>(chunk, of_row, value,
                                                                                           coefficient);
  check_launch("plain_coefficients");
}

void plain_scale_twice(float* coefficient, int64_t rows, Stream stream) {
  square_kernel<<<blocks_of(divide_up(rows, kThreads)), kThreads, 0, stream>>>(coefficient, rows);
  check_launch("plain_scale_twice");
}

void plain_scale(const PlainRows& chunk, const float* coefficient, Stream stream) {
  factors_kernel<<<1, kThreads, 0, stream>>>(coefficient, chunk.rows, chunk.factors);
  with_dtype(chunk.dtype, [&](auto zero) {
    scale_kernel<decltype(zero)><<<blocks_of(chunk.rows), kThreads, 0, stream>>>(chunk, coefficient);
  });
  check_launch("plain_scale");
}

void plain_scatter(const PlainRows& chunk, const float* coefficient, const float* product, void* gradient,
                   Stream stream) {
  with_dtype(chunk.dtype, [&](auto zero) {
    using T = decltype(zero);
    scatter_kernel<<<blocks_of(chunk.rows), kThreads, 0, stream>>>(chunk, coefficient, product,
                                                                   static_cast<T*>(gradient));
  });
  check_launch("plain_scatter");
}

void plain_bias_gradient(const PlainRows& chunk, const float* coefficient, float* gradient, bool accumulate,
                         Stream stream) {
  with_dtype(chunk.dtype, [&](auto zero) {
    bias_gradient_kernel<decltype(zero)><<<blocks_of(divide_up(chunk.vocab, kThreads)), kThreads, 0, stream>>>(
        chunk, coefficient, gradient, accumulate);
  });
  check_launch("plain_bias_gradient");
}

}  // namespace regather::kernels
