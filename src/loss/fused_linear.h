// The pass that the fused linear losses share (Liger's contract, chunked_loss in liger-kernel 0.8.5): logits exist one
// chunk of rows at a time, a loss turns the chunk's log-probabilities into its share of the value and of the gradient,
// and the gradients of hidden states, weight and bias are accumulated in forward and stashed; backward only scales
// them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "loss/policy.h"
#include "model/layers.h"

namespace regather::loss {

// A head's parameters as a loss reads them: directly, not through the module's forward.
struct HeadParameters {
  at::Tensor weight;  // [V, H]
  at::Tensor bias;    // [V] or undefined

  std::vector<at::Tensor> defined() const;
  // From what defined() gave.
  static HeadParameters of(const std::vector<at::Tensor>& defined);
};
HeadParameters read_head(model::Linear& head);

// Hidden states [B, T, H] of a model and its head, which is read directly inside `scope`.
struct HeadInput {
  at::Tensor hidden;
  model::Linear& head;
  HeadScope& scope;
};

// Rows of one chunk: spans (first row, number of rows), in order.
using Chunk = std::vector<std::pair<int64_t, int64_t>>;
at::Tensor take(const at::Tensor& rows, const Chunk& chunk);

// log softmax(states weight^T + bias)[target], 0 where the target is kIgnore. states [N, H], targets [N] int64 -> [N],
// float32 at least. The weight must be whole.
at::Tensor row_log_probabilities(const at::Tensor& states, const HeadParameters& head, const at::Tensor& targets);

struct ChunkValue {
  at::Tensor loss;      // scalar: the chunk's share
  at::Tensor gradient;  // of the loss by the chunk's log-probabilities, of their shape
};

struct FusedLinear {
  at::Tensor targets;         // [N] int64, kIgnore where masked
  std::vector<Chunk> chunks;  // each row in one of them
  // From the log-probabilities [rows of the chunk] of chunk number `chunk`.
  std::function<ChunkValue(const at::Tensor& log_probabilities, size_t chunk)> loss;
};

// Scalar of hidden's dtype, float32 at least. hidden [N, H]. `without_gradient`: tensors that are inputs of the
// operator though nothing flows to them (a reference model's head, as upstream passes it): when one of them requires
// grad, the result carries a graph even if hidden and head do not.
at::Tensor fused_linear(const at::Tensor& hidden, const HeadParameters& head, const FusedLinear& problem,
                        const HeadParameters& without_gradient = {});

}  // namespace regather::loss
