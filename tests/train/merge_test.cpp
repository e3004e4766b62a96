#include "train/merge.h"

#include <gtest/gtest.h>

namespace regather::train {
namespace {

Departure departure(Outcome outcome, int step, Phase phase, int rank) {
  Departure d;
  d.outcome = outcome;
  d.signature.step = step;
  d.signature.phase = phase;
  d.signature.rank = rank;
  return d;
}

CaseResult rank_result(int compared, std::vector<Departure> departures) {
  CaseResult result;
  result.gradients.emplace();
  result.gradients->compared = compared;
  settle(result, std::move(departures));
  return result;
}

TEST(Settle, TheEarliestByStepThenPhaseThenRankIsTheOutcome) {
  CaseResult result =
      rank_result(4, {departure(Outcome::error, 1, Phase::forward, 0), departure(Outcome::invariant, 0, Phase::step, 0),
                      departure(Outcome::wrong_gradient, 0, Phase::gradients, 1),
                      departure(Outcome::nonfinite, 0, Phase::gradients, 0)});
  EXPECT_EQ(result.outcome, Outcome::nonfinite);
  ASSERT_EQ(result.also.size(), 3U);
  EXPECT_EQ(result.also[0].signature.rank, 1);
  EXPECT_EQ(result.also[2].signature.step, 1);
}

TEST(Settle, NothingComparedIsUncheckedNotPass) {
  EXPECT_EQ(rank_result(0, {}).outcome, Outcome::unchecked);
  EXPECT_EQ(rank_result(4, {}).outcome, Outcome::pass);
}

TEST(Merge, ALaterRanksEarlierDepartureWins) {
  const CaseResult merged = merge({rank_result(4, {departure(Outcome::error, 1, Phase::forward, 0)}),
                                   rank_result(4, {departure(Outcome::wrong_gradient, 0, Phase::gradients, 1)})});
  EXPECT_EQ(merged.outcome, Outcome::wrong_gradient);
  EXPECT_EQ(merged.signature->rank, 1);
  EXPECT_EQ(merged.gradients->compared, 8);
}

TEST(Merge, ARankThatComparedLessMakesItUnchecked) {
  EXPECT_EQ(merge({rank_result(4, {}), rank_result(2, {})}).outcome, Outcome::unchecked);
  EXPECT_EQ(merge({rank_result(4, {}), rank_result(4, {})}).outcome, Outcome::pass);
}

TEST(Blame, AHangIsThatOfTheRankThatTheOthersWaitedFor) {
  CaseResult merged = merge({rank_result(4, {departure(Outcome::hang, 1, Phase::backward, 0)}),
                             rank_result(4, {departure(Outcome::hang, 1, Phase::step, 1)})});
  blame(merged, 1);
  EXPECT_EQ(merged.outcome, Outcome::hang);
  EXPECT_EQ(merged.signature->rank, 1);
  EXPECT_EQ(merged.signature->phase, Phase::step);
  ASSERT_EQ(merged.also.size(), 1U);
  EXPECT_EQ(merged.also[0].signature.rank, 0);

  CaseResult failed = merge({rank_result(4, {departure(Outcome::error, 0, Phase::forward, 0)}),
                             rank_result(4, {departure(Outcome::hang, 0, Phase::forward, 1)})});
  blame(failed, 1);
  EXPECT_EQ(failed.outcome, Outcome::error) << "a failure that is no hang stays the outcome";
}

TEST(Merge, KeepsTheWorstGradientAndLossOfAnyRank) {
  CaseResult good = rank_result(4, {});
  CaseResult bad = good;
  bad.gradients->relative_l2 = 0.5;
  bad.gradients->worst = "norm";
  good.loss = LossPair{1, 1};
  bad.loss = LossPair{2, 1};
  const CaseResult merged = merge({good, bad});
  EXPECT_EQ(merged.gradients->worst, "norm");
  EXPECT_EQ(merged.loss->got, 2);
}

}  // namespace
}  // namespace regather::train
