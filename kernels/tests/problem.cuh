// A whole problem on the device: operands, what its loss is given, results, workspace; run it, and compare with the
// reference.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "kernels/linear_loss.h"
#include "kernels/tests/data.cuh"
#include "kernels/tests/device.cuh"
#include "kernels/tests/reference.cuh"

namespace regather::kernels::testing {

struct ProblemOptions {
  DataOptions data;
  LossName loss = LossName::sft;
  Dtype dtype = Dtype::bf16;  // of the operands
  int64_t sequences = 1;
  Dtype weight_dtype = Dtype::fp32;
  Options options;
  // Old log-probabilities of GRPO lie this far from the policy's (standard deviation), references twice as far. Tokens
  // within 1e-3 of the clip are moved away from it: there a rounding decides between two gradients.
  float off_policy = 0.15F;
};

class Problem {
 public:
  explicit Problem(const ProblemOptions& options);

  void run(Context& context, Stream stream = nullptr);
  void observe(std::function<void(const char*)> after_stage) { options_.options.after_stage = std::move(after_stage); }
  // Every result a NaN, and the workspace too.
  void poison();

  // In bf16, whatever the operands' dtype: their values are the same.
  const Linear& linear() const { return data_.linear; }
  const HostParameters& parameters() const { return parameters_; }
  const ProblemOptions& options() const { return options_; }
  int64_t workspace_bytes() const { return workspace_.count(); }

  Data& data() { return data_; }
  Buffer<float>& loss() { return loss_; }
  Buffer<float>& log_probabilities() { return log_probabilities_; }
  Buffer<char>& hidden_gradient() { return hidden_gradient_; }
  Buffer<char>& weight_gradient() { return weight_gradient_; }
  Buffer<float>& bias_gradient() { return bias_gradient_; }

 private:
  void give_parameters();

  ProblemOptions options_;
  Data data_;
  Buffer<char> hidden_;  // in the operands' dtype, where that is not bf16
  Buffer<char> weight_;
  Buffer<char> bias_;
  Linear used_;
  HostParameters parameters_;
  LossParameters given_;
  Buffer<float> advantages_;
  Buffer<float> old_;
  Buffer<float> reference_;
  Buffer<bool> desirable_;
  Buffer<float> kl_;
  Buffer<float> loss_;
  Buffer<float> log_probabilities_;
  Buffer<char> hidden_gradient_;
  Buffer<char> weight_gradient_;
  Buffer<float> bias_gradient_;
  Buffer<char> workspace_;
};

struct Errors {
  double loss = 0;               // absolute
  double log_probabilities = 0;  // the largest, absolute
  double hidden = 0;             // relative, Frobenius
  double weight = 0;
  double bias = 0;
};

Errors errors(Problem& problem, const Reference& reference);
std::string print(const Errors& errors);

}  // namespace regather::kernels::testing
