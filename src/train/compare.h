// How far a tensor is from what it should be.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace regather::train {

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

// How much of the allowance an update uses: `tolerance` of its norm, and `rounding` (the unit roundoff of the parameter
// that it went into) of that parameter's.
double update_share(const at::Tensor& before, const at::Tensor& after, const at::Tensor& want, double tolerance,
                    double rounding);

// The same for equal bytes and no other, in practice.
uint64_t digest(const at::Tensor& tensor, uint64_t seed);

}  // namespace regather::train
