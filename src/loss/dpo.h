// Direct preference optimization with the sigmoid loss (Rafailov et al. 2023, equation 7):
// mean over pairs of -log sigmoid(beta ((c - c_ref) - (r - r_ref))), where c and r are the log-probabilities of the
// chosen and the rejected completion, summed over its tokens.
#pragma once

#include <ATen/core/Tensor.h>

#include "loss/fused_linear.h"

namespace regather::loss {

constexpr double kDpoBeta = 0.1;

// From the formula. Both [B]: the first half chosen, the second rejected, in the same order. Scalar.
at::Tensor dpo_eager(const at::Tensor& policy, const at::Tensor& reference);

// labels [B, T], the first half of the sequences chosen; a pair a chunk. Both heads are read directly, once.
at::Tensor dpo_fused(const HeadInput& policy, const HeadInput& reference, const at::Tensor& labels);

}  // namespace regather::loss
