// What backward does with gradients that forward left.
#pragma once

#include <cstdint>

#include "kernels/linear_loss.h"

namespace regather::kernels {

// values[i] *= *by; nothing is read or written where *by is 1. `by` is on the device.
void scale_gradient(void* values, int64_t count, Dtype dtype, const float* by, Stream stream);

}  // namespace regather::kernels
