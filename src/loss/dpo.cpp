#include "loss/dpo.h"

#include <ATen/ops/log_sigmoid.h>

#include "loss/preference.h"

namespace regather::loss {

using at::Tensor;

Tensor dpo_eager(const Tensor& policy, const Tensor& reference) {
  const int64_t pairs = policy.size(0) / 2;
  const Tensor ratios = policy - reference;
  return -at::log_sigmoid(kDpoBeta * (ratios.narrow(0, 0, pairs) - ratios.narrow(0, pairs, pairs))).mean();
}

Tensor dpo_fused(const HeadInput& policy, const HeadInput& reference, const Tensor& labels) {
  return fused_preference(policy, reference, labels, 2, [](int64_t length, const float* theirs, kernels::op::Given&) {
    return kernels::Dpo{.length = length, .reference_log_probabilities = theirs, .beta = kDpoBeta};
  });
}

}  // namespace regather::loss
