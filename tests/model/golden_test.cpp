// The model is transformers' function: logits, loss and every gradient.
#include "golden.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <iostream>

namespace regather::model {
namespace {

constexpr double kBound32 = 1e-5;
// Above the rounding of float64 only because the rotary tables are rounded to float32, whose last bit may depend on the
// processor.
constexpr double kBound64 = 1e-6;

// Relative distances of logits, loss and each gradient that the golden file has for `dtype`. A gradient that is there
// but should not be, or the other way round, is infinitely far away.
std::map<std::string, double> distances(CausalLM& model, const Golden& golden, const std::string& dtype,
                                        const Tensor& labels) {
  const Tensor logits = model(golden.tensor("input_ids"));
  const Tensor loss = sft_loss(logits, labels);
  loss.backward();
  std::map<std::string, double> out = {{"logits", distance(logits, golden.tensor(dtype + "/logits"))},
                                       {"loss", distance(loss.reshape({1}), golden.tensor(dtype + "/loss"))}};
  for (const auto& [name, parameter] : distinct_parameters(model)) {
    const std::string key = dtype + "/grad/" + name;
    if (golden.has(key)) {
      out[name] = distance(parameter.grad(), golden.tensor(key));
    } else if (parameter.grad().defined() != parameter.requires_grad()) {
      out[name] = std::numeric_limits<double>::infinity();
    }
  }
  return out;
}

std::pair<std::string, double> worst(const std::map<std::string, double>& all) {
  return *std::max_element(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
}

class GoldenTest : public testing::TestWithParam<std::string> {
 protected:
  void compare(CausalLM& model, const std::string& dtype, double bound) {
    const Golden golden(GetParam());
    const auto all = distances(model, golden, dtype, golden.tensor("labels"));
    for (const auto& [name, value] : all) EXPECT_LT(value, bound) << GetParam() << ' ' << dtype << ' ' << name;
    size_t expected = 2;
    for (const auto& [name, tensor] : golden.header().tensors) expected += name.starts_with(dtype + "/grad/");
    EXPECT_EQ(all.size(), expected);
    const auto [name, value] = worst(all);
    std::cout << GetParam() << ' ' << dtype << ": " << all.size() << " compared, worst " << value << " (" << name
              << ")\n";
  }
};

TEST_P(GoldenTest, Float32) { compare(*load_variant(GetParam()), "float32", kBound32); }

TEST_P(GoldenTest, Float64) { compare(*clone_as(*load_variant(GetParam()), at::kDouble), "float64", kBound64); }

TEST_P(GoldenTest, NamesAndTheirOrderAreTransformers) {
  std::vector<std::string> names;
  const auto model = load_variant(GetParam());
  for (const auto& [name, parameter] : distinct_parameters(*model)) names.push_back(name);
  EXPECT_EQ(nlohmann::json(names), Golden(GetParam()).info()["parameters"]);
}

INSTANTIATE_TEST_SUITE_P(Variants, GoldenTest,
                         testing::Values("tiny", "untied", "tied", "gqa", "head-bias", "tied-head-bias", "lora"),
                         [](const auto& variant) {
                           std::string name = variant.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// The comparison goes red for a model that is wrong in one place, even a little.
TEST(GoldenTest, AWrongModelIsFarAway) {
  const std::map<std::string, std::function<void(Config&)>> faults = {
      {"none", [](Config&) {}},
      {"eps", [](Config& config) { config.rms_eps *= 2; }},
      {"theta", [](Config& config) { config.rope_theta *= 1.01; }},
      {"padding", [](Config& config) { config.padding_token = -1; }},
      {"alpha", [](Config& config) { config.lora_alpha *= 1.001; }},
  };
  for (const auto& [name, fault] : faults) {
    const bool adapted = name == "alpha";
    const Golden golden(adapted ? "lora" : "gqa");
    const auto right = load_variant(adapted ? "lora" : "gqa");
    Config config = right->config();
    fault(config);
    CausalLM wrong(config);
    const at::NoGradGuard no_grad;
    const auto from = distinct_parameters(*right);
    auto to = distinct_parameters(wrong);
    for (size_t i = 0; i < from.size(); ++i) {
      to[i].second.copy_(from[i].second);
      to[i].second.set_requires_grad(from[i].second.requires_grad());
    }
    const at::AutoGradMode grad(true);
    const double far = worst(distances(wrong, golden, "float32", golden.tensor("labels"))).second;
    EXPECT_EQ(far > kBound32, name != "none") << name << ' ' << far;
  }
}

TEST(GoldenTest, AWrongValueInOneParameterIsFarAway) {
  const Golden golden("gqa");
  const auto names = golden.info()["parameters"].get<std::vector<std::string>>();
  for (size_t i = 0; i < names.size(); ++i) {
    const auto model = load_variant("gqa");
    auto parameters = distinct_parameters(*model);
    {
      const at::NoGradGuard no_grad;
      parameters[i].second.mul_(1.01);
    }
    EXPECT_GT(worst(distances(*model, golden, "float32", golden.tensor("labels"))).second, kBound32) << names[i];
  }
}

TEST(GoldenTest, ALabelMoreOrLessIsFarAway) {
  const Golden golden("gqa");
  const auto model = load_variant("gqa");
  Tensor labels = golden.tensor("labels");
  labels[0][1] = 5;
  const auto all = distances(*model, golden, "float32", labels);
  EXPECT_LT(all.at("logits"), kBound32);
  EXPECT_GT(all.at("loss"), kBound32);
}

}  // namespace
}  // namespace regather::model
