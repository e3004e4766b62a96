// A small head with hidden states and labels, on which a loss runs forward and backward.
#pragma once

#include <ATen/ops/linear.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "autograd/saved_hooks.h"
#include "case/fault.h"
#include "loss/batch.h"
#include "loss/fused_linear.h"

namespace regather::loss {

using at::Tensor;

struct Problem {
  explicit Problem(bool with_bias, at::ScalarType dtype = at::kFloat)
      : head(8, 32, with_bias), reference_head(8, 32, with_bias) {
    autograd::install_engine();
    for (model::Linear* linear : {&head, &reference_head}) {
      linear->weight_handle().detach().copy_(at::randn({32, 8}));
      if (with_bias) linear->bias_handle().detach().copy_(at::randn({32}));
      linear->to(dtype);
    }
    hidden = at::randn({4, 11, 8}, dtype).requires_grad_(true);
    reference_hidden = at::randn({4, 11, 8}, dtype);
    labels.narrow(1, 0, 3).fill_(kIgnore);
    labels[1].narrow(0, 8, 3).fill_(kIgnore);
  }

  // Loss and gradients of hidden states, weight and bias.
  std::vector<Tensor> run(const std::function<Tensor()>& loss) {
    hidden.mutable_grad() = Tensor();
    head.zero_grad();
    reference_head.zero_grad();
    const Tensor value = loss();
    (value * 3).backward();
    std::vector<Tensor> result{value.detach(), hidden.grad(), head.weight_handle().grad()};
    if (head.bias_handle().defined()) result.push_back(head.bias_handle().grad());
    return result;
  }
  Tensor logits() { return at::linear(hidden, head.weight(), head.bias()); }
  Tensor reference_logits() {
    return at::linear(reference_hidden, reference_head.weight(), reference_head.bias()).detach();
  }
  HeadInput policy() { return {hidden, head, scope}; }
  HeadInput reference() { return {reference_hidden, reference_head, scope}; }

  model::Linear head;
  model::Linear reference_head;
  HeadScope scope;
  Tensor hidden;
  Tensor reference_hidden;
  Tensor labels = at::randint(0, 32, {4, 11}, at::kLong);
};

// Between float32 by the kernels and float32 from the formula.
constexpr double kClose = 3e-6;
// A fault of the loss shows by more than this.
constexpr double kFar = 1e-4;

// What breaks a fused loss.
inline constexpr Fault kLossFaults[] = {Fault::lose_last_chunk,  Fault::count_pad, Fault::leave_target,
                                        Fault::scale_rows_twice, Fault::keep_sum,  Fault::swap_gradients,
                                        Fault::skip_mask};

// The largest relative distance; 1 when something is missing.
inline double worst(const std::vector<Tensor>& got, const std::vector<Tensor>& want) {
  double error = got.size() == want.size() ? 0 : 1;
  for (size_t i = 0; i < std::min(got.size(), want.size()); ++i) {
    if (!got[i].defined()) return 1;
    error = std::max(error, ((got[i] - want[i]).norm() / want[i].norm()).item<double>());
  }
  return error;
}

}  // namespace regather::loss
