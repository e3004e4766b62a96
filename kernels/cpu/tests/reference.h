// A whole problem on the host: operands, what its loss is given, results; and the same in double precision.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cpu/linear_loss.h"
#include "kernels/tests/host_losses.h"

namespace regather::kernels::cpu::testing {

using kernels::testing::LossName;

struct ProblemOptions {
  LossName loss = LossName::sft;
  int64_t sequences = 1;
  int64_t length = 1;
  int64_t width = 1;
  int64_t vocab = 1;
  Dtype dtype = Dtype::fp32;
  Dtype weight_dtype = Dtype::fp32;  // of the weight's gradient
  bool bias = false;
  double masked = 0;  // share of rows
  double scale = 1;   // of logits, about
  double lean = 0;    // of the target's logit above the others
  uint64_t seed = 0;
};

struct Errors {
  double loss = 0;               // absolute
  double log_probabilities = 0;  // the largest, absolute
  double hidden = 0;             // relative, Frobenius; absolute where the right one is zero
  double weight = 0;
  double bias = 0;
};
std::string print(const Errors& errors);

class Problem {
 public:
  explicit Problem(const ProblemOptions& options);

  // Every result a NaN before, the reference beside it.
  Errors run(const Options& options);
  double right_loss() const { return loss_; }

  Linear linear;
  Results results;
  std::vector<char> hidden_gradient;
  std::vector<char> weight_gradient;

 private:
  void find_reference();

  ProblemOptions options_;
  std::vector<double> x_, w_, b_;  // as rounded to the dtype
  std::vector<char> hidden_, weight_, bias_;
  std::vector<int64_t> targets_;
  kernels::testing::HostParameters given_;
  LossParameters parameters_;
  bool desirable_[64] = {};
  float kl_ = 0;
  float value_ = 0;
  std::vector<float> bias_gradient_, log_probabilities_;
  double loss_ = 0;
  std::vector<double> lp_, hidden_right_, weight_right_, bias_right_;
};

}  // namespace regather::kernels::cpu::testing
