// The card's batches (truth-table.md): uneven lengths, first positions masked, another batch on each rank and step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace regather::loss {

// Labels at masked positions.
constexpr int64_t kIgnore = -100;

struct Batch {
  at::Tensor input_ids;  // [B, T] int64
  at::Tensor labels;     // [B, T] int64, kIgnore where masked; position t is predicted from t - 1
};

struct BatchShape {
  int64_t sequences = 4;
  int64_t length = 12;
  int64_t prompt = 3;  // first positions of each sequence, masked
  int64_t vocab = 256;
};

// The same on every machine, transport and launch: from seed, rank and step alone. Every batch has the same number of
// valid tokens, so that ranks cut it into the same number of chunks.
Batch make_batch(const BatchShape& shape, uint64_t seed, int rank, int step);

}  // namespace regather::loss
