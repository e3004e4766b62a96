#include "kernels/matmul.h"

#include <cublasLt.h>

#include <algorithm>
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

cudaDataType_t type_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::bf16:
      return CUDA_R_16BF;
    case Dtype::fp16:
      return CUDA_R_16F;
    case Dtype::fp32:
      return CUDA_R_32F;
  }
  throw Error("no such dtype");
}

// Of the suggestions for an accumulating product the one with tiles of 128 x 160, which hides what it adds to and has
// been fastest wherever it was on trial; the first one does not expect `out +=`.
size_t without_trial(const Product& product, const std::vector<cublasLtMatmulHeuristicResult_t>& found) {
  for (size_t i = 0; product.accumulate && i < found.size(); ++i) {
    uint32_t tile = 0;
    size_t written = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoConfigGetAttribute(&found[i].algo, CUBLASLT_ALGO_CONFIG_TILE_ID,
                                                                       &tile, sizeof tile, &written);
    if (status == CUBLAS_STATUS_SUCCESS && tile == CUBLASLT_MATMUL_TILE_128x160) return i;
  }
  return 0;
}

// The power of two that an address is a multiple of, 256 at most.
int alignment_of(const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer) | 256U;
  return static_cast<int>(address & (~address + 1));
}

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
    const cublasOperation_t of_right = product.right_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t of_left = product.left_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    check(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSA, &of_right, sizeof of_right), "TRANSA");
    check(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSB, &of_left, sizeof of_left), "TRANSB");
    const auto m = static_cast<uint64_t>(product.columns);
    const auto n = static_cast<uint64_t>(product.rows);
    const auto k = static_cast<uint64_t>(product.inner);
    if (product.alpha != nullptr) {
      const cublasLtPointerMode_t mode = CUBLASLT_POINTER_MODE_DEVICE;
      check(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_POINTER_MODE, &mode, sizeof mode), "MODE");
    }
    const cudaDataType_t in_type = type_of(product.in_dtype);
    const cudaDataType_t out_type = type_of(product.out_dtype);
    check(
        cublasLtMatrixLayoutCreate(&right, in_type, product.right_transposed ? k : m, product.right_transposed ? m : k,
                                   product.right_transposed ? product.inner : product.columns),
        "cublasLtMatrixLayoutCreate");
    check(cublasLtMatrixLayoutCreate(&left, in_type, product.left_transposed ? n : k, product.left_transposed ? k : n,
                                     product.left_pitch),
          "cublasLtMatrixLayoutCreate");
    check(cublasLtMatrixLayoutCreate(&out, out_type, m, n, product.columns), "cublasLtMatrixLayoutCreate");
    cublasLtMatmulPreference_t preference = nullptr;
    check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    const size_t bytes = kProductWorkspace;
    check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
                                               sizeof bytes),
          "MAX_WORKSPACE_BYTES");
    const auto aligned = [&](cublasLtMatmulPreferenceAttributes_t attribute, const void* pointer) {
      const auto alignment = static_cast<uint32_t>(alignment_of(pointer));
      check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &alignment, sizeof alignment), "MIN_ALIGNMENT");
    };
    aligned(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, product.right);
    aligned(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, product.left);
    aligned(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, product.out);
    aligned(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, product.out);
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
  const Key key{product.rows,
                product.columns,
                product.inner,
                product.left_pitch,
                product.left_transposed,
                product.right_transposed,
                product.in_dtype,
                product.out_dtype,
                product.accumulate,
                product.alpha != nullptr,
                alignment_of(product.left),
                alignment_of(product.right),
                alignment_of(product.out)};
  std::unique_ptr<Plan>& plan = plans_[key];
  if (plan == nullptr) plan = std::make_unique<Plan>(static_cast<cublasLtHandle_t>(handle_), product);
  return *plan;
}

void Products::multiply(const Product& product, bool deterministic, void* workspace, Stream stream) {
  const Plan& used = plan(product);
  const auto suggested = [&](size_t suggestion) {
    const float one = 1;
    const float zero_or_one = product.accumulate ? 1 : 0;
    const float* alpha = product.alpha != nullptr ? product.alpha : &one;
    const float* beta = product.alpha != nullptr ? product.beta : &zero_or_one;
    return cublasLtMatmul(static_cast<cublasLtHandle_t>(handle_), used.operation, alpha, product.right, used.right,
                          product.left, used.left, beta, product.out, used.out, product.out, used.out,
                          &used.found[suggestion].algo, workspace, kProductWorkspace, stream);
  };
  if (deterministic) return check(suggested(without_trial(product, used.found)), "cublasLtMatmul");
  while (true) {
    const int way = used.trial->next();
    const auto own = way - static_cast<int>(used.found.size());
    used.trial->begin(stream);
    const bool done = own < 0 ? suggested(static_cast<size_t>(way)) == CUBLAS_STATUS_SUCCESS
                              : sm90::multiply(own, product, workspace, kProductWorkspace, stream);
    if (done) return used.trial->end(way, stream);
    require(used.trial->exclude(way), "the products' library refuses its own suggestion");
  }
}

bool Products::settled() const {
  return std::all_of(plans_.begin(), plans_.end(), [](const auto& entry) { return entry.second->trial->settled(); });
}

std::string Products::describe() const {
  std::string text;
  for (const auto& [key, plan] : plans_) {
    const int way = plan->trial->chosen();
    const auto suggestions = static_cast<int>(plan->found.size());
    text += std::to_string(std::get<0>(key)) + " x " + std::to_string(std::get<1>(key)) + ", sum of " +
            std::to_string(std::get<2>(key)) + ": " + (way < suggestions ? "suggestion " : "own kernel ") +
            std::to_string(way < suggestions ? way : way - suggestions) + "\n";
  }
  return text;
}

}  // namespace regather::kernels
