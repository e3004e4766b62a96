#include "kernels/preference.h"

#include "kernels/cuda_check.cuh"

namespace regather::kernels {
namespace {

constexpr int kThreads = 256;

// log(policy) - log(reference), summed over a sequence of the order of work.
__device__ float log_ratio(const SequenceRange& range, const float* reference, int64_t sequence) {
  float sum = 0;
  for (int32_t i = range.start[sequence] + static_cast<int32_t>(threadIdx.x); i < range.start[sequence + 1];
       i += kThreads) {
    sum += range.log_probability[i] - reference[range.kept[i]];
  }
  return block_sum<kThreads>(sum);
}

__device__ void fill(const SequenceRange& range, int64_t sequence, float value, float* coefficient) {
  for (int32_t i = range.start[sequence] + static_cast<int32_t>(threadIdx.x); i < range.start[sequence + 1];
       i += kThreads) {
    coefficient[i] = value;
  }
}

__device__ float sigmoid(float x) { return 1.0F / (1.0F + expf(-x)); }

// A block a pair: two sequences that follow each other in the order of work.
__global__ void dpo_kernel(SequenceRange range, Dpo loss, float* value, float* coefficient) {
  const int64_t chosen = range.first + 2 * static_cast<int64_t>(blockIdx.x);
  const float margin = loss.beta * (log_ratio(range, loss.reference_log_probabilities, chosen) -
                                    log_ratio(range, loss.reference_log_probabilities, chosen + 1));
  const float pairs = static_cast<float>(range.sequences / 2);
  // d(-log sigmoid(x)) / dx = -sigmoid(-x)
  const float slope = -sigmoid(-margin) * loss.beta / pairs;
  fill(range, chosen, slope, coefficient);
  fill(range, chosen + 1, -slope, coefficient);
  // -log sigmoid(x) = max(-x, 0) + log(1 + exp(-|x|))
  if (threadIdx.x == 0) value[chosen / 2] = (fmaxf(-margin, 0.0F) + log1pf(expf(-fabsf(margin)))) / pairs;
}

// A block a sequence.
__global__ void kto_kernel(SequenceRange range, Kto loss, float* value, float* coefficient) {
  const int64_t sequence = range.first + blockIdx.x;
  const float sign = loss.desirable[sequence] ? 1.0F : -1.0F;
  const float ratio = log_ratio(range, loss.reference_log_probabilities, sequence);
  const float utility = sigmoid((ratio - *loss.kl) * sign * loss.beta);
  const float share = 1.0F / static_cast<float>(range.sequences);
  fill(range, sequence, -sign * loss.beta * share * utility * (1.0F - utility), coefficient);
  if (threadIdx.x == 0) value[sequence] = (1.0F - utility) * share;
}

constexpr int kSumThreads = 1024;

__global__ void sum_values_kernel(const float* value, int64_t count, float* total) {
  float sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += kSumThreads) sum += value[i];
  sum = block_sum<kSumThreads>(sum);
  if (threadIdx.x == 0) *total = sum;
}

}  // namespace

void preference_coefficients(const SequenceRange& range, const Dpo& loss, float* value, float* coefficient,
                             Stream stream) {
  dpo_kernel<<<static_cast<unsigned int>(range.count / 2), kThreads, 0, stream>>>(range, loss, value, coefficient);
  check_launch("preference_coefficients (dpo)");
}

void preference_coefficients(const SequenceRange& range, const Kto& loss, float* value, float* coefficient,
                             Stream stream) {
  kto_kernel<<<static_cast<unsigned int>(range.count), kThreads, 0, stream>>>(range, loss, value, coefficient);
  check_launch("preference_coefficients (kto)");
}

void sum_values(const float* value, int64_t count, float* total, Stream stream) {
  sum_values_kernel<<<1, kSumThreads, 0, stream>>>(value, count, total);
  check_launch("sum_values");
}

}  // namespace regather::kernels
