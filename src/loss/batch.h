// The card's batches (truth-table.md): uneven lengths, first positions masked, another batch on each rank and step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "case/case.h"

namespace regather::loss {

// Labels at masked positions.
constexpr int64_t kIgnore = -100;

struct Batch {
  at::Tensor input_ids;  // [B, T] int64
  at::Tensor labels;     // [B, T] int64, kIgnore where masked; position t is predicted from t - 1

  // grpo. The log-probabilities are given beforehand, not computed in the step: [B, T - 1] float64, 0 where masked.
  at::Tensor advantages;  // [B] float64, one a sequence
  at::Tensor old_log_probabilities;
  at::Tensor reference_log_probabilities;

  // kto.
  at::Tensor desirable;          // [B] bool
  at::Tensor mismatched_ids;     // [B, T] int64: the same prompts with other completions, for the KL term
  at::Tensor mismatched_labels;  // [B, T]
};

Batch to(const Batch& batch, at::Device device);

struct BatchShape {
  int64_t sequences = 4;
  int64_t length = 12;
  int64_t prompt = 3;  // first positions of each sequence, masked
  int64_t vocab = 256;
};

// The same on every machine, transport and launch: from seed, rank and step alone. Every batch has the same number of
// valid tokens, so that ranks cut it into the same number of chunks.
Batch make_batch(const BatchShape& shape, uint64_t seed, int rank, int step);

// The same for a loss, less what a model has to give (old and reference log-probabilities, mismatched completions).
// grpo: advantages of both signs; kto: desirable and undesirable sequences in turn; dpo: the first half chosen, the
// second rejected, with the same prompts in the same order. Other than sft's, rank 1's batch of step 1 has one sequence
// without any valid token.
Batch make_batch(Loss loss, const BatchShape& shape, uint64_t seed, int rank, int step);

// `batch`'s prompts with completions drawn anew, of the same lengths: candidate number `candidate`, labels unchanged in
// where they are masked. Input ids, from which labels follow.
at::Tensor other_completions(const Batch& batch, const BatchShape& shape, uint64_t seed, int rank, int step,
                             int candidate);

}  // namespace regather::loss
