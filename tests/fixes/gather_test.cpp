#include "fixes/gather.h"

#include <ATen/core/grad_mode.h>

#include "base/error.h"
#include "shard/ddp/ddp.h"
#include "shard/zero/zero3.h"
#include "tests/shard/small_model.h"

namespace regather::fixes {
namespace {

using shard::SmallModel;

int64_t collectives(const comm::World& world) {
  int64_t calls = 0;
  for (const auto& [kind, count] : world.counts()) calls += count.calls;
  return calls;
}

TEST(Gather, WeightAndBiasAreWholeInsideAndPartitionedAfter) {
  shard::on_ranks(2, [](comm::World& world) {
    SmallModel model;
    shard::Zero3 zero(world, model, {});
    Gather gather(zero);
    const at::Tensor& weight = model.first->weight_handle();
    const at::Tensor& bias = model.first->bias_handle();
    const at::Tensor sizes = gather.around({weight, bias}, [&](const auto&) {
      EXPECT_TRUE(zero.is_whole(weight));
      EXPECT_TRUE(zero.is_whole(bias));
      return at::ones({weight.numel(), bias.numel()});
    });
    EXPECT_EQ(sizes.sizes(), (std::vector<int64_t>{15, 5}));
    EXPECT_FALSE(zero.is_whole(weight));
    EXPECT_FALSE(zero.is_whole(bias));
  });
}

// A head and its reference's can be one tensor: it is gathered once and partitioned once, at the outermost end.
TEST(Gather, TheSameTensorCountsOnceByIdentity) {
  shard::on_ranks(2, [](comm::World& world) {
    SmallModel model;
    shard::Zero3 zero(world, model, {});
    Gather gather(zero);
    const at::Tensor& weight = model.second->weight_handle();
    const at::Tensor again = weight;
    const int64_t before = collectives(world);
    gather.around({weight, again}, [&](const auto&) {
      EXPECT_EQ(collectives(world), before + 1);
      gather.around({again}, [](const auto&) { return at::ones({1}); });
      EXPECT_TRUE(zero.is_whole(weight)) << "the inner scope must not take it away";
      return at::ones({1});
    });
    EXPECT_EQ(collectives(world), before + 1);
    EXPECT_FALSE(zero.is_whole(weight));
  });
}

// A tied head inside the forward: the embedding's module holds it, and a scope that partitioned it at its end would be
// refused, or would empty it under that module.
TEST(Gather, WhatARunningModuleHoldsIsLeftAlone) {
  shard::on_ranks(2, [](comm::World& world) {
    SmallModel model;
    shard::Zero3 zero(world, model, {});
    Gather gather(zero);
    zero.forward([&] {
      return model.first->call(shard::rank_input(world.rank()), [&](const at::Tensor& x) {
        const int64_t before = collectives(world);
        gather.around({model.first->weight_handle()}, [](const auto&) { return at::ones({1}); });
        EXPECT_EQ(collectives(world), before);
        EXPECT_TRUE(zero.is_whole(model.first->weight_handle()));
        return model.first->forward(x);
      });
    });
    EXPECT_FALSE(zero.is_whole(model.first->weight_handle()));
  });
}

TEST(Gather, DoesNothingWhereParametersAreNeverPartitioned) {
  shard::on_ranks(2, [](comm::World& world) {
    SmallModel model;
    shard::Ddp ddp(world, model, {});
    Gather gather(ddp);
    const int64_t before = collectives(world);
    gather.around({model.first->weight_handle()}, [](const auto&) { return at::ones({1}); });
    EXPECT_EQ(collectives(world), before);
  });
}

}  // namespace
}  // namespace regather::fixes
