// Every verdict of a run, and what is wrong with expectations themselves.
#include "matrix/judge/judge.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "matrix/judge/load.h"
#include "matrix/plan/plan.h"
#include "some_cases.h"

namespace regather::matrix {
namespace {

constexpr const char* kOff = "ddp/sft/fix=none";
constexpr const char* kOn = "ddp/sft/fix=redirect";

const CaseResult kUnarmedResult = failed(kOff, Outcome::wrong_gradient, "reducer_unarmed", Phase::gradients,
                                         "model.norm.weight: relative L2 error 1.3");

Verdict verdict(const Judge& judge, const CaseResult& result, const std::vector<Outcome>& attempts = {}) {
  return judge.of(result, attempts).verdict;
}

Judge with(const std::string& one_entry) { return {expectations("card", one_entry), std::nullopt, Setting{}}; }

Judge beside(std::vector<CaseResult> results) {
  PastDocument past{.definition = "card", .asked = results.size(), .cases = {}};
  for (CaseResult& result : results) past.cases.push_back({std::move(result), {}, {}});
  return {Expectations{}, past, Setting{}};
}

TEST(Judge, WithoutAnEntryTheDefaultRulesHold) {
  const Judge judge(Expectations{}, std::nullopt, Setting{});
  EXPECT_EQ(verdict(judge, ran(kOn, Outcome::pass)), Verdict::expected);
  EXPECT_EQ(verdict(judge, ran(kOn, Outcome::error)), Verdict::regression);
  EXPECT_EQ(verdict(judge, kUnarmedResult), Verdict::xfail) << "fewer fixes than recommended";
  EXPECT_EQ(verdict(judge, ran(kOff, Outcome::pass)), Verdict::expected);
  for (const Outcome outcome : {Outcome::hang, Outcome::crash, Outcome::oom, Outcome::unchecked}) {
    EXPECT_EQ(verdict(judge, ran(kOff, outcome)), Verdict::regression) << name(outcome);
  }
  EXPECT_EQ(verdict(judge, ran(kOff, Outcome::unsupported)), Verdict::expected);
  EXPECT_EQ(verdict(judge, ran(kOff, Outcome::notrun)), Verdict::absent);
}

TEST(Judge, AnEntryDecidesAlone) {
  const Judge judge = with(entry("backend=ddp", "wrong_gradient", kUnarmed));
  EXPECT_EQ(verdict(judge, kUnarmedResult), Verdict::xfail);
  const Judgement xpass = judge.of(ran(kOff, Outcome::pass), {});
  EXPECT_EQ(xpass.verdict, Verdict::xpass);
  EXPECT_EQ(xpass.why,
            "mine.json:2 (entry 1, 'backend=ddp') expects wrong_gradient in gradients [reducer_unarmed]: delete the "
            "entry, or narrow it to what still fails");
  CaseResult other = kUnarmedResult;
  other.signature->mechanism = "unit_bypassed";
  EXPECT_EQ(verdict(judge, other), Verdict::regression);
  EXPECT_EQ(judge.of(other, {}).why,
            "mine.json:2 (entry 1, 'backend=ddp') expects wrong_gradient in gradients [reducer_unarmed]");
  EXPECT_EQ(verdict(judge, ran(kOff, Outcome::unsupported)), Verdict::expected) << "never red";

  // With its fixes too, where the entry selects it.
  other.which = parse_id(kOn);
  EXPECT_EQ(verdict(judge, failed(kOn, Outcome::wrong_gradient, "reducer_unarmed", Phase::gradients)), Verdict::xfail);
  EXPECT_EQ(verdict(with(entry("backend=ddp", "pass")), kUnarmedResult), Verdict::regression)
      << "an entry may ask for a pass where the default rules do not";
}

TEST(Judge, ADeathIsCoveredOnlyByAnEntryThatNamesIt) {
  for (const char* outcome : {"hang", "crash", "oom", "unchecked"}) {
    for (const char* covered : {"hang", "crash", "oom", "unchecked", "wrong_gradient"}) {
      const bool speaks = std::string(covered) == "wrong_gradient";
      const Judge judge = with(entry("backend=ddp", covered, speaks ? kUnarmed : ""));
      EXPECT_EQ(verdict(judge, ran(kOff, parse_outcome(outcome))) == Verdict::xfail, std::string(outcome) == covered)
          << outcome << " " << covered;
    }
  }
}

TEST(Judge, WhatTheDefaultRulesLetPassIsComparedWithTheBaseline) {
  const Judge judge = beside({kUnarmedResult, ran("ddp/kto/fix=none", Outcome::pass),
                              failed("ddp/dpo/fix=none", Outcome::error, "mixed_dtype", Phase::forward, "m1 (3)"),
                              ran("ddp/grpo/fix=none", Outcome::notrun)});
  EXPECT_EQ(verdict(judge, kUnarmedResult), Verdict::xfail) << "unchanged";
  EXPECT_EQ(verdict(judge, ran(kOff, Outcome::pass)), Verdict::fixed);
  EXPECT_EQ(judge.of(ran(kOff, Outcome::pass), {}).why,
            "the baseline has wrong_gradient in gradients of step 0 on rank 0: Error: model.norm.weight: relative L2 "
            "error 1.3 [reducer_unarmed]");
  EXPECT_EQ(verdict(judge, ran("ddp/kto/fix=none", Outcome::pass)), Verdict::expected);
  EXPECT_EQ(verdict(judge, ran("ddp/kto/fix=none", Outcome::error)), Verdict::regression);
  EXPECT_EQ(verdict(judge, failed("ddp/dpo/fix=none", Outcome::error, "mixed_dtensor", Phase::forward, "m1 (3)")),
            Verdict::changed);
  EXPECT_EQ(verdict(judge, ran("ddp/dpo/fix=none", Outcome::unsupported)), Verdict::changed);
  EXPECT_EQ(verdict(judge, ran(kOn, Outcome::pass)), Verdict::fresh);
  EXPECT_EQ(verdict(judge, ran("ddp/grpo/fix=none", Outcome::pass)), Verdict::fresh) << "it had not run";
  EXPECT_EQ(verdict(judge, ran(kOn, Outcome::error)), Verdict::regression) << "new, and red by itself";
}

TEST(Judge, AnEntryStandsBeforeTheBaseline) {
  PastDocument past{.definition = "card", .asked = 1, .cases = {{ran(kOff, Outcome::pass), {}, {}}}};
  const Judge judge(expectations("card", entry("backend=ddp", "wrong_gradient", kUnarmed)), past, Setting{});
  EXPECT_EQ(verdict(judge, kUnarmedResult), Verdict::xfail);
}

TEST(Judge, AttemptsThatDifferAreFlakyUnlessTheDecidingOneIsRed) {
  const Judge judge(Expectations{}, std::nullopt, Setting{});
  const std::vector<Outcome> attempts{Outcome::error, Outcome::pass};
  const Judgement flaky = judge.of(ran(kOn, Outcome::pass), attempts);
  EXPECT_EQ(flaky.verdict, Verdict::flaky);
  EXPECT_EQ(flaky.why, "attempts: error, pass");
  EXPECT_EQ(verdict(judge, ran(kOn, Outcome::error), attempts), Verdict::regression);
  EXPECT_EQ(verdict(judge, ran(kOn, Outcome::pass), {Outcome::pass, Outcome::pass}), Verdict::expected);
}

TEST(Judge, EntriesThatOverlapOrSelectNothing) {
  const std::vector<Case> plan{parse_id(kOff), parse_id("ddp/kto/fix=none")};
  const Judge overlap(expectations("card", entry("backend=ddp", "pass"), entry("loss=kto", "pass"),
                                   entry("fix=none & loss=kto", "pass")),
                      std::nullopt, Setting{});
  EXPECT_EQ(
      overlap.complaints(plan, "card", true),
      (std::vector<std::string>{"mine.json:3 (entry 2, 'loss=kto') overlaps mine.json:2 (entry 1, 'backend=ddp'): "
                                "both select ddp/kto/fix=none",
                                "mine.json:4 (entry 3, 'fix=none & loss=kto') overlaps mine.json:2 (entry 1, "
                                "'backend=ddp'): both select ddp/kto/fix=none"}));
  EXPECT_EQ(overlap.complaints(plan, "smoke", false).size(), 2U) << "whatever the plan";

  const Judge idle(expectations("card", entry("backend=ddp", "pass"), entry("backend=zero3", "pass"),
                                entry("backend=zero2", "pass", "", R"(,"when":{"device":["cuda"]})"),
                                entry("loss=kto & backend=zero1", "pass", "", R"(,"when":{"world":[4]})")),
                   std::nullopt, Setting{});
  EXPECT_EQ(idle.complaints(plan, "card", true),
            (std::vector<std::string>{
                "mine.json:3 (entry 2, 'backend=zero3') selects nothing: delete it, or correct it",
                "mine.json:5 (entry 4, 'loss=kto & backend=zero1') selects nothing: delete it, or correct it"}));
  EXPECT_TRUE(idle.complaints(plan, "card", false).empty()) << "a part of the definition";
  EXPECT_TRUE(idle.complaints(plan, "smoke", true).empty()) << "another definition";
}

TEST(Judge, ACompleteFileLeavesNothingToTheDefaultRules) {
  Expectations file = expectations("card", entry("backend=ddp & loss=sft & fix=none", "wrong_gradient", kUnarmed));
  file.complete = true;
  find_cases_to_cover(file);
  EXPECT_EQ(file.to_cover.size(), 300U) << "the card's cases without fixes";
  const Judge judge(file, std::nullopt, Setting{});
  EXPECT_EQ(verdict(judge, kUnarmedResult), Verdict::xfail);
  const CaseResult other = failed("ddp/kto/fix=none", Outcome::wrong_gradient, "reducer_unarmed", Phase::gradients);
  EXPECT_EQ(verdict(judge, other), Verdict::regression);
  EXPECT_EQ(judge.of(other, {}).why, "mine.json says that it is complete, and no entry selects this case");
  EXPECT_EQ(verdict(judge, ran("ddp/kto/fix=none", Outcome::unsupported)), Verdict::expected);
  EXPECT_EQ(verdict(judge, failed("ddp/kto/kernel=eager/call=engine/fix=none", Outcome::error, "", Phase::step)),
            Verdict::regression)
      << "by the default rules: with call=engine no fix is recommended";
  EXPECT_EQ(verdict(judge, failed("ddp/kto/world=4/fix=none", Outcome::error, "", Phase::step)), Verdict::xfail)
      << "not of the definition";

  const std::vector<Case> plan{parse_id(kOff), parse_id("ddp/kto/fix=none"), parse_id("ddp/dpo/fix=none"),
                               parse_id("ddp/dpo/fix=redirect"), parse_id("ddp/kto/world=4/fix=none")};
  EXPECT_EQ(
      judge.complaints(plan, "cases", false),
      std::vector<std::string>{"mine.json says that it is complete, yet no entry selects ddp/kto/fix=none and 1 more"});
  EXPECT_TRUE(judge.complaints({plan[0], plan[3], plan[4]}, "cases", false).empty());

  file.definition = "deck";
  EXPECT_THROW(find_cases_to_cover(file), UsageError);
}

TEST(Judge, AnEntryWhoseConditionsDoNotHoldIsNotThere) {
  const std::string wrong =
      entry("backend=ddp", "wrong_gradient", kUnarmed, R"(,"when":{"versions":{"torch":"<2.11"}})");
  const Judge before(
      expectations("card", wrong, entry("backend=ddp", "pass", "", R"(,"when":{"versions":{"torch":">=2.11"}})")),
      std::nullopt, {.versions = {{"torch", "2.10.0"}}, .device = "cpu", .stack = "reference"});
  EXPECT_EQ(verdict(before, kUnarmedResult), Verdict::xfail);
  EXPECT_TRUE(before.complaints({parse_id(kOff)}, "card", true).empty()) << "no overlap";
  const Judge four(expectations("card", entry("backend=ddp", "wrong_gradient", kUnarmed, R"(,"when":{"world":[4]})")),
                   std::nullopt, Setting{});
  EXPECT_EQ(verdict(four, ran(kOff, Outcome::pass)), Verdict::expected);
  EXPECT_EQ(verdict(four, ran("ddp/sft/world=4/fix=none", Outcome::pass)), Verdict::xpass);
}

TEST(Judge, AReviewThatIsOverdueIsTold) {
  const Judge judge = with(entry("backend=ddp", "pass", "", R"(,"review_by":"2026-06-30")"));
  EXPECT_TRUE(judge.overdue("2026-06-30").empty());
  EXPECT_EQ(judge.overdue("2026-07-01"),
            std::vector<std::string>{"mine.json:2 (entry 1, 'backend=ddp') should have been reviewed by 2026-06-30"});
  EXPECT_TRUE(judge.complaints({parse_id(kOff)}, "card", true).empty()) << "a warning, not red";
}

TEST(Judge, WhatTheBaselineHasAndTheWholePlanHasNotIsAbsent) {
  const Judge judge = beside({kUnarmedResult, ran("ddp/kto/fix=none", Outcome::pass)});
  const std::vector<Case> plan{parse_id(kOff)};
  EXPECT_EQ(judge.absent(plan, "card", true), std::vector<std::string>{"ddp/kto/fix=none"});
  EXPECT_TRUE(judge.absent(plan, "card", false).empty());
  EXPECT_TRUE(judge.absent(plan, "smoke", true).empty());
}

TEST(Judge, ExitCodes) {
  const std::vector<CaseResult> pass{ran(kOn, Outcome::pass), ran(kOff, Outcome::unsupported)};
  const std::vector<Judgement> green(2, {Verdict::xfail, ""});
  const Judge judge(Expectations{}, std::nullopt, Setting{});
  const auto decide = [&](const auto&... arguments) { return judge.decide(arguments...); };
  EXPECT_EQ(decide(pass, green, false), Exit::green);
  EXPECT_EQ(decide(pass, green, true), Exit::red);
  for (const Verdict verdict : {Verdict::regression, Verdict::xpass}) {
    EXPECT_EQ(decide(pass, std::vector<Judgement>{green[0], {verdict, ""}}, false), Exit::red);
  }
  for (const Verdict verdict : {Verdict::changed, Verdict::fixed, Verdict::flaky, Verdict::fresh}) {
    EXPECT_EQ(decide(pass, std::vector<Judgement>{green[0], {verdict, ""}}, false), Exit::green);
  }
  const std::vector<CaseResult> half{pass[0], ran(kOff, Outcome::notrun)};
  EXPECT_EQ(decide(half, std::vector<Judgement>{green[0], {Verdict::absent, ""}}, false), Exit::incomplete);
  EXPECT_EQ(decide(half, std::vector<Judgement>{{Verdict::regression, ""}, {Verdict::absent, ""}}, false), Exit::red);
  EXPECT_EQ(decide(std::vector<CaseResult>{pass[1], pass[1]}, green, false), Exit::nothing);
}

TEST(Judge, TheGateSaysWhichVerdictsAreRed) {
  for (const Verdict gated :
       {Verdict::regression, Verdict::xpass, Verdict::changed, Verdict::fixed, Verdict::flaky, Verdict::fresh}) {
    const Judge judge(Expectations{}, std::nullopt, Setting{}, {gated});
    for (int i = 0; i <= static_cast<int>(Verdict::unchanged); ++i) {
      const auto verdict = static_cast<Verdict>(i);
      EXPECT_EQ(judge.red(verdict), verdict == gated);
      EXPECT_EQ(judge.decide({ran(kOn, Outcome::pass)}, {{verdict, ""}}, false),
                verdict == gated ? Exit::red : Exit::green);
    }
  }
  // What is red is not told as flaky.
  PastDocument past{.definition = "card", .asked = 1, .cases = {{kUnarmedResult, {}, {}}}};
  const std::vector<Outcome> attempts{Outcome::error, Outcome::pass};
  EXPECT_EQ(Judge(Expectations{}, past, Setting{}).of(ran(kOff, Outcome::pass), attempts).verdict, Verdict::flaky);
  EXPECT_EQ(Judge(Expectations{}, past, Setting{}, {Verdict::fixed}).of(ran(kOff, Outcome::pass), attempts).verdict,
            Verdict::fixed);
}

}  // namespace
}  // namespace regather::matrix
