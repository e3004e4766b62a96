// Group relative policy optimization (Shao et al. 2024, equation 3; TRL's loss_type "grpo"): mean over sequences of the
// mean over a sequence's tokens of -min(r A, clip(r, 1 - epsilon, 1 + epsilon) A) + beta kl. r is the ratio of a
// token's probability to its old one, A the sequence's advantage, kl the estimate exp(d) - d - 1 with d the reference's
// log-probability minus the policy's (Schulman's k3).
#pragma once

#include <ATen/core/Tensor.h>

#include "loss/batch.h"
#include "loss/fused_linear.h"

namespace regather::loss {

constexpr double kGrpoEpsilon = 0.2;
constexpr double kGrpoBeta = 0.04;

// From the formula. logits [B, T, V]; of the batch: labels, advantages, old_log_probabilities and
// reference_log_probabilities. A sequence without a token counts as zero. Scalar.
at::Tensor grpo_eager(const at::Tensor& logits, const Batch& batch);

// A sequence a chunk; reads the head directly, once.
at::Tensor grpo_fused(const HeadInput& policy, const Batch& batch);

// At how many valid tokens each side of the clip decides: the ratio above 1 + epsilon with a positive advantage, below
// 1 - epsilon with a negative one. log_probabilities [B, T - 1] of the policy.
struct ClippedTokens {
  int64_t above = 0;
  int64_t below = 0;
  int64_t valid = 0;
};
ClippedTokens grpo_clipped(const at::Tensor& log_probabilities, const Batch& batch);

}  // namespace regather::loss
