// The decoder as train and the backends use it: block runners, contexts, ties, initial values, copies.
#include "model/qwen2.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "golden.h"

namespace regather::model {
namespace {

at::Tensor ids(int64_t rows, int64_t length, int64_t first = 1) {
  return (at::arange(rows * length, at::kLong) * 7 + first).remainder(64).view({rows, length});
}

std::shared_ptr<CausalLM> small(Config config = {}) {
  auto model = std::make_shared<CausalLM>(config);
  initialise(*model, 3);
  return model;
}

// A checkpoint in its simplest form: forward without graph, and the block again during backward.
struct Rerun : torch::autograd::Function<Rerun> {
  static Tensor forward(torch::autograd::AutogradContext* saved, const Tensor& input, const Module::Body* block) {
    saved->save_for_backward({input});
    saved->saved_data["block"] = reinterpret_cast<int64_t>(new Module::Body(*block));
    const at::NoGradGuard no_grad;
    return (*block)(input.detach());
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* saved,
                                                 torch::autograd::variable_list gradients) {
    const std::unique_ptr<Module::Body> block(
        reinterpret_cast<Module::Body*>(saved->saved_data["block"].toInt()));  // NOLINT(performance-no-int-to-ptr)
    const at::AutoGradMode grad(true);
    const Tensor input = saved->get_saved_variables()[0].detach().requires_grad_(true);
    (*block)(input).backward(gradients[0]);
    return {input.grad(), Tensor()};
  }
};

Tensor rerun(const Module::Body& block, const Tensor& input) { return Rerun::apply(input, &block); }

std::map<std::string, Tensor> gradients(CausalLM& model) {
  std::map<std::string, Tensor> out;
  for (auto& [name, parameter] : distinct_parameters(model)) out[name] = parameter.grad();
  return out;
}

class RunnerTest : public testing::TestWithParam<const char*> {
 protected:
  void install(CausalLM& model) {
    if (std::string(GetParam()) == "layer") {
      model.backbone().run_layer = rerun;
    } else {
      for (const auto& layer : model.backbone().layers()) layer->run_forward = rerun;
    }
  }
};

// Two batches of different length before the backward of either: each block has to find its own positions and mask.
TEST_P(RunnerTest, ARerunSeesTheContextOfItsOwnForward) {
  const auto plain = small();
  const auto checkpointed = small();
  install(*checkpointed);
  for (const auto& model : {plain, checkpointed}) {
    const Tensor first = (*model)(ids(2, 9)).pow(2).mean();
    const Tensor second = (*model)(ids(3, 5, 2)).pow(2).mean();
    first.backward();
    second.backward();
  }
  const auto want = gradients(*plain);
  for (const auto& [name, gradient] : gradients(*checkpointed)) EXPECT_EQ(distance(gradient, want.at(name)), 0) << name;
}

TEST_P(RunnerTest, TheGraphKeepsItsLayersAlive) {
  auto model = small();
  install(*model);
  const Tensor embedding = model->backbone().embedding().weight_handle();
  const Tensor loss = (*model)(ids(1, 4)).sum();
  model.reset();
  loss.backward();
  EXPECT_TRUE(embedding.grad().defined());
}

TEST_P(RunnerTest, TheContextIsPutBackWhenABlockThrows) {
  const auto model = small();
  install(*model);
  const auto& layer = model->backbone().layers().front();
  const auto children = layer->module_children();
  children.back()->add_pre_forward([](Module&, const Tensor&) -> Tensor { throw std::runtime_error("stop"); });
  EXPECT_THROW((*model)(ids(1, 4)), std::runtime_error);
  EXPECT_THROW((*layer)(at::zeros({1, 4, 32})), Error);
}

INSTANTIATE_TEST_SUITE_P(Placements, RunnerTest, testing::Values("layer", "forward"));

// checkpoint_at: with run_forward a layer's own hooks stay outside the block, with run_layer they are inside.
TEST(Decoder, PlacementOfTheLayersOwnHooks) {
  for (const bool whole : {true, false}) {
    const auto model = small();
    int own = 0;
    int child = 0;
    const auto& layer = model->backbone().layers().front();
    layer->add_pre_forward([&](Module&, const Tensor& x) { return ++own, x; });
    layer->module_children().front()->add_pre_forward([&](Module&, const Tensor& x) { return ++child, x; });
    const BlockRunner twice = [](const Module::Body& block, const Tensor& x) {
      block(x);
      return block(x);
    };
    if (whole) {
      model->backbone().run_layer = twice;
    } else {
      layer->run_forward = twice;
    }
    (*model)(ids(1, 4));
    EXPECT_EQ(own, whole ? 2 : 1);
    EXPECT_EQ(child, 2);
  }
}

TEST(Decoder, ALayerOutsideADecoderSaysWhatIsMissing) {
  const auto model = small();
  try {
    (*model->backbone().layers().front())(at::zeros({1, 4, 32}));
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("outside Decoder::forward"), std::string::npos) << error.what();
  }
}

TEST(Decoder, RefusesInputThatIsNotIds) {
  const auto model = small();
  EXPECT_THROW((*model)(at::zeros({2, 3})), Error);
  EXPECT_THROW((*model)(at::zeros({3}, at::kLong)), Error);
}

TEST(Decoder, IsCausal) {
  const auto model = small();
  const at::NoGradGuard no_grad;
  const Tensor before = (*model)(ids(1, 8));
  Tensor changed = ids(1, 8).clone();
  changed[0][5] = 63;
  const Tensor after = (*model)(changed);
  EXPECT_TRUE(at::equal(before.slice(1, 0, 5), after.slice(1, 0, 5)));
  EXPECT_FALSE(at::equal(before.slice(1, 5), after.slice(1, 5)));
}

TEST(Decoder, RunsInEveryFloatingDtype) {
  const auto model = small();
  const at::NoGradGuard no_grad;
  const Tensor want = (*clone_as(*model, at::kDouble))(ids(2, 6));
  const std::map<at::ScalarType, double> bounds = {{at::kFloat, 1e-6}, {at::kBFloat16, 3e-2}, {at::kHalf, 3e-3}};
  for (const auto& [dtype, bound] : bounds) {
    const Tensor got = (*clone_as(*model, dtype))(ids(2, 6));
    EXPECT_EQ(got.scalar_type(), dtype);
    EXPECT_LT(distance(got, want), bound) << c10::toString(dtype);
  }
}

TEST(CausalLM, ATiedHeadIsTheEmbeddingsOwnTensor) {
  Config config;
  config.tied = true;
  const auto model = small(config);
  EXPECT_TRUE(model->head().weight_handle().is_same(model->backbone().embedding().weight_handle()));
  const auto parameters = distinct_parameters(*model);
  EXPECT_EQ(parameters.front().first, "model.embed_tokens.weight");
  for (const auto& [name, parameter] : parameters) EXPECT_NE(name, "lm_head.weight");
  EXPECT_EQ(parameters.size() + 1, distinct_parameters(*small()).size());
}

TEST(CausalLM, ATieKeepsAFrozenTensorFrozen) {
  Embedding embedding(4, 3);
  Tensor weight = embedding.weight_handle();
  weight.set_requires_grad(false);
  const Linear head(weight, false);
  EXPECT_FALSE(embedding.weight_handle().requires_grad());
}

TEST(CausalLM, AdaptersOffIsTheBaseModel) {
  Config config;
  config.lora_rank = 2;
  const auto adapted = small(config);
  const auto base = small();  // values are drawn by name: the same base
  const at::NoGradGuard no_grad;
  EXPECT_GT(distance((*adapted)(ids(1, 5)), (*base)(ids(1, 5))), 1e-6);
  for (const auto& module : adapted->modules()) {
    if (auto lora = std::dynamic_pointer_cast<LoraLinear>(module)) lora->adapters_enabled = false;
  }
  EXPECT_TRUE(at::equal((*adapted)(ids(1, 5)), (*base)(ids(1, 5))));
}

TEST(Initialise, DependsOnSeedAndNameOnly) {
  const auto first = small();
  const auto again = small();
  CausalLM other{Config{}};
  initialise(other, 4);
  Config tied;
  tied.tied = true;
  const auto embedding = small(tied)->backbone().embedding().weight_handle();
  EXPECT_TRUE(at::equal(embedding, first->backbone().embedding().weight_handle()));
  const auto a = distinct_parameters(*first);
  const auto b = distinct_parameters(*again);
  const auto c = distinct_parameters(other);
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(at::equal(a[i].second, b[i].second)) << a[i].first;
    EXPECT_FALSE(at::equal(a[i].second, c[i].second)) << a[i].first;
  }
}

