// The plain path's work on rows: logits in fp32 exist for one chunk, whatever the operands' dtype and width.
#pragma once

#include <cstdint>

#include "kernels/linear_loss.h"

namespace regather::kernels {

// Pointers to the chunk's first element.
struct PlainRows {
  Dtype dtype = Dtype::fp32;
  int64_t rows = 0;
  int64_t width = 0;
  int64_t vocab = 0;
  const float* logits = nullptr;  // [rows, vocab], without the bias
  const void* bias = nullptr;     // [vocab] or null
  const void* hidden = nullptr;   // [rows, width]
  const int32_t* kept = nullptr;
  const int32_t* kept_target = nullptr;

  float* log_probability = nullptr;        // [rows]
  float* all_log_probabilities = nullptr;  // [N], by row number; or null
  Defect defect = Defect::none;
  float* stale_sum = nullptr;  // [rows], of Defect::stale_sum: the chunk before's, then this one's; else null
  void* by_logits = nullptr;   // [rows, vocab] of dtype: [target] - p; null: not wanted
  // [3]: the largest |coefficient| of the chunk, 0, 1. Hidden states are scaled by coefficient / largest, which no
  // dtype is too narrow for, and their product by the largest.
  float* factors = nullptr;
  void* scaled = nullptr;  // [rows, width] of dtype
};

void plain_gather(const Linear& linear, const int32_t* kept, int64_t count, void* gathered, Stream stream);
// log_probability and by_logits.
void plain_rows(const PlainRows& chunk, Stream stream);
// value and coefficient [rows].
void plain_coefficients(const PlainRows& chunk, const Sft& loss, float* value, float* coefficient, int64_t kept_in_all,
                        Stream stream);
void plain_coefficients(const PlainRows& chunk, const Grpo& loss, float* value, float* coefficient, int64_t sequences,
                        const int32_t* start, Stream stream);
// Defect::scaled_twice.
void plain_scale_twice(float* coefficient, int64_t rows, Stream stream);
// factors and scaled.
void plain_scale(const PlainRows& chunk, const float* coefficient, Stream stream);
// gradient[kept[row]] = coefficient[row] product[row]; product [rows, width] fp32, gradient [N, width] of dtype.
void plain_scatter(const PlainRows& chunk, const float* coefficient, const float* product, void* gradient,
                   Stream stream);
void plain_bias_gradient(const PlainRows& chunk, const float* coefficient, float* gradient, bool accumulate,
                         Stream stream);

}  // namespace regather::kernels
