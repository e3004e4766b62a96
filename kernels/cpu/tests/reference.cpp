#include "kernels/cpu/tests/reference.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>

#include "kernels/cpu/numbers.h"

namespace regather::kernels::cpu::testing {
namespace {

// The values as `dtype` holds them: bytes, and what these say.
std::vector<char> stored(std::vector<double>& values, Dtype dtype) {
  const std::vector<float> floats(values.begin(), values.end());
  std::vector<char> bytes(values.size() * static_cast<size_t>(size_of(dtype)));
  std::vector<float> back(values.size());
  const auto count = static_cast<int64_t>(values.size());
  narrow(floats.data(), count, dtype, bytes.data(), 0);
  widen(bytes.data(), dtype, 0, count, back.data());
  values.assign(back.begin(), back.end());
  return bytes;
}

double error(const std::vector<float>& ours, const std::vector<double>& right) {
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < right.size(); ++i) {
    difference += std::pow(static_cast<double>(ours[i]) - right[i], 2);
    norm += right[i] * right[i];
  }
  return std::sqrt(norm > 0 ? difference / norm : difference);
}

std::vector<float> floats_of(const std::vector<char>& bytes, Dtype dtype) {
  std::vector<float> floats(bytes.size() / static_cast<size_t>(size_of(dtype)));
  widen(bytes.data(), dtype, 0, static_cast<int64_t>(floats.size()), floats.data());
  return floats;
}

}  // namespace

std::string print(const Errors& errors) {
  char text[160];
  std::snprintf(text, sizeof text, "loss %.2e, log p %.2e, dX %.2e, dW %.2e, db %.2e", errors.loss,
                errors.log_probabilities, errors.hidden, errors.weight, errors.bias);
  return text;
}

Problem::Problem(const ProblemOptions& options) : options_(options) {
  std::mt19937_64 random(options.seed + 1);
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform;
  const int64_t rows = options.sequences * options.length;
  const double root = std::sqrt(static_cast<double>(options.width));
  for (int64_t i = 0; i < options.vocab * options.width; ++i) w_.push_back(options.scale * normal(random) / root);
  if (options.bias) {
    for (int64_t v = 0; v < options.vocab; ++v) b_.push_back(0.5 * normal(random));
  }
  for (int64_t row = 0; row < rows; ++row) {
    // Few tokens often, as in language.
    const auto target = static_cast<int64_t>(std::pow(uniform(random), 3) * static_cast<double>(options.vocab));
    targets_.push_back(uniform(random) < options.masked ? -100 : std::min(target, options.vocab - 1));
    for (int64_t h = 0; h < options.width; ++h) {
      const double lean =
          options.lean / (options.scale * options.scale) * w_[static_cast<size_t>(target * options.width + h)];
      x_.push_back(normal(random) + lean);
    }
  }
  hidden_ = stored(x_, options.dtype);
  weight_ = stored(w_, options.dtype);
  bias_ = stored(b_, options.dtype);
  const auto size = [](int64_t count, Dtype dtype) { return static_cast<size_t>(count * size_of(dtype)); };
  hidden_gradient.resize(size(rows * options.width, options.dtype));
  weight_gradient.resize(size(options.vocab * options.width, options.weight_dtype));
  bias_gradient_.resize(b_.size());
  log_probabilities_.resize(static_cast<size_t>(rows));
  linear = {rows,
            options.width,
            options.vocab,
            options.dtype,
            hidden_.data(),
            weight_.data(),
            options.bias ? bias_.data() : nullptr,
            targets_.data()};
  results = {&value_,
             hidden_gradient.data(),
             weight_gradient.data(),
             options.weight_dtype,
             options.bias ? bias_gradient_.data() : nullptr,
             log_probabilities_.data()};
  find_reference();
}

