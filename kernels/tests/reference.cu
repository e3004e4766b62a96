#include "kernels/tests/reference.cuh"

#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>

namespace regather::kernels::testing {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kChunk = 1024;

void check(cublasStatus_t status) { require(status == CUBLAS_STATUS_SUCCESS, "cuBLAS failed in the reference"); }

__global__ void widen_kernel(const __nv_bfloat16* in, double* out, int64_t count) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += stride) {
    out[i] = __bfloat162float(in[i]);
  }
}

__device__ double block_reduced(double value, bool maximum) {
  __shared__ double partial[kThreads];
  __syncthreads();
  partial[threadIdx.x] = value;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) {
      const double other = partial[threadIdx.x + half];
      partial[threadIdx.x] = maximum ? fmax(partial[threadIdx.x], other) : partial[threadIdx.x] + other;
    }
    __syncthreads();
  }
  return partial[0];
}

// A block a row: log p(target); where `coefficient` is given, logits become the gradient by the logits.
__global__ void row_kernel(double* logits, int64_t vocab, const __nv_bfloat16* bias, const int64_t* targets,
                           int64_t ignore, const double* coefficient, double* log_probability) {
  double* row = logits + blockIdx.x * vocab;
  const int64_t target = targets[blockIdx.x];
  double largest = -INFINITY;
  for (int64_t v = threadIdx.x; v < vocab; v += kThreads) {
    if (bias != nullptr) row[v] += static_cast<double>(__bfloat162float(bias[v]));
    largest = fmax(largest, row[v]);
  }
  largest = block_reduced(largest, true);
  double sum = 0;
  for (int64_t v = threadIdx.x; v < vocab; v += kThreads) sum += exp(row[v] - largest);
  const double logsum = largest + log(block_reduced(sum, false));
  if (log_probability != nullptr && threadIdx.x == 0) {
    log_probability[blockIdx.x] = target == ignore ? 0 : row[target] - logsum;
  }
  if (coefficient == nullptr) return;
  const double c = target == ignore ? 0 : coefficient[blockIdx.x];
  for (int64_t v = threadIdx.x; v < vocab; v += kThreads) {
    row[v] = c == 0 ? 0 : c * ((v == target ? 1 : 0) - exp(row[v] - logsum));
  }
}

__global__ void column_sum_kernel(const double* rows, int64_t count, int64_t vocab, double* sums) {
  const int64_t v = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (v >= vocab) return;
  for (int64_t row = 0; row < count; ++row) sums[v] += rows[row * vocab + v];
}

template <class T>
__global__ void error_kernel(const T* a, const double* b, int64_t count, double* sums) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  double difference = 0;
  double size = 0;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += stride) {
    const double d = static_cast<double>(static_cast<float>(a[i])) - b[i];
    difference += d * d;
    size += b[i] * b[i];
  }
  difference = block_reduced(difference, false);
  size = block_reduced(size, false);
  if (threadIdx.x == 0) {
    atomicAdd(sums, difference);
    atomicAdd(sums + 1, size);
  }
}

unsigned int blocks_for(int64_t count) {
  return static_cast<unsigned int>(std::min<int64_t>(divide_up(std::max<int64_t>(count, 1), kThreads), 4096));
}

template <class T>
double error(const T* a, const Buffer<double>& b) {
  if (b.count() == 0) return 0;
  Buffer<double> sums(2);
  sums.fill_bytes(0);
  error_kernel<<<blocks_for(b.count()), kThreads>>>(a, b.get(), b.count(), sums.get());
  const std::vector<double> host = sums.host();
  return host[1] > 0 ? std::sqrt(host[0] / host[1]) : std::sqrt(host[0]);
}

// One pass: with coefficients the gradients, without them the log-probabilities.
struct Pass {
  const Linear& linear;
  cublasHandle_t handle = nullptr;
  Buffer<double> weight;
  Buffer<double> hidden;
  Buffer<double> logits;