TEST(Initialise, AFloat64ModelStartsFromTheFloat32Values) {
  const auto narrow = small();
  const auto wide = clone_as(CausalLM(Config{}), at::kDouble);
  initialise(*wide, 3);
  const auto a = distinct_parameters(*narrow);
  const auto b = distinct_parameters(*wide);
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(b[i].second.scalar_type(), at::kDouble);
    EXPECT_TRUE(at::equal(a[i].second.to(at::kDouble), b[i].second)) << a[i].first;
  }
}

TEST(Initialise, SpreadsAsDocumented) {
  for (const auto& [name, parameter] : distinct_parameters(*small())) {
    const bool norm = name.find("norm") != std::string::npos;
    const double spread = parameter.std().item<double>();
    EXPECT_NEAR(parameter.mean().item<double>(), norm ? 1 : 0, norm ? 0.1 : 0.02) << name;
    EXPECT_NEAR(spread, norm ? 0.1 : 0.02, norm ? 0.05 : 0.01) << name;
  }
}

TEST(CloneAs, KeepsValuesFlagsAndTies) {
  Config config;
  config.tied = true;
  config.lora_rank = 2;
  const auto model = small(config);
  for (auto& [name, parameter] : distinct_parameters(*model)) {
    parameter.set_requires_grad(name.find("lora") != std::string::npos);
  }
  const auto copy = clone_as(*model, at::kDouble);
  EXPECT_TRUE(copy->head().weight_handle().is_same(copy->backbone().embedding().weight_handle()));
  const auto from = distinct_parameters(*model);
  const auto to = distinct_parameters(*copy);
  ASSERT_EQ(from.size(), to.size());
  for (size_t i = 0; i < from.size(); ++i) {
    EXPECT_EQ(from[i].first, to[i].first);
    EXPECT_EQ(from[i].second.requires_grad(), to[i].second.requires_grad()) << from[i].first;
    EXPECT_TRUE(to[i].second.is_leaf());
    EXPECT_TRUE(at::equal(from[i].second.to(at::kDouble), to[i].second)) << from[i].first;
  }
  const auto same = clone_as(*model, at::kFloat);
  EXPECT_FALSE(same->head().weight_handle().is_alias_of(model->head().weight_handle()));
}

}  // namespace
}  // namespace regather::model
