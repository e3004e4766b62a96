// What the fused losses on whole sequences share: DPO and KTO see sums of log-probabilities, of the policy and of a
// reference whose head they read directly too.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "loss/fused_linear.h"

namespace regather::loss {

// The loss of sequences of `length` rows each, with the reference's log-probabilities [N].
using PreferenceLoss =
    std::function<kernels::LossParameters(int64_t length, const float* reference, kernels::op::Given& given)>;

// hidden [B, T, H] of both, labels [B, T]; a chunk holds `together` sequences. The policy's product comes first, then
// the reference's, as upstream. Scalar.
at::Tensor fused_preference(const HeadInput& policy, const HeadInput& reference, const at::Tensor& labels,
                            int64_t together, const PreferenceLoss& loss);

}  // namespace regather::loss
