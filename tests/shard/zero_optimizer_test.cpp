#include "shard/zero/optimizer_partition.h"

#include "autograd/checkpoint.h"
#include "autograd/saved_hooks.h"
#include "base/error.h"
#include "tests/shard/small_model.h"

namespace regather::shard {
namespace {

using Stage = ZeroOptimizerPartition::Stage;

std::string stage_name(const ::testing::TestParamInfo<Stage>& stage) {
  return "stage" + std::to_string(static_cast<int>(stage.param));
}
class ZeroOptimizer : public ::testing::TestWithParam<Stage> {};
INSTANTIATE_TEST_SUITE_P(Stages, ZeroOptimizer, ::testing::Values(Stage::optimizer, Stage::gradients), stage_name);

at::Tensor loss_of(SmallModel& model, int rank) { return model.forward(rank_input(rank)).square().sum(); }

void expect_gradients(ZeroOptimizerPartition& zero, const std::vector<at::Tensor>& want, double factor = 1) {
  const Named got = zero.full_gradients();
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_LT(relative(got[i].second, want[i] * factor), 1e-6) << got[i].first;
}

TEST_P(ZeroOptimizer, AveragesOverRanksInsideAndOutsideTheEnginesForward) {
  for (const int size : {1, 2, 3, 4}) {
    const auto want = mean_gradients(size);
    on_ranks(size, [&](comm::World& world) {
      SmallModel model;
      ZeroOptimizerPartition zero(world, model, GetParam(), {});
      for (const bool direct : {false, true}) {
        zero.zero_gradients();
        zero.backward(direct ? loss_of(model, world.rank())
                             : zero.forward([&] { return loss_of(model, world.rank()); }));
        expect_gradients(zero, want);
        EXPECT_TRUE(zero.broken_invariants().empty());
      }
      EXPECT_TRUE(zero.observations().empty());
    });
  }
}

TEST_P(ZeroOptimizer, TheStepIsTheUnshardedAdamW) {
  on_ranks(4, [&](comm::World& world) {
    SmallModel whole;
    SmallModel model;
    ZeroOptimizerPartition zero(world, model, GetParam(), {});
    std::vector<AdamWState> states(whole.parameters().size());
    for (int step = 0; step < 3; ++step) {
      whole.zero_grad();
      for (int rank = 0; rank < 4; ++rank) (loss_of(whole, rank) / 4).backward();
      zero.zero_gradients();
      zero.backward(zero.forward([&] { return loss_of(model, world.rank()); }));
      zero.step();
      const auto parameters = whole.parameters();
      const Named got = zero.full_parameters();
      for (size_t i = 0; i < parameters.size(); ++i) {
        at::Tensor parameter = parameters[i].detach();
        adamw(parameter, parameters[i].grad(), states[i], {});
        EXPECT_LT(relative(got[i].second, parameter), 1e-6) << got[i].first << ", step " << step;
      }
    }
  });
}

TEST_P(ZeroOptimizer, DividesByAccumulationOnTheEnginesOutputsAlone) {
  const auto want = mean_gradients(2);
  on_ranks(2, [&](comm::World& world) {
    for (const bool divides : {true, false}) {
      SmallModel model;
      BackendOptions options;
      options.accumulation = {.steps = 2, .divides = divides};
      options.optimizer.lr = 0;
      options.optimizer.weight_decay = 0;
      ZeroOptimizerPartition zero(world, model, GetParam(), options);
      const double scale = divides ? 1 : 0.5;  // of the loss, by the caller
      for (const bool direct : {false, true}) {
        zero.zero_gradients();
        for (int micro = 0; micro < 2; ++micro) {
          zero.backward(scale * (direct ? loss_of(model, world.rank())
                                        : zero.forward([&] { return loss_of(model, world.rank()); })));
        }
        expect_gradients(zero, want, divides && direct ? 2 : 1);
        zero.step();
      }
      ASSERT_EQ(zero.observations().size(), divides ? 2U : 0U);
      if (divides) {
        EXPECT_EQ(zero.observations()[0].mechanism, "accumulation_scaled");
      }
    }
  });
}

TEST(ZeroOptimizerStages, OneReducesOncePerStepAndTwoInEveryBackward) {
  on_ranks(2, [&](comm::World& world) {
    for (const Stage stage : {Stage::optimizer, Stage::gradients}) {
      SmallModel model;
      BackendOptions options;
      options.accumulation = {.steps = 2, .divides = true};
      ZeroOptimizerPartition zero(world, model, stage, options);
      const auto reductions = [&] {
        return world.counts().contains("all_reduce") ? world.counts().at("all_reduce").calls : 0;
      };
      const int64_t before = reductions();
      zero.backward(zero.forward([&] { return loss_of(model, world.rank()); }));
      EXPECT_EQ(reductions() - before, stage == Stage::optimizer ? 0 : 1);
      EXPECT_EQ(model.first->weight_handle().grad().defined(), stage == Stage::optimizer) << "stage 2 keeps its part";
      zero.backward(zero.forward([&] { return loss_of(model, world.rank()); }));
      EXPECT_EQ(reductions() - before, stage == Stage::optimizer ? 1 : 2);
      EXPECT_FALSE(model.first->weight_handle().grad().defined());
    }
  });
}

// Reentrant checkpoints run a backward of their own each, so that a module behind two of them gets its gradient twice.
TEST(ZeroOptimizerStages, AGradientThatComesTwiceIsAnErrorAtStageTwoAlone) {
  autograd::install_engine();
  on_ranks(2, [&](comm::World& world) {
    for (const Stage stage : {Stage::optimizer, Stage::gradients}) {
      SmallModel model;
      ZeroOptimizerPartition zero(world, model, stage, {});
      const auto twice = [&] {
        const at::Tensor x = rank_input(world.rank()).requires_grad_(true);
        const auto block = [&](const at::Tensor& input) { return model.forward(input); };
        return (autograd::checkpoint_reentrant(block, x) + autograd::checkpoint_reentrant(block, x * 2)).square().sum();
      };
      const at::Tensor loss = zero.forward(twice);
      if (stage == Stage::optimizer) {
        zero.backward(loss);
        EXPECT_TRUE(zero.observations().empty());
        continue;
      }
      try {
        zero.backward(loss);
        ADD_FAILURE() << "expected an error";
      } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("came twice in one backward"), std::string::npos) << error.what();
      }
      EXPECT_EQ(zero.observations().at(0).mechanism, "reduced_twice");
      // The next step starts clean.
      zero.zero_gradients();
      zero.backward(zero.forward([&] { return loss_of(model, world.rank()); }));
      expect_gradients(zero, mean_gradients(2));
    }
  });
}

