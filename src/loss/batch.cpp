#include "loss/batch.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>

#include <algorithm>

#include "base/random.h"

namespace regather::loss {

Batch make_batch(const BatchShape& shape, uint64_t seed, int rank, int step) {
  Random random(seed, static_cast<uint64_t>(rank) * 1000 + static_cast<uint64_t>(step));
  Batch batch;
  batch.input_ids = at::empty({shape.sequences, shape.length}, at::kLong);
  batch.labels = at::full_like(batch.input_ids, kIgnore);
  auto* ids = batch.input_ids.mutable_data_ptr<int64_t>();
  auto* labels = batch.labels.mutable_data_ptr<int64_t>();
  for (int64_t row = 0; row < shape.sequences; ++row) {
    // Lengths T, T-2, T-3, T-5 in an order that turns with rank and step; at least one token is predicted.
    constexpr int64_t shorter[] = {0, 2, 3, 5};
    const int64_t length = std::max(
        shape.prompt + 1, shape.length - shorter[(row + rank + step) % static_cast<int64_t>(std::size(shorter))]);
    for (int64_t t = 0; t < shape.length; ++t) {
      const int64_t token = random.below(shape.vocab);
      ids[row * shape.length + t] = t < length ? token : 0;
      if (t >= shape.prompt && t < length) labels[row * shape.length + t] = token;
    }
  }
  return batch;
}

}  // namespace regather::loss
