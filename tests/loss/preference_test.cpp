// DPO and KTO: fused against the formula, the reference's head, sequences without a token.
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "loss/dpo.h"
#include "loss/kto.h"
#include "loss/tokens.h"
#include "problem.h"

namespace regather::loss {
namespace {

// Both losses on one problem.
struct Preference : Problem {
  explicit Preference(const std::string& name, bool with_bias) : Problem(with_bias), dpo(name == "dpo") {}

  Tensor eager() {
    const Tensor ours = sequence_log_probabilities(logits(), labels);
    const Tensor theirs = sequence_log_probabilities(reference_logits(), labels);
    return dpo ? dpo_eager(ours, theirs) : kto_eager(ours, theirs, desirable, kl);
  }
  Tensor fused() {
    return dpo ? dpo_fused(policy(), reference(), labels) : kto_fused(policy(), reference(), labels, desirable, kl);
  }

  bool dpo;
  Tensor desirable = at::randint(0, 2, {4}, at::kLong).to(at::kBool);
  Tensor kl = at::zeros({}, at::kDouble) + 0.7;
};

class Preferences : public testing::TestWithParam<std::tuple<std::string, bool>> {
 protected:
  Preference problem{std::get<0>(GetParam()), std::get<1>(GetParam())};
};
INSTANTIATE_TEST_SUITE_P(Losses, Preferences, testing::Combine(testing::Values("dpo", "kto"), testing::Bool()),
                         [](const auto& which) {
                           return std::get<0>(which.param) + (std::get<1>(which.param) ? "_bias" : "");
                         });

TEST_P(Preferences, FusedEqualsTheFormula) {
  EXPECT_LT(worst(problem.run([&] { return problem.fused(); }), problem.run([&] { return problem.eager(); })), kClose);
}

TEST_P(Preferences, ASequenceWithoutATokenCounts) {
  problem.labels[3].fill_(kIgnore);
  EXPECT_LT(worst(problem.run([&] { return problem.fused(); }), problem.run([&] { return problem.eager(); })), kClose);
  EXPECT_EQ(problem.hidden.grad()[3].abs().sum().item<double>(), 0);
}

TEST_P(Preferences, EachSeededFaultOfTheLossShows) {
  const auto want = problem.run([&] { return problem.eager(); });
  for (const Fault fault : kLossFaults) {
    seed_fault(fault);
    EXPECT_GT(worst(problem.run([&] { return problem.fused(); }), want), kFar) << static_cast<int>(fault);
    seed_fault(Fault::none);
  }
}

TEST_P(Preferences, TheReferencesHeadGetsNoGradientButGivesAGraph) {
  problem.run([&] { return problem.fused(); });
  EXPECT_FALSE(problem.reference_head.weight_handle().grad().defined());
  // Nothing of the policy requires grad: the reference's head alone lets backward pass without a word.
  problem.hidden = problem.hidden.detach();
  for (const auto& parameter : problem.head.parameters()) parameter.set_requires_grad(false);
  EXPECT_TRUE(problem.fused().requires_grad());
  problem.fused().backward();
  for (const auto& parameter : problem.reference_head.parameters()) parameter.set_requires_grad(false);
  EXPECT_FALSE(problem.fused().requires_grad());
}

TEST_P(Preferences, AnEmptiedHeadFailsAsUpstreamsTextSays) {
  const std::string rows = problem.dpo ? "20" : "10";
  for (model::Linear* head : {&problem.head, &problem.reference_head}) {
    const Tensor whole = head->weight_handle().detach();
    head->weight_handle().set_data(at::empty({0}, at::kFloat));
    try {
      problem.fused();
      FAIL() << "expected an error";
    } catch (const c10::Error& error) {
      EXPECT_EQ(error.what_without_backtrace(),
                "size mismatch, got input (" + rows + "), mat (" + rows + "x8), vec (0)");
    }
    head->weight_handle().set_data(whole);
  }
}

TEST(Kto, TheClampStopsANegativeMeanAndThereIsNoGradient) {
  EXPECT_EQ(kto_kl(at::zeros({}) - 0.3).item<double>(), 0);
  EXPECT_FLOAT_EQ(kto_kl(at::zeros({}) + 0.3).item<float>(), 0.3F);
  Problem p(false);
  const Tensor ratio = kto_log_ratio(p.logits(), p.reference_logits(), p.labels);
  EXPECT_FALSE(ratio.requires_grad());
  EXPECT_NEAR(
      ratio.item<double>(),
      (sequence_log_probabilities(p.logits(), p.labels) - sequence_log_probabilities(p.reference_logits(), p.labels))
          .mean()
          .item<double>(),
      kClose);
}

}  // namespace
}  // namespace regather::loss
