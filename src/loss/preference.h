// What the fused losses on whole sequences share: DPO and KTO see sums of log-probabilities, of the policy and of a
// reference whose head they read directly too.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "loss/fused_linear.h"

namespace regather::loss {

// From the sums over the chunk's sequences, policy and reference [sequences of the chunk] each: the chunk's share of
// the loss and its gradient by the policy's sums.
using PreferenceValue = std::function<ChunkValue(const at::Tensor& policy, const at::Tensor& reference, size_t chunk)>;

// hidden [B, T, H] of both, labels [B, T]; `sequences` says which sequences each chunk holds. The policy's product
// comes first, then the reference's, chunk by chunk, as upstream. Scalar.
at::Tensor fused_preference(const HeadInput& policy, const HeadInput& reference, const at::Tensor& labels,
                            const std::vector<std::vector<int64_t>>& sequences, const PreferenceValue& value);

}  // namespace regather::loss
