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
  const int64_t sequences = labels.size(0);
  std::vector<std::vector<int64_t>> chunks;
  for (int64_t sequence = 0; sequence < sequences; ++sequence) chunks.push_back({sequence});
  return fused_preference(
      policy, reference, labels, chunks, [&](const Tensor& ours, const Tensor& theirs, size_t sequence) {
        const double sign = desirable[static_cast<int64_t>(sequence)].item<bool>() ? 1.0 : -1.0;
        const Tensor utility = at::sigmoid((ours - theirs - kl) * (sign * kKtoBeta));
        // sigmoid' = sigmoid (1 - sigmoid)
        const double scale = 1.0 / static_cast<double>(sequences);
        return ChunkValue{(1 - utility).sum() * scale, utility * (1 - utility) * (-sign * kKtoBeta * scale)};
      });
}

}  // namespace regather::loss
