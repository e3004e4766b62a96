// AdamW with decoupled weight decay (Loshchilov and Hutter 2019, as torch.optim.AdamW orders the operations).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace regather::shard {

// eps is larger than the usual 1e-8 on purpose: with a tiny eps the first update is lr * sign(gradient), which hides a
// scaled gradient and turns a rounding error at a near-zero entry into a full-size difference.
struct OptimizerOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-3;
  double weight_decay = 0.01;
};

// The moments of one parameter or shard, of its shape, zero at first.
struct AdamWState {
  at::Tensor exp_avg;
  at::Tensor exp_avg_sq;
  int64_t step = 0;
};

// Updates `parameter` in place from `gradient` (same shape, same dtype), without grad mode.
void adamw(at::Tensor& parameter, const at::Tensor& gradient, AdamWState& state, const OptimizerOptions& options);

}  // namespace regather::shard
