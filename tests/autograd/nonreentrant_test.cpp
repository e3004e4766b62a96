#include <ATen/ops/empty.h>
#include <ATen/ops/layer_norm.h>
#include <gtest/gtest.h>

#include "case/fault.h"
#include "tests/autograd/blocks.h"

namespace regather::autograd {
namespace {

class NonReentrant : public ::testing::TestWithParam<bool> {
 protected:
  CheckpointOptions options() const { return {.early_stop = GetParam()}; }
};
INSTANTIATE_TEST_SUITE_P(EarlyStop, NonReentrant, ::testing::Bool());

TEST_P(NonReentrant, GivesTheSameBitsAsNoCheckpoint) {
  const Layer first;
  const Layer second;
  const at::Tensor x = at::randn({4, 8}).requires_grad_(true);
  const std::vector<at::Tensor> leaves{x, first.weight, first.scale, second.weight, second.scale};
  int runs = 0;
  const Block block = [&](const at::Tensor& input) {
    ++runs;
    return second(first(input));
  };
  const auto plain = gradients(leaves, [&] { return block(x); });
  runs = 0;
  EXPECT_TRUE(same(plain, gradients(leaves, [&] { return checkpoint_nonreentrant(block, x, options()); })));
  EXPECT_EQ(runs, 2) << "once forward, once in backward, however many tensors are unpacked";
}

TEST_P(NonReentrant, WorksWhenTheInputNeedsNoGradient) {
  const Layer layer;
  const at::Tensor x = at::randn({4, 8});
  const auto plain = gradients({layer.weight, layer.scale}, [&] { return layer(x); });
  EXPECT_TRUE(same(
      plain, gradients({layer.weight, layer.scale}, [&] { return checkpoint_nonreentrant(layer, x, options()); })));
}

TEST_P(NonReentrant, Nests) {
  const Layer inner;
  const Layer outer;
  const at::Tensor x = at::randn({4, 8}).requires_grad_(true);
  const std::vector<at::Tensor> leaves{x, inner.weight, inner.scale, outer.weight, outer.scale};
  const auto plain = gradients(leaves, [&] { return outer(inner(x)); });
  const Block nested = [&](const at::Tensor& input) { return outer(checkpoint_nonreentrant(inner, input, options())); };
  EXPECT_TRUE(same(plain, gradients(leaves, [&] { return checkpoint_nonreentrant(nested, x, options()); })));
}

TEST_P(NonReentrant, RestoresTheRanksRandomStateAndLeavesItUndisturbed) {
  const Layer layer;
  const at::Tensor x = at::randn({4, 8}).requires_grad_(true);
  const Block block = [&](const at::Tensor& input) { return dropout(layer(input)); };
  seed_rank(5);
  const auto plain = gradients({x, layer.weight}, [&] { return block(x); });
  const at::Tensor after_plain = rank_generator().get_state();
  seed_rank(5);
  EXPECT_TRUE(same(plain, gradients({x, layer.weight}, [&] { return checkpoint_nonreentrant(block, x, options()); })));
  EXPECT_TRUE(rank_generator().get_state().equal(after_plain));

  seed_fault(Fault::skip_rng_restore);
  seed_rank(5);
  EXPECT_FALSE(same(plain, gradients({x, layer.weight}, [&] { return checkpoint_nonreentrant(block, x, options()); })));
  seed_fault(Fault::none);
}

TEST_P(NonReentrant, NamesThePositionOfAFrozenTensorThatWasEmptied) {
  // deepspeed#8130 in small: what the recompute saved is the live parameter, emptied when its module ended.
  at::Tensor scale = at::randn({8});
  const at::Tensor whole = scale.clone();
  int runs = 0;
  const Block block = [&](const at::Tensor& input) {
    scale.set_data(whole);
    const at::Tensor y = (scale * input).tanh();
    if (++runs > 1) scale.set_data(at::empty({0}));
    return (y * y).sum();
  };
  const at::Tensor x = at::randn({4, 8}).requires_grad_(true);
  try {
    gradients({x}, [&] { return checkpoint_nonreentrant(block, x, options()); });
    FAIL() << "expected CheckpointError";
  } catch (const CheckpointError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("tensor at position 0:"), std::string::npos) << text;
    EXPECT_NE(text.find("saved metadata: {'shape': torch.Size([8]), 'dtype': torch.float32, 'device': "
                        "device(type='cpu')}"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("recomputed metadata: {'shape': torch.Size([0])"), std::string::npos) << text;
  }
}

TEST_P(NonReentrant, HoldsATrainableTensorDetached) {
  at::Tensor scale = at::randn({8}).requires_grad_(true);
  const at::Tensor whole = scale.detach().clone();
  const at::Tensor x = at::randn({4, 8}).requires_grad_(true);
  const auto plain = gradients({x}, [&] { return (scale * x).tanh(); });
  int runs = 0;
  const Block block = [&](const at::Tensor& input) {
    const at::Tensor y = (scale * input).tanh();
    if (++runs == 2) {
      const at::NoGradGuard no_grad;
      scale.set_data(at::empty({0}));
    }
    return y;
  };
  // Restored before its gradient arrives, as a pre-backward fetch does.
  x.register_hook([&](const at::Tensor&) { scale.set_data(whole); });
  std::vector<at::Tensor> checkpointed;
  try {
    checkpointed = gradients({x}, [&] { return checkpoint_nonreentrant(block, x, options()); });
  } catch (const CheckpointError& error) {
    FAIL() << error.what();
  } catch (const std::exception&) {
    // AccumulateGrad may meet the empty parameter: not what this is about.
    return;
  }
  EXPECT_TRUE(same(plain, checkpointed));
}

TEST_P(NonReentrant, SaysWhenFewerTensorsAreSaved) {
  const at::Tensor x = at::randn({4, 8}).requires_grad_(true);
  int runs = 0;
  const Block block = [&](const at::Tensor& input) { return ++runs == 1 ? input.tanh().tanh() : input.tanh(); };
  EXPECT_THROW(gradients({x}, [&] { return checkpoint_nonreentrant(block, x, options()); }), CheckpointError);
}

TEST_P(NonReentrant, AFailedRecomputeCanBeTriedAgain) {
  const Layer layer;
  const at::Tensor x = at::randn({4, 8}).requires_grad_(true);
  const auto plain = gradients({x, layer.weight}, [&] { return layer(x); });
  int runs = 0;
  const Block block = [&](const at::Tensor& input) {
    if (++runs == 2) throw std::runtime_error("out of luck");
    return layer(input);
  };
  install_engine();
  x.mutable_grad() = at::Tensor();
  layer.weight.mutable_grad() = at::Tensor();
  const at::Tensor y = checkpoint_nonreentrant(block, x, options()).sum();
  EXPECT_THROW(y.backward({}, /*retain_graph=*/true), std::runtime_error);
  y.backward();
  EXPECT_TRUE(same(plain, {x.grad(), layer.weight.grad()}));
}

TEST(NonReentrantOptions, EarlyStopSkipsWhatNobodyNeeds) {
  const at::Tensor x = at::randn({4, 8}).requires_grad_(true);
  int ends = 0;
  const Block block = [&](const at::Tensor& input) {
    at::Tensor y = input.tanh();
    y = y + 1;  // saves nothing
    ++ends;
    return y;
  };
  gradients({x}, [&] { return checkpoint_nonreentrant(block, x, {.early_stop = true}); });
  EXPECT_EQ(ends, 1);
  gradients({x}, [&] { return checkpoint_nonreentrant(block, x, {.early_stop = false}); });
  EXPECT_EQ(ends, 3);
}

TEST(NonReentrantOptions, MoreTensorsInTheRecomputeAreNamedWithoutEarlyStop) {
  const at::Tensor x = at::randn({4, 8}).requires_grad_(true);
  int runs = 0;
  const Block block = [&](const at::Tensor& input) { return ++runs == 1 ? input.tanh() : input.tanh().tanh(); };
  EXPECT_THROW(gradients({x}, [&] { return checkpoint_nonreentrant(block, x, {.early_stop = false}); }),
               CheckpointError);
}

TEST(NonReentrantOptions, WithoutGradItJustRuns) {
  const at::NoGradGuard no_grad;
  const Layer layer;
  EXPECT_FALSE(checkpoint_nonreentrant(layer, at::randn({4, 8})).requires_grad());
  EXPECT_FALSE(in_backward());
}

}  // namespace
}  // namespace regather::autograd
