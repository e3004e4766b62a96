#include "matrix/results/verdict.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace regather::matrix {
namespace {

CaseResult result(const char* id, Outcome outcome) {
  CaseResult r;
  r.which = parse_id(id);
  r.outcome = outcome;
  return r;
}

TEST(Verdict, HasAName) {
  for (int i = 0; i <= static_cast<int>(Verdict::unchanged); ++i) {
    const auto verdict = static_cast<Verdict>(i);
    EXPECT_EQ(parse_verdict(name(verdict)), verdict);
  }
  EXPECT_STREQ(name(Verdict::fresh), "new");
  EXPECT_THROW(parse_verdict("fresh"), UsageError);
}

constexpr const char* kOn = "zero3/sft/fix=gather+recompute_hold+redirect";
constexpr const char* kPart = "zero3/sft/fix=gather+redirect";
constexpr const char* kOff = "zero3/sft/fix=none";

TEST(Verdict, WithTheRecommendedFixesOnlyAPassIsGreen) {
  for (int i = 0; i <= static_cast<int>(Outcome::notrun); ++i) {
    const auto outcome = static_cast<Outcome>(i);
    const bool green = outcome == Outcome::pass || outcome == Outcome::unsupported || outcome == Outcome::notrun;
    EXPECT_EQ(red(result(kOn, outcome)), !green) << name(outcome);
  }
}

TEST(Verdict, WithFewerFixesOnlyWhatNoKnownBugMayDoIsRed) {
  for (const char* id : {kPart, kOff, "ddp/sft/fix=none"}) {
    for (const Outcome outcome : {Outcome::hang, Outcome::crash, Outcome::oom, Outcome::unchecked}) {
      EXPECT_TRUE(red(result(id, outcome))) << id << name(outcome);
    }
    for (const Outcome outcome : {Outcome::pass, Outcome::wrong_gradient, Outcome::nonfinite, Outcome::error,
                                  Outcome::invariant, Outcome::unsupported, Outcome::notrun}) {
      EXPECT_FALSE(red(result(id, outcome))) << id << name(outcome);
    }
  }
}

TEST(Verdict, MoreThanTheRecommendedFixesAreJudgedAsThoseAre) {
  EXPECT_TRUE(red(result("ddp/sft/fix=gather+redirect", Outcome::wrong_gradient)));
  EXPECT_TRUE(red(result("zero3/sft/call=engine/fix=gather+recompute_hold", Outcome::error)));
  EXPECT_TRUE(red(result("ddp/sft/call=engine/fix=none", Outcome::wrong_gradient))) << "the engine needs no fix on DDP";
}

}  // namespace
}  // namespace regather::matrix
