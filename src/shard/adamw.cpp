#include "shard/adamw.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>

namespace regather::shard {

void adamw(at::Tensor& parameter, const at::Tensor& gradient, AdamWState& state, const OptimizerOptions& options) {
  const at::NoGradGuard no_grad;
  if (state.step == 0) {
    state.exp_avg = at::zeros_like(parameter);
    state.exp_avg_sq = at::zeros_like(parameter);
  }
  ++state.step;
  parameter.mul_(1.0 - options.lr * options.weight_decay);
  state.exp_avg.mul_(options.beta1).add_(gradient, 1.0 - options.beta1);
  state.exp_avg_sq.mul_(options.beta2).addcmul_(gradient, gradient, 1.0 - options.beta2);
  const double correction1 = 1.0 - std::pow(options.beta1, static_cast<double>(state.step));
  const double correction2 = 1.0 - std::pow(options.beta2, static_cast<double>(state.step));
  const at::Tensor denominator = (state.exp_avg_sq.sqrt() / std::sqrt(correction2)).add_(options.eps);
  parameter.addcdiv_(state.exp_avg, denominator, -options.lr / correction1);
}

}  // namespace regather::shard
