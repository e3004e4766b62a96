#include "kernels/tests/problem.cuh"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>

namespace regather::kernels::testing {
namespace {

std::vector<float> near(const std::vector<double>& log_probabilities, double deviation, std::mt19937_64& random) {
  std::normal_distribution<double> normal(0, deviation);
  std::vector<float> values;
  for (const double value : log_probabilities) values.push_back(static_cast<float>(value + normal(random)));
  return values;
}

void keep_from_clip(std::vector<float>& old, const std::vector<double>& policy) {
  for (size_t i = 0; i < old.size(); ++i) {
    const double ratio = std::exp(policy[i] - static_cast<double>(old[i]));
    if (std::fabs(ratio - 0.8) < 1e-3 || std::fabs(ratio - 1.2) < 1e-3) old[i] += 0.01F;
  }
}

}  // namespace

Problem::Problem(const ProblemOptions& options) : options_(options), data_(make_data(options.data)) {
  const Linear& linear = data_.linear;
  used_ = linear;
  if (options.dtype != Dtype::bf16) {
    hidden_ = converted(data_.hidden, options.dtype);
    weight_ = converted(data_.weight, options.dtype);
    bias_ = converted(data_.bias, options.dtype);
    used_.dtype = options.dtype;
    used_.hidden = hidden_.get();
    used_.weight = weight_.get();
    used_.bias = linear.bias != nullptr ? bias_.get() : nullptr;
  }
  loss_ = Buffer<float>(1);
  log_probabilities_ = Buffer<float>(linear.rows);
  hidden_gradient_ = Buffer<char>(linear.rows * linear.width * (options.dtype == Dtype::fp32 ? 4 : 2));
  weight_gradient_ = Buffer<char>(linear.vocab * linear.width * (options.weight_dtype == Dtype::fp32 ? 4 : 2));
  bias_gradient_ = Buffer<float>(options.data.bias ? linear.vocab : 0);
  if (options.loss != LossName::sft) give_parameters();
  workspace_ = Buffer<char>(static_cast<int64_t>(kernels::workspace_bytes(used_, given_, options.options)));
}

void Problem::give_parameters() {
  const Linear& linear = data_.linear;
  std::mt19937_64 random(options_.data.seed + 99);
  std::uniform_real_distribution<float> uniform(0.5F, 1.5F);
  const std::vector<double> policy = reference_log_probabilities(linear);
  parameters_.length = options_.sequences > 0 ? linear.rows / options_.sequences : 0;
  for (int64_t s = 0; s < options_.sequences; ++s) {
    parameters_.advantages.push_back((s % 2 == 0 ? 1.0F : -1.0F) * uniform(random));
    parameters_.desirable.push_back(s % 3 != 0);
  }
  const bool whole = options_.loss != LossName::grpo;
  // A sum over a sequence should not leave the sigmoid's slope.
  const double off = whole ? 10 / std::sqrt(static_cast<double>(std::max<int64_t>(parameters_.length, 1)))
                           : static_cast<double>(options_.off_policy);
  parameters_.old_log_probabilities = near(policy, off, random);
  keep_from_clip(parameters_.old_log_probabilities, policy);
  parameters_.reference_log_probabilities = near(policy, whole ? off : 2 * off, random);
  parameters_.kl = 0.75;

  advantages_ = Buffer<float>(parameters_.advantages);
  old_ = Buffer<float>(parameters_.old_log_probabilities);
  reference_ = Buffer<float>(parameters_.reference_log_probabilities);
  desirable_ = Buffer<bool>(options_.sequences);
  const std::vector<char> desirable(parameters_.desirable.begin(), parameters_.desirable.end());
  check(cudaMemcpy(desirable_.get(), desirable.data(), desirable.size(), cudaMemcpyHostToDevice), "cudaMemcpy");
  kl_ = Buffer<float>(std::vector<float>{static_cast<float>(parameters_.kl)});
  const int64_t length = parameters_.length;
  switch (options_.loss) {
    case LossName::sft:
      break;
    case LossName::grpo:
      given_ = Grpo{length, advantages_.get(), old_.get(), reference_.get()};
      break;
    case LossName::dpo:
      given_ = Dpo{length, reference_.get()};
      break;
    case LossName::kto:
      given_ = Kto{length, reference_.get(), desirable_.get(), kl_.get()};
      break;
  }
}

void Problem::run(Context& context, Stream stream) {
  Results results;
  results.loss = loss_.get();
  results.hidden_gradient = hidden_gradient_.get();
  results.weight_gradient = weight_gradient_.get();
  results.weight_dtype = options_.weight_dtype;
  results.bias_gradient = bias_gradient_.get();
  results.log_probabilities = log_probabilities_.get();
  linear_loss(context, used_, given_, results, options_.options, workspace_.get(), stream);
}

void Problem::poison() {
  loss_.fill_bytes(0xff);
  log_probabilities_.fill_bytes(0xff);
  hidden_gradient_.fill_bytes(0xff);
  weight_gradient_.fill_bytes(0xff);
  bias_gradient_.fill_bytes(0xff);
  workspace_.fill_bytes(0xff);
}

Errors errors(Problem& problem, const Reference& reference) {
  check(cudaDeviceSynchronize(), "linear_loss");
  Errors found;
  found.loss = std::fabs(static_cast<double>(problem.loss().host()[0]) - reference.loss);
  const std::vector<float> ours = problem.log_probabilities().host();
  for (size_t i = 0; i < ours.size(); ++i) {
    const double difference = std::fabs(static_cast<double>(ours[i]) - reference.log_probabilities[i]);
    if (!(difference <= found.log_probabilities)) found.log_probabilities = difference;
  }
  found.hidden = relative_error(problem.hidden_gradient().get(), problem.options().dtype, reference.hidden_gradient);
  found.weight =
      relative_error(problem.weight_gradient().get(), problem.options().weight_dtype, reference.weight_gradient);
  found.bias = relative_error(problem.bias_gradient().get(), Dtype::fp32, reference.bias_gradient);
  return found;
}

std::string print(const Errors& errors) {
  char text[160];
  std::snprintf(text, sizeof text, "loss %.2e, log p %.2e, dX %.5f, dW %.5f, db %.5f", errors.loss,
                errors.log_probabilities, errors.hidden, errors.weight, errors.bias);
  return text;
}

}  // namespace regather::kernels::testing