  explicit Pass(const Linear& of)
      : linear(of),
        weight(of.vocab * of.width),
        hidden(std::min(kChunk, of.rows) * of.width),
        logits(std::min(kChunk, of.rows) * of.vocab) {
    check(cublasCreate(&handle));
    widen_kernel<<<blocks_for(weight.count()), kThreads>>>(static_cast<const __nv_bfloat16*>(of.weight), weight.get(),
                                                           weight.count());
  }
  ~Pass() { cublasDestroy(handle); }

  void run(const double* coefficient, double* log_probability, Reference* out) {
    const auto width = static_cast<int>(linear.width);
    const auto vocab = static_cast<int>(linear.vocab);
    const double one = 1;
    const double zero = 0;
    for (int64_t first = 0; first < linear.rows; first += kChunk) {
      const auto rows = static_cast<int>(std::min(kChunk, linear.rows - first));
      widen_kernel<<<blocks_for(rows * linear.width), kThreads>>>(
          static_cast<const __nv_bfloat16*>(linear.hidden) + first * linear.width, hidden.get(), rows * linear.width);
      check(cublasDgemm(handle, CUBLAS_OP_T, CUBLAS_OP_N, vocab, rows, width, &one, weight.get(), width, hidden.get(),
                        width, &zero, logits.get(), vocab));
      row_kernel<<<static_cast<unsigned int>(rows), kThreads>>>(
          logits.get(), linear.vocab, static_cast<const __nv_bfloat16*>(linear.bias), linear.targets + first,
          linear.ignore_index, coefficient != nullptr ? coefficient + first : nullptr,
          log_probability != nullptr ? log_probability + first : nullptr);
      if (out == nullptr) continue;
      check(cublasDgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, width, rows, vocab, &one, weight.get(), width, logits.get(),
                        vocab, &zero, out->hidden_gradient.get() + first * linear.width, width));
      check(cublasDgemm(handle, CUBLAS_OP_N, CUBLAS_OP_T, width, vocab, rows, &one, hidden.get(), width, logits.get(),
                        vocab, &one, out->weight_gradient.get(), width));
      if (linear.bias != nullptr) {
        column_sum_kernel<<<static_cast<unsigned int>(divide_up(linear.vocab, kThreads)), kThreads>>>(
            logits.get(), rows, linear.vocab, out->bias_gradient.get());
      }
    }
    regather::kernels::check(cudaDeviceSynchronize(), "reference");
  }
};

}  // namespace

std::vector<double> reference_log_probabilities(const Linear& linear) {
  if (linear.rows == 0) return {};
  Pass pass(linear);
  Buffer<double> lp(linear.rows);
  pass.run(nullptr, lp.get(), nullptr);
  return lp.host();
}

Reference reference(const Linear& linear, LossName loss, const HostParameters& parameters) {
  Reference out;
  out.hidden_gradient = Buffer<double>(linear.rows * linear.width);
  out.weight_gradient = Buffer<double>(linear.vocab * linear.width);
  out.bias_gradient = Buffer<double>(linear.bias != nullptr ? linear.vocab : 0);
  out.weight_gradient.fill_bytes(0);
  out.bias_gradient.fill_bytes(0);
  if (linear.rows == 0) return out;
  std::vector<int64_t> targets(static_cast<size_t>(linear.rows));
  regather::kernels::check(cudaMemcpy(targets.data(), linear.targets, targets.size() * 8, cudaMemcpyDeviceToHost),
                           "targets");
  std::vector<bool> kept;
  for (const int64_t target : targets) kept.push_back(target != linear.ignore_index);
  Pass pass(linear);
  Buffer<double> lp(linear.rows);
  pass.run(nullptr, lp.get(), nullptr);
  out.log_probabilities = lp.host();
  const Coefficients found = coefficients(loss, parameters, out.log_probabilities, kept);
  out.loss = found.loss;
  const Buffer<double> coefficient(found.by_row);
  pass.run(coefficient.get(), nullptr, &out);
  return out;
}

double relative_error(const void* a, Dtype dtype, const Buffer<double>& b) {
  switch (dtype) {
    case Dtype::bf16:
      return error(static_cast<const __nv_bfloat16*>(a), b);
    case Dtype::fp16:
      return error(static_cast<const __half*>(a), b);
    case Dtype::fp32:
      return error(static_cast<const float*>(a), b);
  }
  return NAN;
}

}  // namespace regather::kernels::testing
