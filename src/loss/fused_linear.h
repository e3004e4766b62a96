// The pass that the fused linear losses share (Liger's contract, chunked_loss in liger-kernel 0.8.5): the kernels
// compute logits one chunk of rows at a time, the loss, and the gradients of hidden states, weight and bias, all in
// forward; the gradients are stashed, and backward only scales them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/op/pass.h"
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

struct FusedLinear {
  at::Tensor targets;  // [N] int64, kIgnore where masked
  int64_t chunk_rows;  // of a chunk at most; whole sequences (dpo: pairs) of dpo and kto are never split
  // The loss, which points into tensors that `given` keeps or that outlive the call.
  std::function<kernels::LossParameters(kernels::op::Given& given)> loss;
};

// log softmax(states weight^T + bias)[target], 0 where the target is kIgnore, of a reference model: no gradient.
// states [N, H], targets [N] int64 -> [N] float32. Operands as for fused_linear.
at::Tensor row_log_probabilities(const at::Tensor& states, const HeadParameters& head, const at::Tensor& targets);

// The kernels take plain, whole operands of one dtype. Others meet torch's product of the first chunk's `rows`, which
// upstream computes too, and fail as it does there: an emptied weight by its size, a sharded one by its type.
void check_product(const at::Tensor& states, const HeadParameters& head, int64_t rows);

// Scalar, float32. hidden [N, H] of bfloat16, float16 or float32; operands have passed check_product.
// `without_gradient`: tensors that are inputs of the operator though nothing flows to them (a reference model's head,
// as upstream passes it): when one of them requires grad, the result carries a graph even if hidden and head do not.
at::Tensor fused_linear(const at::Tensor& hidden, const HeadParameters& head, const FusedLinear& problem,
                        const HeadParameters& without_gradient = {});

}  // namespace regather::loss
