// Kahneman-Tversky optimization (Ethayarajh et al. 2024, equations 7 and 8) with both weights 1: mean over sequences of
// 1 - sigmoid(+-beta (log-ratio - kl)), plus where the completion is desirable, minus where it is not. The log-ratio is
// that of policy to reference, summed over the completion's tokens. kl is the mean log-ratio of mismatched completions
// over all ranks, not below zero, and carries no gradient.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "loss/fused_linear.h"

namespace regather::loss {

constexpr double kKtoBeta = 0.1;

// This rank's mean log-ratio of mismatched completions: logits [B, T, V] of both models, labels [B, T]. Scalar.
at::Tensor kto_log_ratio(const at::Tensor& policy_logits, const at::Tensor& reference_logits, const at::Tensor& labels);

// kl from the mean over ranks of kto_log_ratio.
at::Tensor kto_kl(const at::Tensor& mean_log_ratio);

// From the formula. policy and reference [B], desirable [B] bool, kl a scalar. Scalar.
at::Tensor kto_eager(const at::Tensor& policy, const at::Tensor& reference, const at::Tensor& desirable,
                     const at::Tensor& kl);

// labels [B, T], desirable [B] bool; a sequence a chunk. Both heads are read directly, once.
at::Tensor kto_fused(const HeadInput& policy, const HeadInput& reference, const at::Tensor& labels,
                     const at::Tensor& desirable, const at::Tensor& kl);

}  // namespace regather::loss
