#include "kernels/tests/host_losses.h"

#include <algorithm>
#include <cmath>

namespace regather::kernels::testing {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

}  // namespace

Coefficients coefficients(LossName loss, const HostParameters& given, const std::vector<double>& lp,
                          const std::vector<bool>& kept) {
  Coefficients out;
  out.by_row.assign(lp.size(), 0);
  if (loss == LossName::sft) {
    const auto count = static_cast<double>(std::count(kept.begin(), kept.end(), true));
    for (size_t i = 0; i < lp.size(); ++i) {
      if (!kept[i]) continue;
      out.loss -= lp[i] / count;
      out.by_row[i] = -1 / count;
    }
    return out;
  }
  const auto length = static_cast<size_t>(given.length);
  const size_t sequences = lp.size() / length;
  std::vector<double> ratio(sequences, 0);
  std::vector<double> count(sequences, 0);
  for (size_t i = 0; i < lp.size(); ++i) {
    if (!kept[i]) continue;
    count[i / length] += 1;
    if (loss != LossName::grpo) ratio[i / length] += lp[i] - static_cast<double>(given.reference_log_probabilities[i]);
  }
  std::vector<double> slope(sequences, 0);
  const auto b = static_cast<double>(sequences);
  if (loss == LossName::dpo) {
    for (size_t p = 0; p < sequences / 2; ++p) {
      const double margin = 0.1F * (ratio[p] - ratio[p + sequences / 2]);
      out.loss += (std::max(-margin, 0.0) + std::log1p(std::exp(-std::fabs(margin)))) / (b / 2);
      slope[p] = -sigmoid(-margin) * 0.1F / (b / 2);
      slope[p + sequences / 2] = -slope[p];
    }
  }
  if (loss == LossName::kto) {
    for (size_t s = 0; s < sequences; ++s) {
      const double sign = given.desirable[s] ? 1 : -1;
      const double utility = sigmoid(sign * 0.1F * (ratio[s] - given.kl));
      out.loss += (1 - utility) / b;
      slope[s] = -sign * 0.1F * utility * (1 - utility) / b;
    }
  }
  for (size_t i = 0; i < lp.size(); ++i) {
    if (!kept[i]) continue;
    const size_t s = i / length;
    if (loss != LossName::grpo) {
      out.by_row[i] = slope[s];
      continue;
    }
    const double advantage = given.advantages[s];
    const double r = std::exp(lp[i] - static_cast<double>(given.old_log_probabilities[i]));
    const double bounded = std::min(std::max(r, 1 - static_cast<double>(0.2F)), 1 + static_cast<double>(0.2F));
    const double gain = std::min(r * advantage, bounded * advantage);
    const double d = static_cast<double>(given.reference_log_probabilities[i]) - lp[i];
    const double share = 1 / (count[s] * b);
    out.loss += share * (0.04F * (std::exp(d) - d - 1) - gain);
    out.by_row[i] = share * (0.04F * (1 - std::exp(d)) - (bounded * advantage < r * advantage ? 0 : r * advantage));
  }
  return out;
}

}  // namespace regather::kernels::testing
