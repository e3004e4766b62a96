// Hooks, reads and the tree of modules: what a sharding backend relies on.
#include "model/module.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "base/error.h"
#include "model/layers.h"
#include "model/qwen2.h"

namespace regather::model {
namespace {

at::Tensor ones() { return at::ones({2, 3}); }

TEST(Module, HooksRunInOrderAroundForwardAndPassTheTensorOn) {
  Linear linear(3, 4, true);
  std::vector<std::string> order;
  linear.add_pre_forward([&](Module& module, const Tensor& x) {
    EXPECT_EQ(&module, &linear);
    order.push_back("pre 1");
    return x * 2;
  });
  linear.add_pre_forward([&](Module&, const Tensor& x) {
    order.push_back("pre 2");
    EXPECT_EQ(x[0][0].item<float>(), 2);
    return x;
  });
  linear.set_read_hook([&](Module&, const Tensor&) { order.push_back("read"); });
  linear.add_post_forward([&](Module&, const Tensor& y) {
    order.push_back("post 1");
    EXPECT_EQ(y.size(1), 4);
    return y + 1;
  });
  linear.add_post_forward([&](Module&, const Tensor& y) {
    order.push_back("post 2");
    return y;
  });
  EXPECT_EQ(linear(ones())[0][0].item<float>(), 1);  // zero weights, plus one
  EXPECT_EQ(order, (std::vector<std::string>{"pre 1", "pre 2", "read", "read", "post 1", "post 2"}));
}

TEST(Module, CallRunsAnyBodyBetweenTheHooksAndTakesAnUndefinedTensor) {
  Linear linear(3, 4, false);
  int hooks = 0;
  linear.add_pre_forward([&](Module&, const Tensor& x) {
    EXPECT_FALSE(x.defined());
    ++hooks;
    return x;
  });
  linear.add_post_forward([&](Module&, const Tensor& y) { return ++hooks, y; });
  EXPECT_EQ(linear.call({}, [](const Tensor&) { return at::full({}, 7); }).item<int>(), 7);
  EXPECT_EQ(hooks, 2);
}

TEST(Module, PostForwardHooksDoNotRunAfterAnException) {
  Linear linear(3, 4, false);
  bool after = false;
  linear.add_post_forward([&](Module&, const Tensor& y) { return after = true, y; });
  EXPECT_THROW(linear.call(ones(), [](const Tensor&) -> Tensor { throw std::runtime_error("stop"); }),
               std::runtime_error);
  EXPECT_FALSE(after);
}

TEST(Module, ClearHooksRemovesEveryKind) {
  Linear linear(3, 4, false);
  const auto fail = [](Module&, const Tensor& x) { return ADD_FAILURE(), x; };
  linear.add_pre_forward(fail);
  linear.add_post_forward(fail);
  linear.set_read_hook([](Module&, const Tensor&) { ADD_FAILURE(); });
  linear.clear_hooks();
  linear(ones());
}

TEST(Module, ChildrenSkipContainersAndKeepOrder) {
  CausalLM model{Config{}};
  const auto children = model.backbone().module_children();
  ASSERT_EQ(children.size(), 4u);
  EXPECT_EQ(children[0].get(), &model.backbone().embedding());
  EXPECT_EQ(children[1], model.backbone().layers()[0]);
  EXPECT_EQ(children[2], model.backbone().layers()[1]);
  EXPECT_NE(dynamic_cast<RmsNorm*>(children[3].get()), nullptr);
}

// Walks the tree and installs a read hook on every module.
void watch(Module& module, std::map<const at::TensorImpl*, int>& reads) {
  module.set_read_hook([&](Module&, const Tensor& parameter) { ++reads[parameter.unsafeGetTensorImpl()]; });
  for (const auto& child : module.module_children()) watch(*child, reads);
}

TEST(Module, EveryUseOfAParameterIsARead) {
  for (const bool tied : {false, true}) {
    Config config;
    config.tied = tied;
    config.head_bias = true;
    config.lora_rank = 2;
    CausalLM model(config);
    initialise(model, 1);
    std::map<const at::TensorImpl*, int> reads;
    watch(model, reads);
    model(at::zeros({1, 3}, at::kLong));
    for (const auto& [name, parameter] : distinct_parameters(model)) {
      const bool shared = tied && name == "model.embed_tokens.weight";
      EXPECT_EQ(reads[parameter.unsafeGetTensorImpl()], shared ? 2 : 1) << name;
    }
    reads.clear();
    model.head().weight();
    model.head().bias();
    EXPECT_EQ(reads.size(), 2u);
    reads.clear();
    static_cast<void>(model.head().weight_handle());
    EXPECT_TRUE(reads.empty());
  }
}

TEST(Module, AParameterIsSwappedForAllWhoReadIt) {
  Linear linear(3, 4, true);
  const Tensor before = linear.weight_handle();
  const Tensor after = at::ones({4, 3});
  linear.set_own_parameter("weight", after);
  EXPECT_TRUE(linear.weight_handle().is_same(after));
  EXPECT_TRUE(linear.weight().is_same(after));
  EXPECT_TRUE(linear.named_parameters()["weight"].is_same(after));
  EXPECT_EQ(linear(ones())[0][0].item<float>(), 3);
  linear.set_own_parameter("weight", before);
  EXPECT_TRUE(linear.weight().is_same(before));
  EXPECT_THROW(linear.set_own_parameter("scale", after), Error);
  EXPECT_FALSE(Linear(3, 4, false).bias_handle().defined());
}

}  // namespace
}  // namespace regather::model
