#include "loss/dpo.h"

#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/stack.h>

#include "loss/preference.h"

namespace regather::loss {

using at::Tensor;

Tensor dpo_eager(const Tensor& policy, const Tensor& reference) {
  const int64_t pairs = policy.size(0) / 2;
  const Tensor ratios = policy - reference;
  return -at::log_sigmoid(kDpoBeta * (ratios.narrow(0, 0, pairs) - ratios.narrow(0, pairs, pairs))).mean();
}

Tensor dpo_fused(const HeadInput& policy, const HeadInput& reference, const Tensor& labels) {
  const int64_t pairs = labels.size(0) / 2;
  std::vector<std::vector<int64_t>> chunks;
  for (int64_t pair = 0; pair < pairs; ++pair) chunks.push_back({pair, pairs + pair});
  return fused_preference(policy, reference, labels, chunks, [pairs](const Tensor& ours, const Tensor& theirs, size_t) {
    const Tensor ratios = ours - theirs;
    const Tensor margin = kDpoBeta * (ratios[0] - ratios[1]);
    // d(-log sigmoid(x)) / dx = -sigmoid(-x)
    const Tensor slope = at::sigmoid(-margin) * (-kDpoBeta / static_cast<double>(pairs));
    return ChunkValue{-at::log_sigmoid(margin) / static_cast<double>(pairs), at::stack({slope, -slope})};
  });
}

}  // namespace regather::loss
