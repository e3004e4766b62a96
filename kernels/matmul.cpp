#include "kernels/matmul.h"

#include <cublasLt.h>

#include <string>
#include <vector>

#include "kernels/cuda_check.cuh"
#include "kernels/product_sm90.h"
#include "kernels/trial.h"

namespace regather::kernels {
namespace {

void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) throw Error(std::string(what) + ": " + cublasLtGetStatusString(status));
}

constexpr int kSuggestions = 16;

}  // namespace

// cuBLASLt is column-major: it is asked for out^T = right^T left^T.
struct Products::Plan {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t right = nullptr;
  cublasLtMatrixLayout_t left = nullptr;
  cublasLtMatrixLayout_t out = nullptr;
  std::vector<cublasLtMatmulHeuristicResult_t> found;
  std::unique_ptr<Trial> trial;  // of what was found, then of our own kernels

  Plan(cublasLtHandle_t handle, const Product& product) {
    check(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
    const cublasOperation_t none = CUBLAS_OP_N;
    const cublasOperation_t of_left = product.left_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    check(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSA, &none, sizeof none), "TRANSA");
    check(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSB, &of_left, sizeof of_left), "TRANSB");
    const auto m = static_cast<uint64_t>(product.columns);
    const auto n = static_cast<uint64_t>(product.rows);
    const auto k = static_cast<uint64_t>(product.inner);
    const cudaDataType_t out_type = product.out_dtype == Dtype::fp32 ? CUDA_R_32F : CUDA_R_16BF;
    check(cublasLtMatrixLayoutCreate(&right, CUDA_R_16BF, m, k, product.columns), "cublasLtMatrixLayoutCreate");
    check(cublasLtMatrixLayoutCreate(&left, CUDA_R_16BF, product.left_transposed ? n : k,
                                     product.left_transposed ? k : n, product.left_pitch),
          "cublasLtMatrixLayoutCreate");
    check(cublasLtMatrixLayoutCreate(&out, out_type, m, n, product.columns), "cublasLtMatrixLayoutCreate");
    cublasLtMatmulPreference_t preference = nullptr;
    check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    const size_t bytes = kProductWorkspace;
    check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
                                               sizeof bytes),
          "MAX_WORKSPACE_BYTES");
    found.resize(kSuggestions);
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle, operation, right, left, out, out, preference,
                                                                 kSuggestions, found.data(), &count);
    cublasLtMatmulPreferenceDestroy(preference);
    check(status, "cublasLtMatmulAlgoGetHeuristic");
    require(count > 0, "cuBLASLt has no product for these sizes");
    found.resize(static_cast<size_t>(count));
    trial = std::make_unique<Trial>(count + sm90::product_kernels(product));
  }
  ~Plan() {
    cublasLtMatrixLayoutDestroy(out);
    cublasLtMatrixLayoutDestroy(left);
    cublasLtMatrixLayoutDestroy(right);
    cublasLtMatmulDescDestroy(operation);
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
};

Products::Products() {
  cublasLtHandle_t handle = nullptr;
  check(cublasLtCreate(&handle), "cublasLtCreate");
  handle_ = handle;
}

Products::~Products() {
  plans_.clear();
  cublasLtDestroy(static_cast<cublasLtHandle_t>(handle_));
}

Products::Plan& Products::plan(const Product& product) {
  const Key key{product.rows,      product.columns,   product.inner, product.left_pitch, product.left_transposed,
                product.out_dtype, product.accumulate};
  std::unique_ptr<Plan>& plan = plans_[key];
  if (plan == nullptr) plan = std::make_unique<Plan>(static_cast<cublasLtHandle_t>(handle_), product);
  return *plan;
}

void Products::multiply(const Product& product, bool deterministic, void* workspace, Stream stream) {
  const Plan& used = plan(product);
  const auto suggested = [&](size_t suggestion) {
    const float alpha = 1;
    const float beta = product.accumulate ? 1 : 0;
    return cublasLtMatmul(static_cast<cublasLtHandle_t>(handle_), used.operation, &alpha, product.right, used.right,
                          product.left, used.left, &beta, product.out, used.out, product.out, used.out,
                          &used.found[suggestion].algo, workspace, kProductWorkspace, stream);
  };
  if (deterministic) return check(suggested(0), "cublasLtMatmul");
  while (true) {
    const int way = used.trial->next();
    const auto own = way - static_cast<int>(used.found.size());
    used.trial->begin(stream);
    const bool done = own < 0 ? suggested(static_cast<size_t>(way)) == CUBLAS_STATUS_SUCCESS
                              : sm90::multiply(own, product, workspace, kProductWorkspace, stream);
    if (done) return used.trial->end(way, stream);
    require(way > 0, "cuBLASLt refuses its own first suggestion");
    used.trial->exclude(way);
  }
}

}  // namespace regather::kernels
