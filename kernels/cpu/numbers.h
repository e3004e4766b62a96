// Numbers of any dtype as floats, and back, rounded to the nearest.
#pragma once

#include <cstdint>

#include "kernels/problem.h"

namespace regather::kernels::cpu {

// out[i] = values[i], of values beginning with element `first`.
void widen(const void* values, Dtype dtype, int64_t first, int64_t count, float* out);
void narrow(const float* values, int64_t count, Dtype dtype, void* out, int64_t first);
// out[i] = out[i] + values[i]
void add_narrow(const float* values, int64_t count, Dtype dtype, void* out, int64_t first);

}  // namespace regather::kernels::cpu
