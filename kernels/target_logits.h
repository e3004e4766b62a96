// The targets' logits as exact fp32 dot products, and from them the shift of each row: exp(logit - shift) neither
// overflows nor loses the target unless another logit is more than 120 above the target's.
#pragma once

#include <cstdint>

#include "kernels/kept_rows.h"
#include "kernels/linear_loss.h"

namespace regather::kernels {

// shift = target's logit + this.
constexpr float kShiftAboveTarget = 40.0F;

struct TargetLogits {
  int64_t rows_at_most = 0;
  int64_t width = 0;
  const void* hidden = nullptr;  // [N, width] bf16
  const void* weight = nullptr;  // [V, width] bf16
  const void* bias = nullptr;    // [V] bf16, or null
  const int32_t* kept = nullptr;
  const int32_t* kept_target = nullptr;
  const KeptSummary* summary = nullptr;  // how many are kept is read on the device

  // One a kept row: -shift log2(e), and the target's logit log2(e) plus that: the power of two that its E is.
  float* negative_shift = nullptr;
  float* target_exponent = nullptr;
};

void target_logits(const TargetLogits& problem, Stream stream);

// [count, width] of the rows in `kept`; width a multiple of 8.
void gather_rows(const void* hidden, const int32_t* kept, int64_t count, int64_t width, void* gathered, Stream stream);

}  // namespace regather::kernels
