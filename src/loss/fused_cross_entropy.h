// Linear layer and cross entropy in one operator: logits exist one chunk of tokens at a time, and the gradients of
// hidden states, weight and bias are computed in forward and stashed (Liger's contract); backward only scales them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace regather::loss {

// Mean over valid targets of -log softmax(hidden weight^T + bias)[target].
// hidden [N, H]; weight [V, H]; bias [V] or undefined; targets [N] int64, kIgnore where masked. Scalar,
// float32. The weight must be whole when this is called; its dense gradient [V, H] arrives in backward.
at::Tensor fused_linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& bias,
                                      const at::Tensor& targets, int64_t chunk_rows);

}  // namespace regather::loss
