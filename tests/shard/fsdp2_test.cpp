// FSDP2 on a small model: what is whole when, gradients and steps against the unsharded ones, checkpoints, ties.
#include "shard/fsdp2/fsdp2.h"

#include "autograd/checkpoint.h"
#include "autograd/saved_hooks.h"
#include "shard/fsdp2/sharded_tensor.h"
#include "tests/shard/small_model.h"

namespace regather::shard {
namespace {

using model::Module;

// A root with `first` as a unit of its own: [5, 3] and [5] there, [5] and [2, 5] at the root.
std::vector<Module*> first_alone(const SmallModel& model) { return {model.first.get()}; }
std::vector<Module*> all_alone(const SmallModel& model) {
  return {model.first.get(), model.norm.get(), model.second.get()};
}

at::Tensor wrapped_loss(Fsdp2& fsdp, SmallModel& model, int rank) {
  return fsdp.forward([&, rank] { return model.forward(rank_input(rank)).square().sum(); });
}

void expect_gradients(Fsdp2& fsdp, const std::vector<at::Tensor>& want) {
  const Named got = fsdp.full_gradients();
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(got[i].second.defined()) << got[i].first;
    EXPECT_LT(relative(got[i].second, want[i]), 1e-6) << got[i].first;
  }
}

void expect_settled(Fsdp2& fsdp) {
  const auto broken = fsdp.broken_invariants();
  EXPECT_TRUE(broken.empty()) << broken.front();
}

class Fsdp2Worlds : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Worlds, Fsdp2Worlds, ::testing::Values(1, 2, 3, 4));

TEST_P(Fsdp2Worlds, AveragesOverRanksAndReshardsEverything) {
  const auto want = mean_gradients(GetParam());
  on_ranks(GetParam(), [&](comm::World& world) {
    SmallModel model;
    BackendOptions options;
    options.optimizer.lr = 0;  // every step sees the same parameters
    options.optimizer.weight_decay = 0;
    Fsdp2 fsdp(world, model, options, first_alone(model));
    for (const auto& parameter : model.parameters()) EXPECT_TRUE(is_sharded(parameter));
    for (int step = 0; step < 3; ++step) {
      fsdp.zero_gradients();
      fsdp.backward(wrapped_loss(fsdp, model, world.rank()));
      expect_gradients(fsdp, want);
      fsdp.step();
      expect_settled(fsdp);
    }
  });
}

TEST(Fsdp2, AShardsUnionIsTheParameter) {
  on_ranks(4, [&](comm::World& world) {
    SmallModel whole;
    SmallModel model;
    Fsdp2 fsdp(world, model, {}, first_alone(model));
    const auto want = whole.parameters();
    const Named got = fsdp.full_parameters();
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(got[i].second.equal(want[i])) << got[i].first;
  });
}

TEST(Fsdp2, TheStepIsTheUnshardedAdamW) {
  on_ranks(2, [&](comm::World& world) {
    SmallModel whole;
    SmallModel model;
    Fsdp2 fsdp(world, model, {}, all_alone(model));
    std::vector<AdamWState> states(whole.parameters().size());
    for (int step = 0; step < 3; ++step) {
      whole.zero_grad();
      for (int rank = 0; rank < 2; ++rank) (whole(rank_input(rank)).square().sum() / 2).backward();
      fsdp.zero_gradients();
      fsdp.backward(wrapped_loss(fsdp, model, world.rank()));
      fsdp.step();
      const auto parameters = whole.parameters();
      const Named got = fsdp.full_parameters();
      for (size_t i = 0; i < parameters.size(); ++i) {
        at::Tensor parameter = parameters[i].detach();
        adamw(parameter, parameters[i].grad(), states[i], {});
        EXPECT_LT(relative(got[i].second, parameter), 1e-6) << got[i].first << ", step " << step;
      }
    }
  });
}

