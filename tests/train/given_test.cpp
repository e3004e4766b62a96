// The card's batches show what their losses have to get right.
#include "train/given.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "loss/grpo.h"
#include "loss/tokens.h"
#include "tests/train/card.h"
#include "train/reference.h"

namespace regather::train {
namespace {

TEST(Given, TheSameEachTime) {
  const Setting setting = card();
  const Case c{.loss = Loss::grpo};
  const auto once = given_batches(setting, c, 1);
  const auto again = given_batches(setting, c, 1);
  ASSERT_EQ(once.size(), 2U);
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(once[rank].old_log_probabilities.equal(again[rank].old_log_probabilities));
    EXPECT_TRUE(once[rank].reference_log_probabilities.equal(again[rank].reference_log_probabilities));
  }
  EXPECT_FALSE(once[0].old_log_probabilities.equal(once[1].old_log_probabilities));
}

TEST(Given, EachSideOfTheClipDecidesOnATenthOfTheTokensOfEachRankAndStep) {
  const Setting setting = card();
  const auto reference = compute_reference(setting, Case{.loss = Loss::grpo});
  const auto model = model::clone_as(*setting.initial, at::kDouble);
  const at::NoGradGuard no_grad;
  for (const ReferenceStep& step : reference->steps) {
    for (const loss::Batch& batch : step.micro_batches[0].batches) {
      const at::Tensor own = loss::token_log_probabilities((*model)(batch.input_ids), batch.labels);
      const loss::ClippedTokens clipped = loss::grpo_clipped(own, batch);
      EXPECT_GE(10 * clipped.above, clipped.valid) << clipped.above << " of " << clipped.valid;
      EXPECT_GE(10 * clipped.below, clipped.valid) << clipped.below << " of " << clipped.valid;
      EXPECT_LT(3 * (clipped.above + clipped.below), 2 * clipped.valid) << "the rest is inside the clip";
      // A ratio at a bound would make the gradient depend on rounding.
      const at::Tensor ratio = (own - batch.old_log_probabilities).exp();
      const at::Tensor near = ((ratio - 1).abs() - loss::kGrpoEpsilon).abs();
      EXPECT_GT(near.masked_select(batch.labels.narrow(1, 1, 11).ne(loss::kIgnore)).min().item<double>(), 1e-4);
    }
    for (auto& [name, parameter] : model::distinct_parameters(*model)) parameter.add_(step.updates.at(name));
  }
}

TEST(Given, KtosClampIsActiveInOneBatchAndNotInTheOther) {
  const auto reference = compute_reference(card(), Case{.loss = Loss::kto});
  EXPECT_LT(reference->steps[0].micro_batches[0].mean_log_ratio, -1e-3);
  EXPECT_GT(reference->steps[1].micro_batches[0].mean_log_ratio, 1e-3);
}

TEST(Given, TheReferenceModelIsNotThePolicy) {
  const Setting setting = card();
  const auto policy = model::distinct_parameters(*setting.initial);
  const auto reference = model::distinct_parameters(*setting.reference);
  for (size_t i = 0; i < policy.size(); ++i) {
    EXPECT_GT((policy[i].second - reference[i].second).detach().norm().item<float>(), 1e-3) << policy[i].first;
    EXPECT_TRUE(reference[i].second.requires_grad());
  }
}

}  // namespace
}  // namespace regather::train
