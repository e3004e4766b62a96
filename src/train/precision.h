// What a case's dtype means: how parameters are stored and used, and how far results may be from float64.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>

#include "case/case.h"

namespace regather::train {

struct Precision {
  c10::ScalarType stored;    // of the parameters that the model is built with
  c10::ScalarType computed;  // of hidden states and logits; FSDP2 stores float32 and casts as it gathers
  double tolerance;          // relative L2 error of a gradient, and of a loss
  double rounding;           // unit roundoff of `stored`
};

// float32: 1e-5 (interfaces.md; the real packages stay under 2e-6). bfloat16: 8 sqrt(1 + layers) 2^-8. Each layer adds
// roundings of 2^-9 that are independent of the others', so that their norm grows with the root of the depth; the
// factor leaves a quarter more than the real packages' worst on the card (0.043 at two layers, truth-table.md).
Precision precision(const Case& c, int64_t layers);

}  // namespace regather::train