void Problem::find_reference() {
  const auto rows = targets_.size();
  const auto width = static_cast<size_t>(options_.width);
  const auto vocab = static_cast<size_t>(options_.vocab);
  std::vector<double> logits(rows * vocab);
  std::vector<bool> kept;
  lp_.assign(rows, 0);
  std::vector<double> normaliser(rows);
  for (size_t row = 0; row < rows; ++row) {
    double largest = -INFINITY;
    for (size_t v = 0; v < vocab; ++v) {
      double logit = b_.empty() ? 0 : b_[v];
      for (size_t h = 0; h < width; ++h) logit += x_[row * width + h] * w_[v * width + h];
      largest = std::max(largest, logits[row * vocab + v] = logit);
    }
    double sum = 0;
    for (size_t v = 0; v < vocab; ++v) sum += std::exp(logits[row * vocab + v] - largest);
    normaliser[row] = largest + std::log(sum);
    kept.push_back(targets_[row] >= 0);
    if (kept[row]) lp_[row] = logits[row * vocab + static_cast<size_t>(targets_[row])] - normaliser[row];
  }
  std::mt19937_64 random(options_.seed + 7);
  std::normal_distribution<double> normal;
  given_.length = options_.length;
  given_.kl = kl_ = 0.75F;
  for (int64_t s = 0; s < options_.sequences; ++s) {
    given_.advantages.push_back(static_cast<float>((s % 2 == 0 ? 1 : -1) * (1 + 0.3 * normal(random))));
    given_.desirable.push_back(desirable_[s % 64] = s % 3 != 0);
  }
  for (size_t row = 0; row < rows; ++row) {
    auto old = static_cast<float>(lp_[row] + 0.15 * normal(random));
    // Near the clip a rounding decides between two gradients.
    const double ratio = std::exp(lp_[row] - static_cast<double>(old));
    if (std::fabs(ratio - 0.8) < 1e-3 || std::fabs(ratio - 1.2) < 1e-3) old += 0.01F;
    given_.old_log_probabilities.push_back(old);
    given_.reference_log_probabilities.push_back(static_cast<float>(lp_[row] + 0.3 * normal(random)));
  }
  const float* reference = given_.reference_log_probabilities.data();
  switch (options_.loss) {
    case LossName::sft:
      parameters_ = Sft{};
      break;
    case LossName::grpo:
      parameters_ = Grpo{options_.length, given_.advantages.data(), given_.old_log_probabilities.data(), reference};
      break;
    case LossName::dpo:
      parameters_ = Dpo{options_.length, reference};
      break;
    case LossName::kto:
      parameters_ = Kto{options_.length, reference, desirable_, &kl_};
      break;
  }
  const auto found = kernels::testing::coefficients(options_.loss, given_, lp_, kept);
  loss_ = found.loss;
  hidden_right_.assign(rows * width, 0);
  weight_right_.assign(vocab * width, 0);
  bias_right_.assign(b_.size(), 0);
  for (size_t row = 0; row < rows; ++row) {
    if (!kept[row]) continue;
    for (size_t v = 0; v < vocab; ++v) {
      const double p = std::exp(logits[row * vocab + v] - normaliser[row]);
      const double by_logit = found.by_row[row] * ((static_cast<int64_t>(v) == targets_[row] ? 1 : 0) - p);
      for (size_t h = 0; h < width; ++h) {
        hidden_right_[row * width + h] += by_logit * w_[v * width + h];
        weight_right_[v * width + h] += by_logit * x_[row * width + h];
      }
      if (!b_.empty()) bias_right_[v] += by_logit;
    }
  }
}

Errors Problem::run(const Options& options) {
  value_ = NAN;
  std::fill(hidden_gradient.begin(), hidden_gradient.end(), static_cast<char>(0xff));
  std::fill(weight_gradient.begin(), weight_gradient.end(), static_cast<char>(0xff));
  std::fill(bias_gradient_.begin(), bias_gradient_.end(), NAN);
  std::fill(log_probabilities_.begin(), log_probabilities_.end(), NAN);
  linear_loss(linear, parameters_, results, options);
  Errors found;
  found.loss = std::fabs(static_cast<double>(value_) - loss_);
  for (size_t i = 0; i < lp_.size(); ++i) {
    const double difference = std::fabs(static_cast<double>(log_probabilities_[i]) - lp_[i]);
    if (!(difference <= found.log_probabilities)) found.log_probabilities = difference;
  }
  found.hidden = error(floats_of(hidden_gradient, options_.dtype), hidden_right_);
  found.weight = error(floats_of(weight_gradient, options_.weight_dtype), weight_right_);
  found.bias = error(bias_gradient_, bias_right_);
  return found;
}

}  // namespace regather::kernels::cpu::testing
