// The fused product: E = exp(hidden weight^T + bias - shift) in bf16, with its row sums in fp32, before any rounding.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/linear_loss.h"

namespace regather::kernels {

// A partial sum is of `columns` columns of a row; those of up to the next multiple of `rows` rows are written.
struct SumTile {
  int64_t rows;
  int64_t columns;
};
SumTile sum_tile();

struct ExpProduct {
  int64_t rows = 0;
  int64_t width = 0;  // a multiple of 8
  int64_t vocab = 0;
  const void* hidden = nullptr;  // [rows, width] bf16
  const void* weight = nullptr;  // [vocab, width] bf16
  const void* bias = nullptr;    // [vocab] bf16, or null
  // [rows]: -shift log2(e), so that E = 2^(logit log2(e) + this).
  const float* negative_shift = nullptr;
  void* exponentials = nullptr;  // [rows, pitch] bf16; null: only the sums
  int64_t pitch = 0;             // a multiple of 8
  // [divide_up(vocab, tile.columns), round_up(rows, tile.rows)]
  float* partial_sums = nullptr;
};

void exp_product(const ExpProduct& problem, Stream stream);

}  // namespace regather::kernels
