// Models of mixed dtypes under each backend: a packed frozen weight among float parameters.
#include <ATen/core/grad_mode.h>
#include <c10/util/intrusive_ptr.h>

#include "autograd/checkpoint.h"
#include "autograd/saved_hooks.h"
#include "base/error.h"
#include "shard/ddp/ddp.h"
#include "shard/fsdp2/fsdp2.h"
#include "shard/zero/zero3.h"
#include "tests/shard/small_model.h"

namespace regather::shard {
namespace {

// The second layer packed: 10 values in 5 bytes, which 2, 3 and 4 ranks do not share evenly; in floats 2 of them.
struct PackedModel : SmallModel {
  explicit PackedModel(at::ScalarType storage) {
    second->set_packed(model::pack(second->weight_handle(), storage));
    first->bias_handle().set_requires_grad(false);
  }
};

// As PackedModel trains, unsharded and dense: first.weight and norm.weight.
std::vector<at::Tensor> dense_gradients(int world) {
  SmallModel model;
  const auto packed = model::pack(model.second->weight_handle(), at::kByte);
  model.second->weight_handle().detach().copy_(model::dequantise(packed.packed, *packed.quantisation, at::kFloat));
  for (int rank = 0; rank < world; ++rank) (model(rank_input(rank)).square().sum() / world).backward();
  return {model.first->weight_handle().grad(), model.norm->parameters()[0].grad()};
}

void expect_gradients(Backend& backend, const std::vector<at::Tensor>& want) {
  const Named got = backend.full_gradients();
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(got[i].second.defined()) << got[i].first;
    EXPECT_LT(relative(got[i].second, want[i]), 1e-6) << got[i].first;
  }
}

std::shared_ptr<Backend> wrap(regather::Backend kind, comm::World& world, SmallModel& model) {
  BackendOptions options;
  options.optimizer.lr = 0;  // every step sees the same parameters
  options.optimizer.weight_decay = 0;
  return make_backend(kind, world, model, options);
}

struct Kind {
  const char* name;
  regather::Backend backend;
  at::ScalarType storage;
};

class PackedUnder : public ::testing::TestWithParam<std::tuple<Kind, int>> {
 protected:
  Kind kind() const { return std::get<0>(GetParam()); }
  int world_size() const { return std::get<1>(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Backends, PackedUnder,
                         ::testing::Combine(::testing::Values(Kind{"ddp", regather::Backend::ddp, at::kByte},
                                                              Kind{"zero3", regather::Backend::zero3, at::kByte},
                                                              Kind{"fsdp2", regather::Backend::fsdp2, at::kFloat}),
                                            ::testing::Values(1, 2, 3, 4)),
                         [](const auto& p) {
                           return std::string(std::get<0>(p.param).name) + std::to_string(std::get<1>(p.param));
                         });

TEST_P(PackedUnder, GradientsAreTheDenseModelsAndTheBytesStay) {
  const auto want = dense_gradients(world_size());
  on_ranks(world_size(), [&](comm::World& world) {
    PackedModel model(kind().storage);
    const at::Tensor bytes = model.second->weight_handle().detach().clone();
    const auto backend = wrap(kind().backend, world, model);
    for (int step = 0; step < 3; ++step) {
      backend->zero_gradients();
      backend->backward(backend->forward([&] { return model.forward(rank_input(world.rank())).square().sum(); }));
      expect_gradients(*backend, want);
      backend->step();
      const auto broken = backend->broken_invariants();
      EXPECT_TRUE(broken.empty()) << broken.front();
      for (const auto& [name, whole] : backend->full_parameters()) {
        if (name != "second.weight") continue;
        EXPECT_EQ(whole.scalar_type(), kind().storage);
        EXPECT_TRUE(at::equal(whole.view(at::kByte), bytes.view(at::kByte)));
      }
    }
  });
}

TEST(PackedDdp, RankZerosBytesWin) {
  on_ranks(2, [&](comm::World& world) {
    PackedModel model(at::kByte);
    const at::Tensor bytes = model.second->weight_handle().clone();
    const at::Tensor weight = model.first->weight_handle().detach().clone();
    if (world.rank() == 1) {
      model.second->weight_handle().fill_(7);
      model.first->weight_handle().detach().fill_(7);
    }
    const Ddp ddp(world, model, {});
    EXPECT_EQ(world.counts().at("broadcast").calls, 2) << "one a dtype";
    EXPECT_EQ(world.counts().at("broadcast").bytes, 4 * (15 + 5 + 5) + 5) << "bytes travel as bytes";
    EXPECT_TRUE(model.second->weight_handle().equal(bytes));
    EXPECT_TRUE(model.first->weight_handle().detach().equal(weight));
  });
}

TEST(PackedZero3, OneCollectiveADtype) {
  on_ranks(2, [&](comm::World& world) {
    PackedModel model(at::kByte);
    model.second->register_parameter("bias", at::zeros({2}), /*requires_grad=*/false);
    Zero3 zero(world, model, {});
    const auto calls = [&] { return world.counts().at("all_gather").calls; };
    zero.gathered(model.second->parameters(), [&] { return at::Tensor(); });
    const int64_t before = calls();
    zero.gathered(model.second->parameters(), [&] {
      EXPECT_EQ(model.second->weight_handle().nbytes(), 5U);
      return at::Tensor();
    });
    EXPECT_EQ(calls() - before, 2);
  });
}

// As bitsandbytes on DeepSpeed: the graph's view keeps what the release would have freed, until the graph goes.
TEST(PackedZero3, TheGraphKeepsTheBytesThatTheReleaseGivesUp) {
  on_ranks(2, [&](comm::World& world) {
    PackedModel model(at::kByte);
    Zero3 zero(world, model, {});
    c10::weak_intrusive_ptr<c10::StorageImpl> gathered{c10::intrusive_ptr<c10::StorageImpl>()};
    model.second->add_pre_forward([&](model::Module&, const at::Tensor& x) {
      gathered = model.second->weight_handle().storage().getWeakStorageImpl();
      return x;
    });
    at::Tensor loss = zero.forward([&] { return model.forward(rank_input(world.rank())).square().sum(); });
    EXPECT_EQ(model.second->weight_handle().numel(), 0) << "released";
    EXPECT_FALSE(gathered.expired());
    zero.backward(loss);
    loss = at::Tensor();
    EXPECT_TRUE(gathered.expired());
  });
}

// No saved-tensor hook sees the packed weight, so a release in the recompute does not fail the checkpoint's comparison,
// as it does for a frozen norm.
TEST(PackedZero3, ANonReentrantCheckpointDoesNotHoldIt) {
  autograd::install_engine();
  const auto want = dense_gradients(2);
  on_ranks(2, [&](comm::World& world) {
    PackedModel model(at::kByte);
    Zero3 zero(world, model, {});
    const autograd::Block block = [&](const at::Tensor& x) { return model.forward(x); };
    // The recompute goes to its end: an early stop would leave the last module, the packed one, unreleased.
    const autograd::CheckpointOptions options{.early_stop = false};
    zero.backward(zero.forward([&] {
      const at::Tensor x = rank_input(world.rank()).requires_grad_(true);
      return autograd::checkpoint_nonreentrant(block, x, options).square().sum();
    }));
    expect_gradients(zero, want);
    zero.step();
    EXPECT_TRUE(zero.broken_invariants().empty());
  });
}

TEST(PackedFsdp2, IntegersAreRefusedThoughFrozen) {
  on_ranks(2, [&](comm::World& world) {
    PackedModel model(at::kByte);
    try {
      const Fsdp2 fsdp(world, model, {}, {});
      ADD_FAILURE() << "expected libtorch's error";
    } catch (const c10::Error& error) {
      EXPECT_NE(std::string(error.what()).find("nly Tensors of floating point"), std::string::npos) << error.what();
    }
  });
}

// Frozen parameters of another dtype travel with the unit's trainable ones, as bytes.
TEST(PackedFsdp2, AUnitMayHaveFrozenParametersOfAnotherDtype) {
  for (const int world_size : {1, 2, 3}) {
    on_ranks(world_size, [&](comm::World& world) {
      SmallModel model;
      const at::Tensor bias = model.first->bias_handle();
      bias.set_requires_grad(false);
      bias.set_data(bias.detach().to(at::kDouble));
      const at::Tensor whole = bias.clone();
      const at::Tensor weight = model.first->weight_handle().detach().clone();
      Fsdp2 fsdp(world, model, {}, {model.first.get()});
      model.first->add_pre_forward([&](model::Module&, const at::Tensor& x) {
        EXPECT_TRUE(model.first->bias_handle().equal(whole));
        EXPECT_TRUE(model.first->weight_handle().detach().equal(weight));
        return x;
      });
      model.first->call(rank_input(world.rank()), [](const at::Tensor& x) { return x; });
      const int64_t rows = (5 + world_size - 1) / world_size;
      EXPECT_EQ(world.counts().at("all_gather").calls, 1);
      EXPECT_EQ(world.counts().at("all_gather").bytes, rows * (3 * 4 + 8));
    });
  }
}

}  // namespace
}  // namespace regather::shard
