#include "loss/grpo.h"

#include <ATen/ops/minimum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

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
  const Tensor hidden = predicting(policy.hidden).reshape({-1, policy.hidden.size(-1)});
  FusedLinear problem;
  problem.targets = predicted(batch.labels).reshape({-1});
  for (int64_t sequence = 0; sequence < sequences; ++sequence) problem.chunks.push_back({{sequence * length, length}});
  const Tensor masks = predicted(batch.labels).ne(kIgnore);

  problem.loss = [&](const Tensor& log_probabilities, size_t chunk) {
    const auto sequence = static_cast<int64_t>(chunk);
    const auto dtype = log_probabilities.scalar_type();
    const Tensor mask = masks[sequence].to(dtype);
    const double advantage = batch.advantages[sequence].item<double>();
    const Tensor ratio = (log_probabilities - batch.old_log_probabilities[sequence].to(dtype)).exp();
    const Tensor clipped = ratio.clamp(1 - kGrpoEpsilon, 1 + kGrpoEpsilon);
    const Tensor raw_gain = ratio * advantage;
    const Tensor clipped_gain = clipped * advantage;
    // Where the clip decides, the gain does not depend on the policy.
    const Tensor decides = clipped_gain.lt(raw_gain);
    const Tensor distance = batch.reference_log_probabilities[sequence].to(dtype) - log_probabilities;
    const Tensor share = mask / (mask.sum().clamp_min(1) * static_cast<double>(sequences));
    const Tensor tokens = kGrpoBeta * (distance.exp() - distance - 1) - at::where(decides, clipped_gain, raw_gain);
    const Tensor slope = kGrpoBeta * (1 - distance.exp()) - at::where(decides, at::zeros_like(raw_gain), raw_gain);
    return ChunkValue{(tokens * share).sum(), slope * share};
  };
  const HeadParameters head = read_head(policy.head);
  return policy.scope.around(head.defined(), [&](const std::vector<Tensor>& parameters) {
    return fused_linear(hidden, HeadParameters::of(parameters), problem);
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
