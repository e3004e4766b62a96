// The model is transformers' function: logits, loss and every gradient.
#include "golden.h"

#include <gtest/gtest.h>

#include <iostream>

namespace regather::model {
namespace {

class GoldenTest : public testing::TestWithParam<std::string> {
 protected:
  // Compares everything that the golden file has for a dtype, and prints the worst.
  void compare(CausalLM& model, const std::string& dtype, double bound) {
    const Golden golden(GetParam());
    const at::Tensor logits = model(golden.tensor("input_ids"));
    const at::Tensor loss = sft_loss(logits, golden.tensor("labels"));
    loss.backward();
    std::map<std::string, double> distances = {
        {"logits", distance(logits, golden.tensor(dtype + "/logits"))},
        {"loss", distance(loss.reshape({1}), golden.tensor(dtype + "/loss"))},
    };
    size_t gradients = 0;
    for (const auto& [name, parameter] : distinct_parameters(model)) {
      const std::string key = dtype + "/grad/" + name;
      EXPECT_EQ(parameter.grad().defined(), parameter.requires_grad()) << name;
      if (!golden.has(key)) continue;
      distances[name] = distance(parameter.grad(), golden.tensor(key));
      ++gradients;
    }
    EXPECT_EQ(gradients, count(golden, dtype + "/grad/"));
    std::pair<std::string, double> worst;
    for (const auto& entry : distances) {
      EXPECT_LT(entry.second, bound) << GetParam() << ' ' << dtype << ' ' << entry.first;
      if (entry.second >= worst.second) worst = entry;
    }
    std::cout << GetParam() << ' ' << dtype << ": " << distances.size() << " compared, worst " << worst.first << ' '
              << worst.second << '\n';
  }

  static size_t count(const Golden& golden, const std::string& prefix) {
    size_t found = 0;
    for (const auto& [name, tensor] : golden.header().tensors) found += name.starts_with(prefix);
    return found;
  }
};

TEST_P(GoldenTest, Float32) { compare(*load_variant(GetParam()), "float32", 1e-5); }

// Above the rounding of float64 only because the rotary tables are rounded to float32, whose last bit may depend on the
// processor.
TEST_P(GoldenTest, Float64) { compare(*clone_as(*load_variant(GetParam()), at::kDouble), "float64", 1e-6); }

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

}  // namespace
}  // namespace regather::model
