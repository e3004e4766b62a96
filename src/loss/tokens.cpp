#include "loss/tokens.h"

#include <ATen/ops/log_softmax.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "case/fault.h"
#include "loss/batch.h"

namespace regather::loss {

using at::Tensor;

Tensor predicting(const Tensor& states) { return states.narrow(1, 0, states.size(1) - 1); }

Tensor predicted(const Tensor& labels) {
  Tensor targets = labels.narrow(1, 1, labels.size(1) - 1);
  return fault_is(Fault::skip_mask) ? targets.clamp_min(0) : targets;
}

Tensor predicting_rows(const Tensor& states) { return predicting(states).reshape({-1, states.size(-1)}); }

Tensor predicted_rows(const Tensor& labels) { return predicted(labels).reshape({-1}); }

Tensor token_log_probabilities(const Tensor& logits, const Tensor& labels) {
  const Tensor targets = predicted(labels);
  const Tensor mask = targets.ne(kIgnore);
  const Tensor index = at::where(mask, targets, at::zeros_like(targets)).unsqueeze(-1);
  const Tensor scores = predicting(logits);
  const Tensor all = at::log_softmax(scores, -1, at::promote_types(scores.scalar_type(), at::kFloat));
  return all.gather(-1, index).squeeze(-1) * mask;
}

Tensor sequence_log_probabilities(const Tensor& logits, const Tensor& labels) {
  return token_log_probabilities(logits, labels).sum(-1);
}

}  // namespace regather::loss
