#include "loss/preference.h"

#include "loss/tokens.h"

namespace regather::loss {

using at::Tensor;

Tensor fused_preference(const HeadInput& policy, const HeadInput& reference, const Tensor& labels, int64_t together,
                        const PreferenceLoss& loss) {
  const int64_t length = labels.size(1) - 1;
  const Tensor hidden = predicting_rows(policy.hidden);
  const Tensor reference_hidden = predicting_rows(reference.hidden);
  const Tensor targets = predicted_rows(labels);
  const HeadParameters head = read_head(policy.head);
  const HeadParameters reference_head = read_head(reference.head);
  const auto scored = [&](const HeadParameters& own, const HeadParameters& other) {
    check_product(hidden, own, together * length);
    check_product(reference_hidden, other, together * length);
    const Tensor theirs = row_log_probabilities(reference_hidden, other, targets);
    const FusedLinear problem{
        targets, 1, [&](kernels::op::Given& given) { return loss(length, theirs.const_data_ptr<float>(), given); }};
    return fused_linear(hidden, own, problem, other);
  };
  return policy.scope.around(head.defined(), [&](const std::vector<Tensor>& own) {
    return reference.scope.around(reference_head.defined(), [&](const std::vector<Tensor>& other) {
      return scored(HeadParameters::of(own), HeadParameters::of(other));
    });
  });
}

}  // namespace regather::loss