TEST(Fsdp2, AUnitIsWholeInItsForwardAndTheRootUntilItsBackward) {
  on_ranks(2, [&](comm::World& world) {
    SmallModel model;
    Fsdp2 fsdp(world, model, {}, first_alone(model));
    const at::Tensor in_unit = model.first->weight_handle();
    const at::Tensor in_root = model.second->weight_handle();
    EXPECT_FALSE(fsdp.is_whole(in_unit));
    EXPECT_FALSE(fsdp.is_whole(in_root));
    bool seen = false;
    model.first->add_post_forward([&](Module&, const at::Tensor& y) {
      seen = true;
      EXPECT_FALSE(fsdp.is_whole(in_unit)) << "hooks run in order: the unit's own has freed it";
      return y;
    });
    model.first->add_pre_forward([&](Module&, const at::Tensor& x) {
      EXPECT_TRUE(fsdp.is_whole(in_unit));
      EXPECT_TRUE(fsdp.is_whole(in_root));
      EXPECT_FALSE(is_sharded(model.first->weight_handle()));
      return x;
    });
    const at::Tensor loss = wrapped_loss(fsdp, model, world.rank());
    EXPECT_TRUE(seen);
    EXPECT_FALSE(fsdp.is_whole(in_unit));
    EXPECT_TRUE(fsdp.is_whole(in_root)) << "the root is not freed after forward";
    fsdp.backward(loss);
    EXPECT_FALSE(fsdp.is_whole(in_unit));
    EXPECT_FALSE(fsdp.is_whole(in_root));
    EXPECT_TRUE(model.first->weight_handle().is_same(in_unit));
    EXPECT_TRUE(fsdp.observations().empty());
  });
}

TEST(Fsdp2, CollectivesOfAStep) {
  on_ranks(2, [&](comm::World& world) {
    SmallModel model;
    Fsdp2 fsdp(world, model, {}, first_alone(model));
    fsdp.backward(wrapped_loss(fsdp, model, world.rank()));
    EXPECT_EQ(world.counts().at("all_gather").calls, 3) << "root, unit in forward, unit in backward";
    EXPECT_EQ(world.counts().at("reduce_scatter").calls, 2);
  });
}

TEST(Fsdp2, FullGradientsAndFullParametersTakeOneAllGatherEach) {
  on_ranks(2, [&](comm::World& world) {
    SmallModel model;
    Fsdp2 fsdp(world, model, {}, first_alone(model));
    fsdp.backward(wrapped_loss(fsdp, model, world.rank()));
    const int64_t before = world.counts().at("all_gather").calls;
    fsdp.full_gradients();
    EXPECT_EQ(world.counts().at("all_gather").calls, before + 1);
    fsdp.full_parameters();
    EXPECT_EQ(world.counts().at("all_gather").calls, before + 2);
    fsdp.zero_gradients();
    for (const auto& [name, gradient] : fsdp.full_gradients()) EXPECT_FALSE(gradient.defined()) << name;
    EXPECT_EQ(world.counts().at("all_gather").calls, before + 2) << "nothing to gather";
  });
}

TEST(Fsdp2, OutsideItsForwardAParameterMeetsPlainTensorsAndIsObserved) {
  on_ranks(2, [&](comm::World& world) {
    SmallModel model;
    Fsdp2 fsdp(world, model, {}, first_alone(model));
    const at::Tensor hidden = (*model.first)(rank_input(world.rank()));  // a unit has hooks of its own
    EXPECT_TRUE(fsdp.observations().empty());
    try {
      static_cast<void>((*model.norm)(hidden));
      ADD_FAILURE() << "expected an error";
    } catch (const c10::Error& error) {
      EXPECT_EQ(std::string(error.what_without_backtrace()).substr(0, 25), "aten.mul.Tensor got mixed");
    }
    ASSERT_EQ(fsdp.observations().size(), 1U);
    EXPECT_EQ(fsdp.observations()[0].mechanism, "mixed_dtensor");
    EXPECT_EQ(fsdp.observations()[0].detail, "norm.weight");
    const at::Tensor weight = model.second->weight();
    fsdp.gathered({weight}, [&] {
      EXPECT_TRUE(is_sharded(model.second->weight())) << "DeepSpeed's scope does nothing here";
      return at::Tensor();
    });
  });
}

TEST(Fsdp2, WithoutSyncGradientsAddUpWholeAndTheNextSyncReducesThem) {
  const auto mean = mean_gradients(2);
  on_ranks(2, [&](comm::World& world) {
    SmallModel model;
    Fsdp2 fsdp(world, model, {}, first_alone(model));
    fsdp.set_requires_gradient_sync(false);
    fsdp.backward(wrapped_loss(fsdp, model, world.rank()));
    for (const auto& [name, gradient] : fsdp.full_gradients()) EXPECT_FALSE(gradient.defined()) << name;
    EXPECT_EQ(world.counts().count("reduce_scatter"), 0U);
    fsdp.set_requires_gradient_sync(true);
    std::vector<at::Tensor> want;
    for (const auto& gradient : mean) want.push_back(gradient * 2);
    fsdp.backward(wrapped_loss(fsdp, model, world.rank()));
    expect_gradients(fsdp, want);
    expect_settled(fsdp);
  });
}

