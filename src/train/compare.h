// How far a tensor is from what it should be.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace regather::train {

// Relative L2 error that float32 gradients may have (interfaces.md; the real packages stay under 2e-6).
constexpr double kTolerance = 1e-5;

struct Difference {
  double relative_l2 = 0;  // |got - want| / |want|; |got| when want is zero
  double cosine = 1;
  double max_abs = 0;
  std::vector<int64_t> at;  // where max_abs is
  double got = 0;           // there
  double want = 0;
  int64_t nonfinite = 0;  // entries of got
};

// Shapes must be equal; both on the CPU. In float64.
Difference compare(const at::Tensor& got, const at::Tensor& want);

// How much of the allowance an update uses: 1e-5 of its norm, and the rounding of the float32 parameter that it went
// into, half a unit in the last place an entry.
double update_share(const at::Tensor& before, const at::Tensor& after, const at::Tensor& want);

// The same for equal bytes and no other, in practice.
uint64_t digest(const at::Tensor& tensor, uint64_t seed);

}  // namespace regather::train
