#include "loss/batch.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>

#include <algorithm>

#include "base/random.h"

namespace regather::loss {
namespace {

// Streams of random numbers beside the tokens' (rank * 1000 + step).
constexpr uint64_t kAdvantages = 1'000'000'000;
constexpr uint64_t kCompletions = 2'000'000'000;

}  // namespace

Batch to(const Batch& batch, at::Device device) {
  Batch moved = batch;
  for (at::Tensor* tensor :
       {&moved.input_ids, &moved.labels, &moved.advantages, &moved.old_log_probabilities,
        &moved.reference_log_probabilities, &moved.desirable, &moved.mismatched_ids, &moved.mismatched_labels}) {
    if (tensor->defined()) *tensor = tensor->to(device);
  }
  return moved;
}

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

Batch make_batch(Loss loss, const BatchShape& shape, uint64_t seed, int rank, int step) {
  Batch batch = make_batch(shape, seed, rank, step);
  if (loss == Loss::sft) return batch;
  if (loss == Loss::dpo) {
    const int64_t pairs = shape.sequences / 2;
    const at::Tensor prompts = batch.input_ids.narrow(1, 0, shape.prompt);
    prompts.narrow(0, pairs, pairs).copy_(prompts.narrow(0, 0, pairs));
  }
  if (rank == 1 && step == 1) {
    const int64_t last = shape.sequences - 1;
    batch.labels[last].fill_(kIgnore);
    batch.input_ids[last].narrow(0, shape.prompt, shape.length - shape.prompt).zero_();
  }
  if (loss == Loss::kto) batch.desirable = at::arange(rank, rank + shape.sequences).remainder(2).eq(0);
  if (loss == Loss::grpo) {
    Random random(seed, kAdvantages + static_cast<uint64_t>(rank) * 1000 + static_cast<uint64_t>(step));
    batch.advantages = at::empty({shape.sequences}, at::kDouble);
    auto* advantages = batch.advantages.mutable_data_ptr<double>();
    for (int64_t row = 0; row < shape.sequences; ++row) {
      advantages[row] = (row % 2 == 0 ? 1 : -1) * (0.5 + random.uniform());
    }
  }
  return batch;
}

at::Tensor other_completions(const Batch& batch, const BatchShape& shape, uint64_t seed, int rank, int step,
                             int candidate) {
  const uint64_t stream = static_cast<uint64_t>(rank) * 1000 + static_cast<uint64_t>(step);
  Random random(seed, kCompletions + stream * 1000 + static_cast<uint64_t>(candidate));
  at::Tensor ids = batch.input_ids.clone();
  auto* id = ids.mutable_data_ptr<int64_t>();
  const auto* label = batch.labels.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < ids.numel(); ++i) {
    const int64_t token = random.below(shape.vocab);
    if (label[i] != kIgnore) id[i] = token;
  }
  return ids;
}

}  // namespace regather::loss
