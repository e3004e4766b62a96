// Which weights of a decoder are packed, and that everything else goes on as before.
#include "model/quantise.h"

#include <gtest/gtest.h>

#include "golden.h"
#include "model/adapters.h"

namespace regather::model {
namespace {

at::Tensor ids() { return (at::arange(10, at::kLong) * 7 + 1).remainder(64).view({2, 5}); }

std::shared_ptr<CausalLM> adapted() {
  Config config;
  config.lora_rank = 4;
  auto model = std::make_shared<CausalLM>(config);
  initialise(*model, 3);
  return model;
}

bool is_base_linear(const std::string& name) {
  return name.find(".layers.") != std::string::npos && name.ends_with("_proj.weight");
}

TEST(Quantise, PacksTheLinearsOfTheLayersUnderTheirNamesAndNothingElse) {
  const auto dense = adapted();
  const auto model = clone_as(*dense, at::kFloat);
  quantise(*model, at::kByte);
  const auto before = distinct_parameters(*dense);
  const auto after = distinct_parameters(*model);
  ASSERT_EQ(before.size(), after.size());
  int packed = 0;
  for (size_t i = 0; i < after.size(); ++i) {
    EXPECT_EQ(after[i].first, before[i].first);
    if (is_base_linear(after[i].first)) {
      ++packed;
      EXPECT_EQ(after[i].second.sizes(), (std::vector<int64_t>{before[i].second.numel() / 2, 1})) << after[i].first;
      EXPECT_EQ(after[i].second.scalar_type(), at::kByte) << after[i].first;
      EXPECT_FALSE(after[i].second.requires_grad()) << after[i].first;
    } else {
      EXPECT_TRUE(at::equal(after[i].second, before[i].second)) << after[i].first;
    }
  }
  EXPECT_EQ(packed, 2 * 7);
}

TEST(Quantise, IsLosslessOnceRounded) {
  const auto dense = adapted();
  const at::Tensor original = dense->backbone().layers()[0]->parameters()[0].detach().clone();
  round_to_quantised(*dense);
  EXPECT_FALSE(at::equal(dense->backbone().layers()[0]->parameters()[0], original));
  const auto model = clone_as(*dense, at::kFloat);
  quantise(*model, at::kFloat);
  for (const bool with_adapters : {true, false}) {
    std::vector<at::Tensor> outputs;
    for (const auto& each : {dense, model}) {
      std::optional<AdaptersOff> off;
      if (!with_adapters) off.emplace(*each);
      each->zero_grad();
      outputs.push_back((*each)(ids()));
      outputs.back().square().sum().backward();
    }
    EXPECT_LT(distance(outputs[1], outputs[0]), 1e-6);
  }
}

TEST(Quantise, AdaptersAndBiasesHaveTheDenseModelsGradients) {
  const auto dense = adapted();
  round_to_quantised(*dense);
  const auto model = clone_as(*dense, at::kFloat);
  quantise(*model, at::kByte);
  for (const auto& each : {dense, model}) (*each)(ids()).square().sum().backward();
  const auto want = distinct_parameters(*dense);
  const auto got = distinct_parameters(*model);
  for (size_t i = 0; i < got.size(); ++i) {
    if (is_base_linear(got[i].first)) {
      EXPECT_FALSE(got[i].second.grad().defined()) << got[i].first;
    } else {
      EXPECT_LT(distance(got[i].second.grad(), want[i].second.grad()), 1e-5) << got[i].first;
    }
  }
}

TEST(Quantise, ACopyInAnotherDtypeHasTheSameBytes) {
  const auto model = adapted();
  quantise(*model, at::kFloat);
  const auto copy = clone_as(*model, at::kDouble);
  const auto from = distinct_parameters(*model);
  const auto to = distinct_parameters(*copy);
  for (size_t i = 0; i < from.size(); ++i) {
    if (!is_base_linear(from[i].first)) continue;
    EXPECT_EQ(to[i].second.scalar_type(), at::kFloat);
    EXPECT_TRUE(at::equal(to[i].second.view(at::kByte), from[i].second.view(at::kByte))) << from[i].first;
    EXPECT_FALSE(to[i].second.is_alias_of(from[i].second)) << from[i].first;
    EXPECT_FALSE(to[i].second.requires_grad()) << from[i].first;
  }
  const at::NoGradGuard no_grad;
  EXPECT_EQ((*copy)(ids()).scalar_type(), at::kDouble);
  EXPECT_LT(distance((*model)(ids()), (*copy)(ids())), 1e-6);
}

}  // namespace
}  // namespace regather::model
