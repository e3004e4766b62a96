#include "loss/grpo.h"

#include <ATen/ops/minimum.h>

#include "loss/tokens.h"

namespace regather::loss {

using at::Tensor;

Tensor grpo_eager(const Tensor& logits, const Batch& batch) {
  const Tensor log_probabilities = token_log_probabilities(logits, batch.labels);
  const auto dtype = log_probabilities.scalar_type();
  const Tensor mask = predicted(batch.labels).ne(kIgnore).to(dtype);
  const Tensor advantage = batch.advantages.to(dtype).unsqueeze(1);
  const Tensor ratio = (log_probabilities - batch.old_log_probabilities.to(dtype)).exp();
  const Tensor gain = at::minimum(ratio * advantage, ratio.clamp(1 - kGrpoEpsilon, 1 + kGrpoEpsilon) * advantage);
  const Tensor distance = batch.reference_log_probabilities.to(dtype) - log_probabilities;
  const Tensor tokens = kGrpoBeta * (distance.exp() - distance - 1) - gain;
  return ((tokens * mask).sum(1) / mask.sum(1).clamp_min(1)).mean();
}

Tensor grpo_fused(const HeadInput& policy, const Batch& batch) {
  const int64_t sequences = batch.labels.size(0);
  const int64_t length = batch.labels.size(1) - 1;
  const Tensor hidden = predicting_rows(policy.hidden);
  const auto loss = [&](kernels::op::Given& given) {
    const auto floats = [&](const Tensor& values, const char* name, int64_t count) {
      return given.pointer<float>(values.to(at::kFloat), name, at::kFloat, count);
    };
    return kernels::Grpo{
        .length = length,
        .advantages = floats(batch.advantages, "advantages", sequences),
        .old_log_probabilities = floats(batch.old_log_probabilities, "old_log_probabilities", sequences * length),
        .reference_log_probabilities =
            floats(batch.reference_log_probabilities, "reference_log_probabilities", sequences * length),
        .epsilon_low = kGrpoEpsilon,
        .epsilon_high = kGrpoEpsilon,
        .beta = kGrpoBeta};
  };
  const FusedLinear problem{predicted_rows(batch.labels), length, loss};
  const HeadParameters head = read_head(policy.head);
  return policy.scope.around(head.defined(), [&](const std::vector<Tensor>& parameters) {
    const HeadParameters used = HeadParameters::of(parameters);
    check_product(hidden, used, length);
    return fused_linear(hidden, used, problem);
  });
}

ClippedTokens grpo_clipped(const Tensor& log_probabilities, const Batch& batch) {
  const Tensor mask = predicted(batch.labels).ne(kIgnore);
  const Tensor ratio = (log_probabilities - batch.old_log_probabilities.to(log_probabilities.scalar_type())).exp();
  const Tensor advantage = batch.advantages.unsqueeze(1);
  const auto count = [](const Tensor& where) { return where.sum().item<int64_t>(); };
  return {count(mask.logical_and(ratio.gt(1 + kGrpoEpsilon)).logical_and(advantage.gt(0))),
          count(mask.logical_and(ratio.lt(1 - kGrpoEpsilon)).logical_and(advantage.lt(0))), count(mask)};
}

}  // namespace regather::loss
