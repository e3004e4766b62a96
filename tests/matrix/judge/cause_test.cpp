#include "matrix/judge/cause.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "some_cases.h"

namespace regather::matrix {
namespace {

PastDocument document(const std::vector<CaseResult>& results) {
  PastDocument d{.definition = "card", .asked = results.size(), .cases = {}};
  for (const CaseResult& r : results) d.cases.push_back({r, {}, {}});
  return d;
}

CaseResult unarmed(const std::string& id) {
  return failed(id, Outcome::wrong_gradient, "reducer_unarmed", Phase::gradients, "", "gradient");
}

const CaseResult kZero3 = ran("zero3/sft/fix=gather", Outcome::pass);

TEST(Cause, NothingWhereNothingChanged) {
  const PastDocument d = document({unarmed("ddp/sft/fix=none"), kZero3});
  EXPECT_TRUE(likely_causes(compare(d, d)).empty());
  EXPECT_TRUE(likely_causes(compare(d, document({kZero3}))).empty()) << "what is absent came and went with the plan";
}

TEST(Cause, AFixThatNoLongerActs) {
  const PastDocument before =
      document({unarmed("ddp/sft/fix=none"), unarmed("ddp/dpo/fix=none"), ran("ddp/sft/fix=redirect", Outcome::pass),
                ran("ddp/dpo/fix=redirect", Outcome::pass), kZero3});
  const PastDocument now = document({unarmed("ddp/sft/fix=none"), unarmed("ddp/dpo/fix=none"),
                                     unarmed("ddp/sft/fix=redirect"), unarmed("ddp/dpo/fix=redirect"), kZero3});
  const auto causes = likely_causes(compare(before, now));
  ASSERT_EQ(causes.size(), 1U);
  EXPECT_EQ(causes[0].kind, Verdict::regression);
  EXPECT_EQ(causes[0].cases, (std::vector<size_t>{2, 3}));
  EXPECT_EQ(causes[0].text,
            "2 regression, pass -> wrong_gradient in gradients [reducer_unarmed]; all have backend=ddp, fix redirect: "
            "the fix redirect no longer acts: they fail as without it; DDP's forward never runs, so its reducer is "
            "never armed: no all-reduce, no error, and every rank trains on its own gradients");
}

TEST(Cause, AFixIsNotBlamedWhereItsCasesFailOtherwiseThanWithoutIt) {
  const CaseResult other = failed("ddp/sft/fix=redirect", Outcome::error, "", Phase::forward, "no such operator");
  const auto causes =
      likely_causes(compare(document({unarmed("ddp/sft/fix=none"), ran("ddp/sft/fix=redirect", Outcome::pass)}),
                            document({unarmed("ddp/sft/fix=none"), other})));
  ASSERT_EQ(causes.size(), 1U);
  EXPECT_EQ(causes[0].text,
            "1 regression, pass -> error in forward: no cause is known: the "
            "environments are the same");
}

TEST(Cause, VersionsThatChangedAndNotTheMachine) {
  PastDocument before = document({ran("ddp/sft/fix=redirect", Outcome::pass)});
  PastDocument now = document({unarmed("ddp/sft/fix=redirect")});
  before.environment = {{"torch", "2.11.0"}, {"cores", 2}, {"packages", {{"trl", "1.6.0"}}}};
  now.environment = {{"torch", "2.12.0"}, {"cores", 8}, {"packages", {{"trl", "1.9.0"}}}};
  const std::string text = likely_causes(compare(before, now)).at(0).text;
  EXPECT_TRUE(text.ends_with("changed: packages.trl 1.6.0 -> 1.9.0, torch 2.11.0 -> 2.12.0")) << text;
  EXPECT_EQ(to_json(compare(before, now), {})["causes"][0]["cases"][0], "ddp/sft/fix=redirect");
}

TEST(Cause, RegressionsComeBeforeLargerGroups) {
  const auto error = [](const char* id, const char* text) {
    return failed(id, Outcome::error, "", Phase::forward, text);
  };
  const auto causes = likely_causes(
      compare(document({error("zero3/sft/fix=none", "a"), error("zero3/dpo/fix=none", "a"), kZero3}),
              document({ran("zero3/sft/fix=none", Outcome::pass), ran("zero3/dpo/fix=none", Outcome::pass),
                        failed("zero3/sft/fix=gather", Outcome::error, "", Phase::backward)})));
  ASSERT_EQ(causes.size(), 2U);
  EXPECT_EQ(causes[0].kind, Verdict::regression);
  EXPECT_EQ(causes[1].kind, Verdict::fixed);
  EXPECT_EQ(causes[1].cases.size(), 2U);
}

}  // namespace
}  // namespace regather::matrix