TEST_P(ZeroOptimizer, ABackwardThatReachesNoParameterIsAnError) {
  on_ranks(2, [&](comm::World& world) {
    SmallModel model;
    ZeroOptimizerPartition zero(world, model, GetParam(), {});
    const at::Tensor elsewhere = rank_input(world.rank()).requires_grad_(true);
    EXPECT_THROW(zero.backward(elsewhere.sum()), Error) << "a graph, but no parameter in it";
    EXPECT_THROW(zero.backward(rank_input(0).sum()), Error) << "no graph";
    EXPECT_THROW(zero.backward(elsewhere * 2), Error) << "no scalar";
  });
}

TEST_P(ZeroOptimizer, AParameterWithoutGradientCountsAsZero) {
  on_ranks(2, [&](comm::World& world) {
    SmallModel model;
    ZeroOptimizerPartition zero(world, model, GetParam(), {});
    zero.backward((*model.first)(rank_input(world.rank())).square().sum());
    for (const auto& [name, gradient] : zero.full_gradients()) {
      EXPECT_EQ(gradient.count_nonzero().item<int64_t>() > 0, name.starts_with("first.")) << name;
    }
  });
}

TEST_P(ZeroOptimizer, NothingTrainableIsAClearError) {
  on_ranks(1, [&](comm::World& world) {
    SmallModel model;
    for (const auto& parameter : model.parameters()) parameter.set_requires_grad(false);
    EXPECT_THROW(ZeroOptimizerPartition(world, model, GetParam(), {}), Error);
  });
}

}  // namespace
}  // namespace regather::shard
