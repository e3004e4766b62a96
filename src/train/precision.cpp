#include "train/precision.h"

#include <cmath>

namespace regather::train {

Precision precision(const Case& c, int64_t layers) {
  constexpr double kFloatRounding = 0x1.0p-24;
  constexpr double kBFloatRounding = 0x1.0p-9;
  if (c.dtype == DType::fp32) return {at::kFloat, at::kFloat, 1e-5, kFloatRounding};
  const double tolerance = 8 * std::sqrt(1.0 + static_cast<double>(layers)) * 0x1.0p-8;
  // FSDP2's mixed-precision policy shards float32 parameters and gathers them as bfloat16.
  if (c.backend == Backend::fsdp2) return {at::kFloat, at::kBFloat16, tolerance, kFloatRounding};
  return {at::kBFloat16, at::kBFloat16, tolerance, kBFloatRounding};
}

}  // namespace regather::train
