// The two products of the gradients: cuBLASLt's several suggestions and some kernels of our own, whichever is fastest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "kernels/linear_loss.h"

namespace regather::kernels {

// Row-major: out [rows, columns] = left [rows, inner] right [inner, columns], plus out where `accumulate`.
struct Product {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t inner = 0;
  Dtype in_dtype = Dtype::bf16;
  const void* left = nullptr;  // rows `left_pitch` apart; transposed: [inner, rows]
  int64_t left_pitch = 0;
  bool left_transposed = false;
  const void* right = nullptr;  // [inner, columns], dense; transposed: [columns, inner]
  bool right_transposed = false;
  void* out = nullptr;  // [rows, columns] dense
  Dtype out_dtype = Dtype::fp32;
  bool accumulate = false;
  // On the device: out = alpha left right + beta out; null: 1, and 0 or 1. With alpha beta is given too.
  const float* alpha = nullptr;
  const float* beta = nullptr;
};

// What cuBLASLt and the kernels may use for themselves.
constexpr size_t kProductWorkspace = size_t{30} << 20U;

class Products {
 public:
  Products();
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  // workspace: kProductWorkspace bytes.
  // With `deterministic` the same suggestion each time; otherwise the first calls of a shape try all.
  void multiply(const Product& product, bool deterministic, void* workspace, Stream stream);

  // Each product so far has come to the way that it will go on with.
  bool settled() const;
  // The products so far, and which way each has come to: cuBLASLt's suggestion or our own kernel of that number.
  std::string describe() const;

 private:
  struct Plan;
  using Key = std::tuple<int64_t, int64_t, int64_t, int64_t, bool, bool, Dtype, Dtype, bool, bool, int, int, int>;
  Plan& plan(const Product& product);

  void* handle_ = nullptr;
  std::map<Key, std::unique_ptr<Plan>> plans_;
};

}  // namespace regather::kernels
