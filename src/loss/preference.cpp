#include "loss/preference.h"

#include <ATen/core/grad_mode.h>

#include "loss/tokens.h"

namespace regather::loss {

using at::Tensor;

Tensor fused_preference(const HeadInput& policy, const HeadInput& reference, const Tensor& labels,
                        const std::vector<std::vector<int64_t>>& sequences, const PreferenceValue& value) {
  const int64_t length = labels.size(1) - 1;
  const Tensor hidden = predicting(policy.hidden).reshape({-1, policy.hidden.size(-1)});
  const Tensor reference_hidden = predicting(reference.hidden).reshape({-1, reference.hidden.size(-1)});
  FusedLinear problem;
  problem.targets = predicted(labels).reshape({-1});
  for (const std::vector<int64_t>& chunk : sequences) {
    Chunk spans;
    for (const int64_t sequence : chunk) spans.emplace_back(sequence * length, length);
    problem.chunks.push_back(std::move(spans));
  }
  const HeadParameters head = read_head(policy.head);
  const HeadParameters reference_head = read_head(reference.head);
  const auto scored = [&](const HeadParameters& own, const HeadParameters& other) {
    problem.loss = [&](const Tensor& log_probabilities, size_t chunk) {
      const at::NoGradGuard no_grad;
      const Tensor theirs = row_log_probabilities(take(reference_hidden, problem.chunks[chunk]), other,
                                                  take(problem.targets, problem.chunks[chunk]));
      const ChunkValue sums =
          value(log_probabilities.view({-1, length}).sum(-1), theirs.view({-1, length}).sum(-1), chunk);
      return ChunkValue{sums.loss, sums.gradient.unsqueeze(1).expand({-1, length}).reshape({-1})};
    };
    return fused_linear(hidden, own, problem, other);
  };
  return policy.scope.around(head.defined(), [&](const std::vector<Tensor>& own) {
    return reference.scope.around(reference_head.defined(), [&](const std::vector<Tensor>& other) {
      return scored(HeadParameters::of(own), HeadParameters::of(other));
    });
  });
}

}  // namespace regather::loss
