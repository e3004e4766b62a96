#include "shard/ddp/ddp.h"

#include "base/error.h"

#include "case/fault.h"
#include "tests/shard/small_model.h"

namespace regather::shard {
namespace {

class DdpWorlds : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Worlds, DdpWorlds, ::testing::Values(1, 2, 4));

TEST_P(DdpWorlds, AveragesOverRanksInsideTheWrappersForward) {
  const auto want = mean_gradients(GetParam());
  on_ranks(GetParam(), [&](comm::World& world) {
    SmallModel model;
    Ddp ddp(world, model, {});
    for (int step = 0; step < 3; ++step) {
      ddp.zero_gradients();
      ddp.backward(ddp.forward([&] { return model.forward(rank_input(world.rank())).square().sum(); }));
      const Named got = ddp.full_gradients();
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < got.size(); ++i) EXPECT_LT(relative(got[i].second, want[i]), 1e-6) << got[i].first;
    }
    EXPECT_TRUE(ddp.observations().empty());
  });
}

TEST(Ddp, TheUnwrappedModelLeavesTheReducerUnarmed) {
  on_ranks(2, [&](comm::World& world) {
    SmallModel alone;
    alone(rank_input(world.rank())).square().sum().backward();
    SmallModel model;
    Ddp ddp(world, model, {});
    ddp.backward(model(rank_input(world.rank())).square().sum());
    const auto local = alone.parameters();
    const Named got = ddp.full_gradients();
    for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(got[i].second.equal(local[i].grad())) << got[i].first;
    ASSERT_EQ(ddp.observations().size(), 1U);
    EXPECT_EQ(ddp.observations()[0].mechanism, "reducer_unarmed");
  });
}

TEST(Ddp, AccumulatesWithoutReducingUntilTheLastMicroBatch) {
  const auto want = mean_gradients(2);
  on_ranks(2, [&](comm::World& world) {
    for (const bool divides : {true, false}) {
      SmallModel model;
      BackendOptions options;
      options.accumulation = {.steps = 2, .divides = divides};
      Ddp ddp(world, model, options);
      const auto reductions = [&] {
        return world.counts().contains("all_reduce") ? world.counts().at("all_reduce").calls : 0;
      };
      const int64_t before = reductions();
      for (int micro = 0; micro < 2; ++micro) {
        EXPECT_EQ(reductions(), before);
        ddp.backward(ddp.forward([&] { return model.forward(rank_input(world.rank())).square().sum(); }));
      }
      EXPECT_GT(reductions(), before);
      const Named got = ddp.full_gradients();
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_LT(relative(got[i].second, want[i] * (divides ? 1 : 2)), 1e-6) << got[i].first;
      }
      EXPECT_TRUE(ddp.observations().empty());
    }
  });
}

TEST(Ddp, AnUnusedParameterIsTheReducersOwnErrorInTheNextForward) {
  on_ranks(2, [&](comm::World& world) {
    SmallModel model;
    Ddp ddp(world, model, {});
    const auto only_first = [&] { return (*model.first)(rank_input(world.rank())).square().sum(); };
    ddp.backward(ddp.forward(only_first));
    try {
      ddp.forward(only_first);
      ADD_FAILURE() << "expected the reducer's error";
    } catch (const c10::Error& error) {
      EXPECT_NE(std::string(error.what()).find("Expected to have finished reduction in the prior iteration"),
                std::string::npos)
          << error.what();
    }
  });
}

TEST(Ddp, NothingTrainableIsAClearError) {
  on_ranks(1, [&](comm::World& world) {
    SmallModel model;
    for (const auto& parameter : model.parameters()) parameter.set_requires_grad(false);
    EXPECT_THROW(Ddp(world, model, {}), Error);
  });
}

TEST(Ddp, RankZerosParametersWin) {
  on_ranks(2, [&](comm::World& world) {
    SmallModel model;
    const at::Tensor original = model.first->weight_handle().detach().clone();
    if (world.rank() == 1) model.first->weight_handle().detach().fill_(7);
    const Ddp ddp(world, model, {});
    EXPECT_TRUE(model.first->weight_handle().detach().equal(original));
  });
}

}  // namespace
}  // namespace regather::shard
