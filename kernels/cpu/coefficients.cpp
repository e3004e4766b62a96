#include "kernels/cpu/coefficients.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/error.h"

namespace regather::kernels::cpu {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

struct Rows {
  const Kept& kept;
  const Sequences& sequences;
  const Span& span;
  const float* log_probability;
  float* coefficient;

  // log(policy) - log(reference), summed over a sequence of the order of work.
  double log_ratio(const float* reference, int64_t sequence) const {
    double sum = 0;
    for (auto i = kept.start[sequence]; i < kept.start[sequence + 1]; ++i) {
      sum += static_cast<double>(log_probability[i]) - static_cast<double>(reference[kept.row[i]]);
    }
    return sum;
  }
  void fill(int64_t sequence, double value) const {
    std::fill(coefficient + kept.start[sequence] - span.first, coefficient + kept.start[sequence + 1] - span.first,
              static_cast<float>(value));
  }

  double of(const Sft& /*loss*/) const {
    const double share = 1 / static_cast<double>(kept.count());
    double value = 0;
    for (int64_t i = 0; i < span.count; ++i) {
      value -= share * static_cast<double>(log_probability[span.first + i]);
      coefficient[i] = static_cast<float>(-share);
    }
    return value;
  }

  double of(const Grpo& loss) const {
    double value = 0;
    for (int64_t i = 0; i < span.count; ++i) {
      const int64_t row = kept.row[span.first + i];
      const int64_t sequence = row / loss.length;
      const double share = 1 / (static_cast<double>(kept.start[sequence + 1] - kept.start[sequence]) *
                                static_cast<double>(sequences.count));
      const double policy = log_probability[span.first + i];
      const double advantage = loss.advantages[sequence];
      const double old = loss.old_log_probabilities != nullptr ? loss.old_log_probabilities[row] : policy;
      const double ratio = std::exp(policy - old);
      const double clipped =
          std::clamp(ratio, 1 - static_cast<double>(loss.epsilon_low), 1 + static_cast<double>(loss.epsilon_high));
      // Where the clip decides, the gain does not depend on the policy.
      const bool decides = clipped * advantage < ratio * advantage;
      double slope = decides ? 0 : -ratio * advantage;
      value -= share * (decides ? clipped : ratio) * advantage;
      if (loss.reference_log_probabilities != nullptr) {
        const double distance = loss.reference_log_probabilities[row] - policy;
        slope -= static_cast<double>(loss.beta) * std::expm1(distance);
        value += share * static_cast<double>(loss.beta) * (std::expm1(distance) - distance);
      }
      coefficient[i] = static_cast<float>(slope * share);
    }
    return value;
  }

  double of(const Dpo& loss) const {
    const auto pairs = static_cast<double>(sequences.count / 2);
    const double beta = loss.beta;
    double value = 0;
    for (int64_t chosen = span.first_sequence; chosen < span.first_sequence + span.sequences; chosen += 2) {
      const double margin = beta * (log_ratio(loss.reference_log_probabilities, chosen) -
                                    log_ratio(loss.reference_log_probabilities, chosen + 1));
      const double slope = -sigmoid(-margin) * beta / pairs;
      fill(chosen, slope);
      fill(chosen + 1, -slope);
      value += (std::max(-margin, 0.0) + std::log1p(std::exp(-std::fabs(margin)))) / pairs;
    }
    return value;
  }

  double of(const Kto& loss) const {
    const double share = 1 / static_cast<double>(sequences.count);
    const double beta = loss.beta;
    double value = 0;
    for (int64_t sequence = span.first_sequence; sequence < span.first_sequence + span.sequences; ++sequence) {
      const double sign = loss.desirable[sequence] ? 1 : -1;
      const double ratio = log_ratio(loss.reference_log_probabilities, sequence);
      const double utility = sigmoid((ratio - static_cast<double>(*loss.kl)) * sign * beta);
      fill(sequence, -sign * beta * share * utility * (1 - utility));
      value += (1 - utility) * share;
    }
    return value;
  }
};

}  // namespace

Kept find_kept(const Linear& linear, const Sequences& sequences) {
  Kept kept;
  kept.start.push_back(0);
  const int64_t length = sequences.count == 0 ? 0 : linear.rows / sequences.count;
  for (int64_t position = 0; position < sequences.count; ++position) {
    const bool paired = sequences.together == 2;
    const int64_t sequence = paired ? position % 2 * (sequences.count / 2) + position / 2 : position;
    for (int64_t row = sequence * length; row < (sequence + 1) * length; ++row) {
      const int64_t target = linear.targets[row];
      if (target == linear.ignore_index) continue;
      require(target >= 0 && target < linear.vocab, "linear_loss: target " + std::to_string(target) + " of row " +
                                                        std::to_string(row) + " is no token; the vocabulary has " +
                                                        std::to_string(linear.vocab));
      kept.row.push_back(static_cast<int32_t>(row));
      kept.target.push_back(static_cast<int32_t>(target));
    }
    kept.start.push_back(static_cast<int32_t>(kept.row.size()));
  }
  return kept;
}

double coefficients(const LossParameters& loss, const Kept& kept, const Sequences& sequences, const Span& span,
                    const float* log_probability, float* coefficient) {
  const Rows rows{kept, sequences, span, log_probability, coefficient};
  return std::visit([&](const auto& parameters) { return rows.of(parameters); }, loss);
}

}  // namespace regather::kernels::cpu