TEST(Fsdp2, WithSyncShardedGradientsAddUp) {
  const auto mean = mean_gradients(2);
  on_ranks(2, [&](comm::World& world) {
    SmallModel model;
    Fsdp2 fsdp(world, model, {}, all_alone(model));
    std::vector<at::Tensor> want;
    for (const auto& gradient : mean) want.push_back(gradient * 3);
    for (int i = 0; i < 3; ++i) fsdp.backward(wrapped_loss(fsdp, model, world.rank()));
    expect_gradients(fsdp, want);
    expect_settled(fsdp);
  });
}

TEST(Fsdp2, HooksOnTheModelsOwnParametersFireOnceABackward) {
  on_ranks(2, [&](comm::World& world) {
    SmallModel model;
    std::map<std::string, int> calls;
    for (const auto& item : model.named_parameters()) {
      item.value().register_hook([&, name = item.key()](const at::Tensor&) { ++calls[name]; });
    }
    Fsdp2 fsdp(world, model, {}, first_alone(model));
    fsdp.backward(wrapped_loss(fsdp, model, world.rank()));
    EXPECT_EQ(calls.size(), 4U);
    for (const auto& [name, count] : calls) EXPECT_EQ(count, 1) << name;
  });
}

TEST(Fsdp2, FrozenParametersAreGatheredAndGetNoGradient) {
  const auto mean = mean_gradients(2);
  on_ranks(2, [&](comm::World& world) {
    SmallModel model;
    // A unit without anything trainable, and one frozen parameter at the root.
    for (const auto& parameter : model.first->parameters()) parameter.set_requires_grad(false);
    model.norm->parameters()[0].set_requires_grad(false);
    Fsdp2 fsdp(world, model, {}, first_alone(model));
    fsdp.backward(wrapped_loss(fsdp, model, world.rank()));
    expect_gradients(fsdp, {mean[3]});
    for (const auto& item : model.named_parameters()) {
      EXPECT_EQ(item.value().grad().defined(), item.key() == "second.weight") << item.key();
    }
    fsdp.step();
    expect_settled(fsdp);
  });
}

TEST(Fsdp2, AParameterWithoutGradientIsLeftOut) {
  const auto mean = mean_gradients(2);
  on_ranks(2, [&](comm::World& world) {
    SmallModel model;
    Fsdp2 fsdp(world, model, {}, all_alone(model));
    const at::Tensor loss = fsdp.forward([&] { return (*model.first)(rank_input(world.rank())).square().sum(); });
    fsdp.backward(loss);
    for (const auto& [name, gradient] : fsdp.full_gradients()) {
      EXPECT_EQ(gradient.defined(), name.starts_with("first.")) << name;
    }
    fsdp.step();
    expect_settled(fsdp);
  });
}

TEST(Fsdp2, AUnitFetchedAheadForABackwardThatNeverComesIsDropped) {
  on_ranks(2, [&](comm::World& world) {
    SmallModel model;
    Fsdp2 fsdp(world, model, {}, all_alone(model));
    const at::Tensor loss = fsdp.forward([&] {
      const at::Tensor hidden = (*model.first)(rank_input(world.rank())).detach();
      return (*model.norm)(hidden).square().sum();
    });
    fsdp.backward(loss);
    expect_settled(fsdp);
    EXPECT_EQ(world.counts().at("all_gather").calls, 4) << "two forwards, norm's backward, and first's fetched ahead";
  });
}

// A head that shares the embedding's weight, all at the root.
class Tied : public Module {
 public:
  Tied() {
    embedding = register_module("embedding", std::make_shared<model::Embedding>(7, 3));
    head = register_module("head", std::make_shared<model::Linear>(embedding->weight_handle(), false));
    Random random(5);
    auto flat = embedding->weight_handle().detach().view({-1});
    for (int64_t i = 0; i < flat.numel(); ++i) flat[i] = random.normal();
  }
  at::Tensor forward(const at::Tensor& ids) override { return (*head)((*embedding)(ids)); }
  std::shared_ptr<model::Embedding> embedding;
  std::shared_ptr<model::Linear> head;
};

TEST(Fsdp2, ATiedParameterIsOneAndSwapsInBothModules) {
  on_ranks(2, [&](comm::World& world) {
    const auto ids = [](int rank) { return at::ones({2, 3}, at::kLong) * (rank + 2); };
    Tied whole;
    for (int rank = 0; rank < 2; ++rank) (whole(ids(rank)).square().sum() / 2).backward();
    Tied model;
    Fsdp2 fsdp(world, model, {});
    EXPECT_TRUE(model.head->weight_handle().is_same(model.embedding->weight_handle()));
    const at::Tensor loss = fsdp.forward([&] {
      EXPECT_TRUE(model.head->weight_handle().is_same(model.embedding->weight_handle()));
      EXPECT_FALSE(is_sharded(model.head->weight_handle()));
      return model.forward(ids(world.rank())).square().sum();
    });
    fsdp.backward(loss);
    EXPECT_TRUE(model.head->weight_handle().is_same(model.embedding->weight_handle()));
    expect_gradients(fsdp, {whole.embedding->weight_handle().grad()});
    expect_settled(fsdp);
  });
}

