#include <gtest/gtest.h>

#include <thread>

#include "tests/autograd/blocks.h"

namespace regather::autograd {
namespace {

TEST(Reentrant, GivesTheSameBitsAsNoCheckpoint) {
  const Layer first;
  const Layer second;
  const at::Tensor x = at::randn({4, 8}).requires_grad_(true);
  const std::vector<at::Tensor> leaves{x, first.weight, first.scale, second.weight, second.scale};
  const auto plain = gradients(leaves, [&] { return second(first(x)); });
  EXPECT_TRUE(
      same(plain, gradients(leaves, [&] { return checkpoint_reentrant(second, checkpoint_reentrant(first, x)); })));
}

TEST(Reentrant, NestsAndMixesWithNonReentrant) {
  const Layer inner;
  const Layer outer;
  const at::Tensor x = at::randn({4, 8}).requires_grad_(true);
  const std::vector<at::Tensor> leaves{x, inner.weight, inner.scale, outer.weight, outer.scale};
  const auto plain = gradients(leaves, [&] { return outer(inner(x)); });
  const Block reentrant_inside = [&](const at::Tensor& y) { return outer(checkpoint_reentrant(inner, y)); };
  const Block nonreentrant_inside = [&](const at::Tensor& y) { return outer(checkpoint_nonreentrant(inner, y)); };
  EXPECT_TRUE(same(plain, gradients(leaves, [&] { return checkpoint_reentrant(reentrant_inside, x); })));
  EXPECT_TRUE(same(plain, gradients(leaves, [&] { return checkpoint_reentrant(nonreentrant_inside, x); })));
  EXPECT_TRUE(same(plain, gradients(leaves, [&] { return checkpoint_nonreentrant(reentrant_inside, x); })));
}

TEST(Reentrant, AnInputWithoutGradientReachesNoParameter) {
  const Layer layer;
  const int64_t before = reentrant_calls_without_graph();
  const at::Tensor y = checkpoint_reentrant(layer, at::randn({4, 8}));
  EXPECT_FALSE(y.requires_grad());
  EXPECT_EQ(reentrant_calls_without_graph(), before + 1);
}

TEST(Reentrant, RestoresTheRanksRandomStateAndLeavesItUndisturbed) {
  const Layer layer;
  const at::Tensor x = at::randn({4, 8}).requires_grad_(true);
  const Block block = [&](const at::Tensor& input) { return dropout(layer(input)); };
  seed_rank(5);
  const auto plain = gradients({x, layer.weight}, [&] { return block(x); });
  const at::Tensor after_plain = rank_generator().get_state();
  seed_rank(5);
  EXPECT_TRUE(same(plain, gradients({x, layer.weight}, [&] { return checkpoint_reentrant(block, x); })));
  EXPECT_TRUE(rank_generator().get_state().equal(after_plain));
}

TEST(Reentrant, RanksAsThreadsDrawFromTheirOwnGenerators) {
  install_engine();
  const Layer layer;
  const at::Tensor x = at::randn({64, 8});
  const auto run = [&](uint64_t seed) {
    seed_rank(seed);
    const at::Tensor input = x.clone().requires_grad_(true);
    const at::Tensor weight = layer.weight.detach().clone().requires_grad_(true);
    const Block block = [&](const at::Tensor& y) { return dropout(at::linear(y, weight)); };
    for (int i = 0; i < 20; ++i) checkpoint_reentrant(block, input).sum().backward();
    return weight.grad();
  };
  const at::Tensor alone[] = {run(1), run(2)};
  at::Tensor together[2];
  {
    std::jthread first([&] { together[0] = run(1); });
    std::jthread second([&] { together[1] = run(2); });
  }
  EXPECT_TRUE(together[0].equal(alone[0]));
  EXPECT_TRUE(together[1].equal(alone[1]));
}

}  // namespace
}  // namespace regather::autograd
