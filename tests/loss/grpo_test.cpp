#include "loss/grpo.h"

#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "loss/tokens.h"
#include "problem.h"

namespace regather::loss {
namespace {

struct Grpo : Problem {
  explicit Grpo(bool with_bias) : Problem(with_bias) {
    const Tensor own = token_log_probabilities(logits(), labels).detach();
    batch.labels = labels;
    batch.advantages = at::tensor({1.2, -0.7, 0.4, -1.5}, at::kDouble);
    batch.old_log_probabilities = own + 0.4 * at::randn(own.sizes(), at::kDouble);
    batch.reference_log_probabilities = own + 0.3 * at::randn(own.sizes(), at::kDouble);
  }
  Tensor eager() { return grpo_eager(logits(), batch); }
  Tensor fused() { return grpo_fused(policy(), batch); }
  Batch batch;
};

class GrpoTest : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(HeadBias, GrpoTest, testing::Bool());

TEST_P(GrpoTest, FusedEqualsTheFormulaWithBothSidesOfTheClipActive) {
  Grpo p(GetParam());
  const ClippedTokens clipped = grpo_clipped(token_log_probabilities(p.logits(), p.labels), p.batch);
  EXPECT_EQ(clipped.valid, 29);
  EXPECT_GT(clipped.above, 0);
  EXPECT_GT(clipped.below, 0);
  EXPECT_LT(worst(p.run([&] { return p.fused(); }), p.run([&] { return p.eager(); })), kClose);
}

TEST_P(GrpoTest, OnPolicyTheRatioIsOneAndTheGradientIsThatOfTheLogProbability) {
  Grpo p(GetParam());
  p.batch.old_log_probabilities = p.batch.reference_log_probabilities =
      token_log_probabilities(p.logits(), p.labels).detach();
  const Tensor mask = predicted(p.labels).ne(kIgnore).to(at::kDouble);
  const auto want = p.run([&] {
    const Tensor gain = token_log_probabilities(p.logits(), p.labels) * p.batch.advantages.unsqueeze(1);
    return -((gain * mask).sum(1) / mask.sum(1)).mean();
  });
  const auto got = p.run([&] { return p.fused(); });
  for (size_t i = 1; i < got.size(); ++i) EXPECT_LT(worst({got[i]}, {want[i]}), kClose);
  EXPECT_NEAR(got[0].item<double>(), -p.batch.advantages.mean().item<double>(), kClose);
}

TEST_P(GrpoTest, ASequenceWithoutATokenCountsAsZero) {
  Grpo p(GetParam());
  p.labels[3].fill_(kIgnore);
  EXPECT_LT(worst(p.run([&] { return p.fused(); }), p.run([&] { return p.eager(); })), kClose);
  EXPECT_EQ(p.hidden.grad()[3].abs().sum().item<double>(), 0);
}

TEST_P(GrpoTest, EachSeededFaultOfTheLossShows) {
  Grpo p(GetParam());
  const auto want = p.run([&] { return p.eager(); });
  for (const Fault fault : kLossFaults) {
    seed_fault(fault);
    EXPECT_GT(worst(p.run([&] { return p.fused(); }), want), kFar) << static_cast<int>(fault);
    seed_fault(Fault::none);
  }
}

}  // namespace
}  // namespace regather::loss
