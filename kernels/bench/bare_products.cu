#include "kernels/bench/bare_products.cuh"

namespace regather::kernels::bench {
namespace {

void check(cublasStatus_t status) { require(status == CUBLAS_STATUS_SUCCESS, "cuBLAS failed in the bench"); }

constexpr int kThreads = 1024;

// softmax - [target], a block a row.
__global__ void by_logits_kernel(const __nv_bfloat16* logits, const int64_t* targets, int64_t vocab,
                                 __nv_bfloat16* by_logits) {
  const __nv_bfloat16* row = logits + blockIdx.x * vocab;
  float largest = -INFINITY;
  for (int64_t v = threadIdx.x; v < vocab; v += kThreads) largest = fmaxf(largest, __bfloat162float(row[v]));
  largest = block_max<kThreads>(largest);
  float sum = 0;
  for (int64_t v = threadIdx.x; v < vocab; v += kThreads) sum += expf(__bfloat162float(row[v]) - largest);
  sum = block_sum<kThreads>(sum);
  for (int64_t v = threadIdx.x; v < vocab; v += kThreads) {
    const float p = expf(__bfloat162float(row[v]) - largest) / sum;
    by_logits[blockIdx.x * vocab + v] = __float2bfloat16(v == targets[blockIdx.x] ? p - 1 : p);
  }
}

// As torch reserves for cuBLAS on this card.
constexpr int64_t kWorkspace = int64_t{32} << 20;

}  // namespace

BareProducts::BareProducts(const Linear& linear)
    : linear_(linear),
      logits_(linear.rows * linear.vocab),
      by_logits_(linear.rows * linear.vocab),
      hidden_gradient_(linear.rows * linear.width),
      weight_gradient_(linear.vocab * linear.width),
      workspace_(kWorkspace) {
  check(cublasCreate(&handle_));
  check(cublasSetWorkspace(handle_, workspace_.get(), kWorkspace));
  logits();
  by_logits_kernel<<<static_cast<unsigned int>(linear.rows), kThreads>>>(logits_.get(), linear.targets, linear.vocab,
                                                                         by_logits_.get());
  check_launch("by_logits");
}

BareProducts::~BareProducts() { cublasDestroy(handle_); }

namespace {
void product(cublasHandle_t handle, cublasOperation_t a_op, cublasOperation_t b_op, int64_t m, int64_t n, int64_t k,
             const void* a, int64_t lda, const void* b, int64_t ldb, void* c, int64_t ldc) {
  const float one = 1;
  const float zero = 0;
  check(cublasGemmEx(handle, a_op, b_op, static_cast<int>(m), static_cast<int>(n), static_cast<int>(k), &one, a,
                     CUDA_R_16BF, static_cast<int>(lda), b, CUDA_R_16BF, static_cast<int>(ldb), &zero, c, CUDA_R_16BF,
                     static_cast<int>(ldc), CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT_TENSOR_OP));
}
}  // namespace

void BareProducts::logits() {
  product(handle_, CUBLAS_OP_T, CUBLAS_OP_N, linear_.vocab, linear_.rows, linear_.width, linear_.weight, linear_.width,
          linear_.hidden, linear_.width, logits_.get(), linear_.vocab);
}

void BareProducts::hidden_gradient() {
  product(handle_, CUBLAS_OP_N, CUBLAS_OP_N, linear_.width, linear_.rows, linear_.vocab, linear_.weight, linear_.width,
          by_logits_.get(), linear_.vocab, hidden_gradient_.get(), linear_.width);
}

void BareProducts::weight_gradient() {
  product(handle_, CUBLAS_OP_N, CUBLAS_OP_T, linear_.width, linear_.vocab, linear_.rows, linear_.hidden, linear_.width,
          by_logits_.get(), linear_.vocab, weight_gradient_.get(), linear_.width);
}

}  // namespace regather::kernels::bench
