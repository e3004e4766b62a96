// Of the seeded faults (Defect in problem.h).
#pragma once

#include <cstdint>

namespace regather::kernels {

// What rows are padded to: a vocabulary that ends just behind a multiple of it has a pad of about as many.
constexpr int64_t kCountedPad = 64;

}  // namespace regather::kernels