// The full tensor instead of the unit's own forward: the one gradient is each rank's own.
TEST(Fsdp2, AParameterReadThroughItsFullTensorIsNotReduced) {
  on_ranks(2, [&](comm::World& world) {
    SmallModel whole;
    (whole(rank_input(world.rank())).square().sum()).backward();
    const auto mean = mean_gradients(2);
    SmallModel model;
    Fsdp2 fsdp(world, model, {}, all_alone(model));
    fsdp.backward(fsdp.forward([&] {
      const at::Tensor hidden = (*model.norm)((*model.first)(rank_input(world.rank())));
      return hidden.matmul(full_tensor(model.second->weight()).t()).square().sum();
    }));
    const Named got = fsdp.full_gradients();
    for (size_t i = 0; i < 3; ++i) EXPECT_LT(relative(got[i].second, mean[i]), 1e-6) << got[i].first;
    const at::Tensor own = whole.second->weight_handle().grad();
    const at::Tensor mine = local_shard(model.second->weight_handle().grad());
    EXPECT_LT(relative(mine, own.narrow(0, world.rank(), 1)), 1e-6);
    EXPECT_GT(relative(got[3].second, mean[3]), 0.1);
  });
}

using Checkpoint = std::function<at::Tensor(const autograd::Block&, const at::Tensor&)>;
struct Variant {
  const char* name;
  bool around_units;  // the units' hooks run inside the recompute; else their children's alone
  bool input_grad;
  bool frozen_norm;
  Checkpoint checkpoint;
};

at::Tensor nonreentrant(const autograd::Block& block, const at::Tensor& x) {
  return autograd::checkpoint_nonreentrant(block, x);
}

// A block as a unit: first, norm and second under one module.
class Wrapped : public Module {
 public:
  Wrapped() { inner = register_module("inner", std::make_shared<SmallModel>()); }
  at::Tensor forward(const at::Tensor& x) override { return (*inner)(x); }
  std::shared_ptr<SmallModel> inner;
};

class UnderCheckpoint : public ::testing::TestWithParam<Variant> {};

TEST_P(UnderCheckpoint, GradientsAreRightAndEverythingIsSettled) {
  autograd::install_engine();
  const auto want = mean_gradients(2);
  on_ranks(2, [&](comm::World& world) {
    Wrapped model;
    if (GetParam().frozen_norm) model.inner->norm->parameters()[0].set_requires_grad(false);
    Fsdp2 fsdp(world, model, {}, {model.inner.get()});
    const autograd::Block children = [&](const at::Tensor& x) { return model.inner->forward(x); };
    const autograd::Block unit = [&](const at::Tensor& x) { return (*model.inner)(x); };
    for (int step = 0; step < 2; ++step) {
      fsdp.zero_gradients();
      const at::Tensor x = rank_input(world.rank()).requires_grad_(GetParam().input_grad);
      fsdp.backward(fsdp.forward([&] {
        const at::Tensor y =
            GetParam().around_units
                ? GetParam().checkpoint(unit, x)
                : model.inner->call(x, [&](const at::Tensor& value) { return GetParam().checkpoint(children, value); });
        return y.square().sum();
      }));
      std::vector<at::Tensor> expected = want;
      if (GetParam().frozen_norm) expected.erase(expected.begin() + 2);
      expect_gradients(fsdp, expected);
      expect_settled(fsdp);
      EXPECT_EQ(x.grad().defined(), GetParam().input_grad);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Variants, UnderCheckpoint,
    ::testing::Values(Variant{"nonreentrant_inside", false, true, false, nonreentrant},
                      Variant{"nonreentrant_inside_no_input_grad", false, false, false, nonreentrant},
                      Variant{"nonreentrant_inside_frozen", false, true, true, nonreentrant},
                      Variant{"nonreentrant_around", true, true, false, nonreentrant},
                      Variant{"nonreentrant_around_frozen", true, false, true, nonreentrant},
                      Variant{"reentrant_inside", false, true, false, autograd::checkpoint_reentrant},
                      Variant{"reentrant_inside_frozen", false, true, true, autograd::checkpoint_reentrant},
                      Variant{"reentrant_around", true, true, false, autograd::checkpoint_reentrant}),
    [](const auto& variant) { return variant.param.name; });

}  // namespace
}  // namespace regather::shard
