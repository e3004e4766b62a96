// Coefficients of the losses on whole sequences, and the sum of a loss's shares.
#pragma once

#include <cstdint>

#include "kernels/linear_loss.h"

namespace regather::kernels {

// Sequences of the order of work, from `first` on; pointers of all kept rows.
struct SequenceRange {
  int64_t first = 0;
  int64_t count = 0;
  int64_t sequences = 0;                   // in all
  const int32_t* start = nullptr;          // [sequences + 1]
  const int32_t* kept = nullptr;           // [kept]
  const float* log_probability = nullptr;  // [kept]
};

// value: one of each pair or sequence of the whole batch. coefficient [kept]: d loss / d log p, written for the range's
// rows.
void preference_coefficients(const SequenceRange& range, const Dpo& loss, float* value, float* coefficient,
                             Stream stream);
void preference_coefficients(const SequenceRange& range, const Kto& loss, float* value, float* coefficient,
                             Stream stream);

// In a fixed order.
void sum_values(const float* value, int64_t count, float* total, Stream stream);

}  // namespace regather::kernels
