#include "loss/kto.h"

#include <ATen/ops/sigmoid.h>

#include "loss/preference.h"
#include "loss/tokens.h"

namespace regather::loss {

using at::Tensor;

Tensor kto_log_ratio(const Tensor& policy_logits, const Tensor& reference_logits, const Tensor& labels) {
  return (sequence_log_probabilities(policy_logits, labels) - sequence_log_probabilities(reference_logits, labels))
      .mean()
      .detach();
}

Tensor kto_kl(const Tensor& mean_log_ratio) { return mean_log_ratio.detach().clamp_min(0); }

Tensor kto_eager(const Tensor& policy, const Tensor& reference, const Tensor& desirable, const Tensor& kl) {
  const Tensor sign = desirable.to(policy.scalar_type()) * 2 - 1;
  return (1 - at::sigmoid(kKtoBeta * (policy - reference - kl) * sign)).mean();
}

Tensor kto_fused(const HeadInput& policy, const HeadInput& reference, const Tensor& labels, const Tensor& desirable,
                 const Tensor& kl) {
  const Tensor kl_value = kl.to(at::kFloat);
  const auto loss = [&](int64_t length, const float* theirs, kernels::op::Given& given) {
    return kernels::Kto{.length = length,
                        .reference_log_probabilities = theirs,
                        .desirable = given.pointer<bool>(desirable, "desirable", at::kBool, labels.size(0)),
                        .kl = given.pointer<float>(kl_value, "kl", at::kFloat, 1),
                        .beta = kKtoBeta};
  };
  return fused_preference(policy, reference, labels, 1, loss);
}

}  // namespace regather::loss
