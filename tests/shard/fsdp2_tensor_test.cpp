// Sharded tensors on their own: which operators work on the shards, and that no other ever sees one.
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

#include "shard/fsdp2/sharded_tensor.h"
#include "tests/shard/small_model.h"

namespace regather::shard {
namespace {

// The same on every rank: 0, 1, 2, ...
at::Tensor counting(at::IntArrayRef sizes) {
  int64_t numel = 1;
  for (const int64_t size : sizes) numel *= size;
  return at::arange(numel, at::kFloat).view(sizes);
}

// `whole`, sharded over `world`.
at::Tensor shard_of(const at::Tensor& whole, comm::World& world) {
  const int64_t chunk = rows_per_rank(whole.size(0), world.size());
  const int64_t start = std::min(chunk * world.rank(), whole.size(0));
  return make_sharded(whole.narrow(0, start, std::min(chunk, whole.size(0) - start)).clone(), whole.sizes(), world);
}

std::string text_of(const std::function<void()>& function) {
  try {
    function();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

TEST(ShardedTensor, EachRankHoldsItsRowsAndTheLastOnesFewerOrNone) {
  on_ranks(4, [](comm::World& world) {
    const at::Tensor whole = counting({5, 3});
    const at::Tensor sharded = shard_of(whole, world);
    EXPECT_EQ(sharded.sizes(), whole.sizes());
    EXPECT_EQ(sharded.strides(), whole.strides());
    EXPECT_EQ(sharded.scalar_type(), at::kFloat);
    const int64_t rows[] = {2, 2, 1, 0};
    EXPECT_EQ(local_shard(sharded).size(0), rows[world.rank()]);
    EXPECT_TRUE(full_tensor(sharded).equal(whole));
  });
}

TEST(ShardedTensor, BesideAPlainTensorEveryOperatorNamesItselfAndFails) {
  on_ranks(2, [](comm::World& world) {
    const at::Tensor weight = shard_of(counting({6, 4}), world).requires_grad_(true);
    const at::Tensor ids = at::arange(3);
    const at::Tensor x = at::ones({3, 4});
    const std::string rest =
        " got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor before calling distributed "
        "operators!";
    EXPECT_EQ(text_of([&] { at::embedding(weight, ids); }), "aten.embedding.default" + rest);
    EXPECT_EQ(text_of([&] { at::linear(x, weight); }), "aten.mm.default" + rest);
    EXPECT_EQ(text_of([&] { x.mul(weight.t().t().clone().narrow(0, 0, 3)); }).substr(0, 11), "aten.slice.");
    EXPECT_EQ(text_of([&] { at::add(at::ones({6, 4}), weight); }), "aten.add.Tensor" + rest);
    EXPECT_EQ(text_of([&] { at::ones({6, 4}).copy_(weight); }), "aten.copy_.default" + rest);
    EXPECT_EQ(text_of([&] { at::cat({at::ones({6, 4}), weight}); }), "aten.cat.default" + rest);
  });
}

TEST(ShardedTensor, AnOperatorWithoutARuleSaysSo) {
  on_ranks(2, [](comm::World& world) {
    const at::Tensor weight = shard_of(counting({6, 4}), world);
    const auto expect_no_rule = [](const std::string& name, const std::function<void()>& function) {
      const std::string text = text_of(function);
      EXPECT_EQ(text.substr(0, text.find(" for ")), name + " has no sharding rule") << text;
    };
    expect_no_rule("aten.sum.default", [&] { static_cast<void>(weight.sum()); });
    expect_no_rule("aten.cat.default", [&] { at::cat({weight, weight}); });
    expect_no_rule("aten.mm.default", [&] { at::mm(weight, weight.t()); });
    expect_no_rule("aten.add.Tensor", [&] { at::add(weight, shard_of(counting({4}), world)); });
    expect_no_rule("aten.add.Tensor", [&] {
      at::add(shard_of(counting({4, 4}), world), shard_of(counting({4, 4}), world).t());
    });
    EXPECT_NE(text_of([&] { static_cast<void>(weight.const_data_ptr()); }), "no error") << "there is no storage";
  });
}

TEST(ShardedTensor, ElementwiseOperatorsRunOnTheShards) {
  on_ranks(3, [](comm::World& world) {
    const at::Tensor whole = counting({5, 3});
    at::Tensor a = shard_of(whole, world);
    const at::Tensor b = shard_of(whole + 1, world);
    EXPECT_TRUE(full_tensor(a + b).equal(whole + whole + 1));
    EXPECT_TRUE(full_tensor(a * 3).equal(whole * 3));
    EXPECT_TRUE(full_tensor(at::zeros_like(a)).equal(at::zeros_like(whole)));
    EXPECT_TRUE(full_tensor(a.to(at::kDouble)).equal(whole.to(at::kDouble)));
    EXPECT_TRUE(full_tensor(a.new_zeros({5, 3})).equal(at::zeros_like(whole)));
    const at::Tensor& same = a.mul_(2).add_(b).addcmul_(b, b, 0.5);
    EXPECT_TRUE(same.is_same(a)) << "an in-place operator hands back what it was given";
    EXPECT_TRUE(full_tensor(a).equal(whole * 2 + (whole + 1) + (whole + 1) * (whole + 1) * 0.5));
    a.zero_();
    EXPECT_EQ(local_shard(a).count_nonzero().item<int64_t>(), 0);
    a.copy_(b);
    EXPECT_TRUE(full_tensor(a).equal(whole + 1));
  });
}

TEST(ShardedTensor, AliasesShareTheShard) {
  on_ranks(2, [](comm::World& world) {
    const at::Tensor whole = counting({4, 3});
    at::Tensor leaf = shard_of(whole, world).requires_grad_(true);
    leaf.detach().mul_(2);
    EXPECT_TRUE(full_tensor(leaf.detach()).equal(whole * 2));
    leaf.variable_data().mul_(2);
    EXPECT_TRUE(full_tensor(leaf.detach()).equal(whole * 4));
    const at::Tensor turned = leaf.detach().t();
    EXPECT_EQ(turned.sizes(), std::vector<int64_t>({3, 4}));
    EXPECT_EQ(turned.strides(), std::vector<int64_t>({1, 3}));
    EXPECT_TRUE(full_tensor((turned + turned).t()).equal(whole * 8));
    leaf.set_data(shard_of(whole, world));
    EXPECT_TRUE(full_tensor(leaf.detach()).equal(whole));
    EXPECT_THROW(leaf.set_data(whole), std::exception);
  });
}

TEST(ShardedTensor, TheFullTensorsGradientIsEachRanksOwnRowsUnsummed) {
  on_ranks(2, [](comm::World& world) {
    const at::Tensor whole = counting({3, 2});
    const at::Tensor leaf = shard_of(whole, world).requires_grad_(true);
    for (int64_t times = 1; times <= 2; ++times) {
      (full_tensor(leaf) * (world.rank() + 1)).sum().backward();
      const at::Tensor gradient = leaf.grad();
      ASSERT_TRUE(is_sharded(gradient));
      EXPECT_EQ(gradient.sizes(), whole.sizes());
      EXPECT_TRUE(local_shard(gradient).eq(times * (world.rank() + 1)).all().item<bool>());
    }
  });
}

}  // namespace
}  // namespace regather::shard
