#include "shard/adamw.h"

#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>

namespace regather::shard {
namespace {

TEST(AdamW, StepsAsTorchOptimDoes) {
  const OptimizerOptions options{.lr = 0.02, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-3, .weight_decay = 0.1};
  at::Tensor mine = at::randn({7}, at::kDouble);
  const at::Tensor theirs = mine.clone().requires_grad_(true);
  torch::optim::AdamW torch_adamw({theirs}, torch::optim::AdamWOptions(options.lr)
                                                .betas({options.beta1, options.beta2})
                                                .eps(options.eps)
                                                .weight_decay(options.weight_decay));
  AdamWState state;
  for (int step = 0; step < 5; ++step) {
    const at::Tensor gradient = at::randn({7}, at::kDouble);
    theirs.mutable_grad() = gradient;
    torch_adamw.step();
    adamw(mine, gradient, state, options);
    EXPECT_LT((mine - theirs.detach()).abs().max().item<double>(), 1e-14) << "step " << step;
  }
}

}  // namespace
}  // namespace regather::shard
