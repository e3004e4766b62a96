// What stands between the fused product and the gradients' products, for the rows of one chunk: the sums, the
// log-probabilities, the loss's coefficient of each row, and with it the row's scale.
//
// With c = d loss / d log p(target) and S the row's sum, the gradient by the logits is -c p + c [target]
// = s (E - S [target]) with s = -c / S. So the target's element of E becomes E - S, the rows of hidden states are
// scaled by s for the weight's gradient, and the rows of the hidden states' gradient are scaled by s when it is done.
// E - S is taken from the unrounded E, since the difference may be small; what its own rounding loses is added to the
// hidden states' gradient, most of whose error it would otherwise be.
#pragma once

#include <cstdint>

#include "kernels/linear_loss.h"

namespace regather::kernels {

// Rows of a chunk: pointers to the chunk's first element.
struct ChunkRows {
  int64_t rows = 0;
  int64_t width = 0;
  int64_t vocab = 0;
  const void* hidden = nullptr;  // [rows, width] bf16
  const void* weight = nullptr;
  const void* bias = nullptr;
  const int32_t* kept = nullptr;
  const int32_t* kept_target = nullptr;
  const float* negative_shift = nullptr;
  float* target_exponent = nullptr;     // of repaired rows written anew
  const float* partial_sums = nullptr;  // [partials, partial_pitch], the pitch a multiple of 8
  int64_t partials = 0;
  int64_t partial_pitch = 0;
  void* exponentials = nullptr;  // [rows, pitch] bf16
  int64_t pitch = 0;
  Defect defect = Defect::none;

  float* sum = nullptr;                    // [rows]
  float* log_probability = nullptr;        // [rows]
  float* all_log_probabilities = nullptr;  // [N], by row number; or null
  float* scale = nullptr;                  // [rows]
  float* lost = nullptr;                   // [rows]: scale * (E - S, less what bf16 holds of it) at the target
  void* scaled = nullptr;                  // [rows, width] bf16: scale * hidden
};

// The rows' shares of the loss, and everything that ChunkRows has to give. A row whose sum shows that the shift was too
// far below the row's maximum is computed again with the maximum as its shift. value [rows].
void finish_rows(const ChunkRows& chunk, const Sft& loss, float* value, int64_t kept_in_all, Stream stream);
// `start` [sequences + 1] of all sequences.
void finish_rows(const ChunkRows& chunk, const Grpo& loss, float* value, int64_t sequences, const int32_t* start,
                 Stream stream);

// The same for losses on whole sequences, in three steps: sums and log-probabilities; the sequences' coefficients;
// scales.
void sum_rows(const ChunkRows& chunk, Stream stream);
void scale_rows(const ChunkRows& chunk, const float* coefficient, Stream stream);

// gradient[kept[row]] = scale[row] * product[row] + lost[row] * weight[target]; product [rows, width] fp32, gradient
// [N, width] bf16.
void scatter_rows(const ChunkRows& chunk, const float* product, void* gradient, Stream stream);

// gradient[v] (+)= sum over rows of scale[row] * E[row][v].
void add_bias_gradient(const ChunkRows& chunk, float* gradient, bool accumulate, Stream stream);

}  // namespace regather::kernels
