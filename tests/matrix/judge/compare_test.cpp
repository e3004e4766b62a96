#include "matrix/judge/compare.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "some_cases.h"

namespace regather::matrix {
namespace {

constexpr const char* kId = "ddp/sft/fix=none";

CaseResult error(const std::string& text, const std::string& mechanism = "mixed_dtype", Phase phase = Phase::forward,
                 const std::string& type = "Error") {
  return failed(kId, Outcome::error, mechanism, phase, text, type);
}

PastDocument document(std::vector<PastCase> cases, std::optional<size_t> asked = {}) {
  return {.definition = "card", .asked = asked.value_or(cases.size()), .cases = std::move(cases)};
}

Verdict kind(const CaseResult& before, const PastCase& now) {
  return compare(document({{before, {}, {}}}), document({now})).cases.at(0).kind;
}

const CaseResult kPass = ran(kId, Outcome::pass);

TEST(Compare, WhatBecameOfACase) {
  EXPECT_EQ(change(kPass, kPass), Verdict::unchanged);
  EXPECT_EQ(change(kPass, error("")), Verdict::regression);
  EXPECT_EQ(change(error(""), kPass), Verdict::fixed);
  EXPECT_EQ(change(error("(3x4)"), error("(17x4)")), Verdict::unchanged) << "numbers aside";
  EXPECT_EQ(change(error("one\ntwo"), error("one\nthree")), Verdict::unchanged) << "beyond the first line";
  EXPECT_EQ(change(error("one"), error("two")), Verdict::changed);
  EXPECT_EQ(change(error("", "a"), error("", "b")), Verdict::changed);
  EXPECT_EQ(change(error("", "a"), error("", "a", Phase::backward)), Verdict::changed);
  EXPECT_EQ(change(error("", "a"), error("", "a", Phase::forward, "Other")), Verdict::changed);
  EXPECT_EQ(change(error(""), ran(kId, Outcome::error)), Verdict::changed);
  CaseResult later = error("");
  later.signature->step = 1;
  later.signature->rank = 1;
  EXPECT_EQ(change(error(""), later), Verdict::unchanged);
  const auto wrong = [](const char* text) {
    return failed(kId, Outcome::wrong_gradient, "reducer_unarmed", Phase::gradients, text);
  };
  EXPECT_EQ(change(wrong("model.norm.weight"), wrong("lm_head.weight")), Verdict::unchanged);
  EXPECT_EQ(change(wrong(""), error("")), Verdict::changed);
}

TEST(Compare, ADeathWhereThereWasNoneIsARegression) {
  for (const Outcome outcome : {Outcome::hang, Outcome::crash, Outcome::oom, Outcome::unchecked}) {
    EXPECT_EQ(change(error(""), ran(kId, outcome)), Verdict::regression) << name(outcome);
    EXPECT_EQ(change(ran(kId, outcome), ran(kId, outcome)), Verdict::unchanged) << name(outcome);
    EXPECT_EQ(change(ran(kId, outcome), error("")), Verdict::changed) << name(outcome);
  }
  EXPECT_EQ(change(ran(kId, Outcome::hang), ran(kId, Outcome::crash)), Verdict::regression);
}

TEST(Compare, SupportIsAChangeOfItsOwn) {
  const CaseResult none = ran(kId, Outcome::unsupported);
  EXPECT_EQ(change(none, none), Verdict::unchanged);
  EXPECT_EQ(change(kPass, none), Verdict::changed);
  EXPECT_EQ(change(none, error("")), Verdict::changed);
}

TEST(Compare, ARegressionComesBeforeFlakyAndXpass) {
  const std::vector<Outcome> both{Outcome::error, Outcome::pass};
  EXPECT_EQ(kind(kPass, {kPass, both, {}}), Verdict::flaky);
  EXPECT_EQ(kind(kPass, {error(""), both, {}}), Verdict::regression);
  EXPECT_EQ(kind(error(""), {kPass, {}, Verdict::xpass}), Verdict::xpass);
  EXPECT_EQ(kind(error(""), {kPass, both, Verdict::xpass}), Verdict::flaky);
  EXPECT_EQ(kind(error(""), {kPass, {}, Verdict::expected}), Verdict::fixed);
}

TEST(Compare, NewAbsentAndMissing) {
  const PastDocument before = document({{kPass, {}, {}},
                                        {ran("ddp/kto/fix=none", Outcome::pass), {}, {}},
                                        {ran("ddp/dpo/fix=none", Outcome::notrun), {}, {}}});
  const PastDocument now = document({{kPass, {}, {}},
                                     {ran("ddp/kto/fix=none", Outcome::notrun), {}, {}},
                                     {ran("ddp/dpo/fix=none", Outcome::pass), {}, {}}},
                                    5);
  const Comparison c = compare(before, now);
  EXPECT_EQ(c.counts, (std::map<Verdict, size_t>{{Verdict::unchanged, 1}, {Verdict::fresh, 1}, {Verdict::absent, 1}}));
  EXPECT_EQ(c.compared, 1U);
  EXPECT_EQ(c.missing, 3U) << "five were asked, two have run";
  EXPECT_EQ(c.cases.back().id, "ddp/kto/fix=none");
  EXPECT_EQ(c.cases.back().kind, Verdict::absent);
}

TEST(Compare, EveryKindCanBeGated) {
  const auto gated = [](Verdict kind, const std::string& gate) {
    Comparison c;
    c.compared = 1;
    c.counts = {{kind, 1}};
    return judge(c, parse_gate(gate));
  };
  for (const char* one : {"regression", "changed", "fixed", "new", "absent", "flaky", "xpass"}) {
    const Verdict kind = parse_verdict(one);
    for (const char* other : {"regression", "changed", "fixed", "new", "absent", "flaky", "xpass"}) {
      EXPECT_EQ(gated(kind, other), std::string(one) == other ? Exit::red : Exit::green) << one << other;
    }
    EXPECT_EQ(gated(kind, "flaky,xpass,changed,fixed,new,absent,regression"), Exit::red);
  }
  EXPECT_EQ(gated(Verdict::unchanged, "regression"), Exit::green);
  for (const char* wrong : {"", "unchanged", "xfail", "regression,", "missing"}) {
    EXPECT_THROW(parse_gate(wrong), UsageError) << wrong;
  }
}

TEST(Compare, MissingIsRedWhateverTheGateAndNothingComparedIsNothing) {
  const auto gate = parse_gate("fixed");
  EXPECT_EQ(judge(compare(document({{kPass, {}, {}}}), document({{kPass, {}, {}}}, 2)), gate), Exit::red);
  EXPECT_EQ(judge(compare(document({}), document({})), gate), Exit::nothing);
  EXPECT_EQ(
      judge(compare(document({{kPass, {}, {}}}), document({{ran("ddp/kto/fix=none", Outcome::pass), {}, {}}})), gate),
      Exit::nothing);
  const PastDocument unsupported = document({{ran(kId, Outcome::unsupported), {}, {}}});
  EXPECT_EQ(judge(compare(unsupported, unsupported), gate), Exit::nothing);
  EXPECT_EQ(judge(compare(document({{kPass, {}, {}}}), document({{kPass, {}, {}}})), gate), Exit::green);
}

TEST(Compare, PrintsTheOldAndTheNewSignature) {
  const Comparison c = compare(document({{kPass, {}, {}}, {ran("ddp/kto/fix=none", Outcome::pass), {}, {}}}),
                               document({{error("no"), {}, {}}, {ran("ddp/dpo/fix=none", Outcome::pass), {}, {}}}));
  EXPECT_EQ(
      print(c),
      "regression ddp/sft/fix=none\n    pass\n    -> error in forward of step 0 on rank 0: Error: no [mixed_dtype]\n"
      "new ddp/dpo/fix=none\n    pass\n"
      "absent ddp/kto/fix=none\n    pass\n"
      "compared 1, 1 regression, 1 absent, 1 new, missing 0\nlikely causes:\n"
      "    1 regression, pass -> error in forward [mixed_dtype]: two operands of one operator differ in dtype\n");
  const auto json = to_json(c, parse_gate("regression,new"));
  EXPECT_EQ(json["compared"], 1);
  EXPECT_EQ(json["counts"], nlohmann::ordered_json::parse(R"({"regression":1,"absent":1,"new":1})"));
  EXPECT_EQ(json["missing"], 0);
  EXPECT_EQ(json["red"], true);
  EXPECT_EQ(json["gate"], nlohmann::json({"regression", "new"}));
  ASSERT_EQ(json["cases"].size(), 3U);
  EXPECT_EQ(json["cases"][0]["old"]["outcome"], "pass");
  EXPECT_EQ(json["cases"][0]["new"]["signature"]["mechanism"], "mixed_dtype");
  EXPECT_TRUE(json["cases"][1]["old"].is_null());
  EXPECT_TRUE(json["cases"][2]["new"].is_null());
}

TEST(Compare, TellsWhatChangedInTheEnvironmentWhereSomethingChanged) {
  PastDocument before = document({{kPass, {}, {}}});
  PastDocument now = document({{error("no"), {}, {}}});
  before.environment = {
      {"commit", "a1"}, {"torch", "2.11.0"}, {"cores", 2}, {"packages", {{"trl", "1.6.0"}, {"x", "1"}}}};
  now.environment = {{"commit", "b2"}, {"torch", "2.11.0"}, {"cores", nullptr}, {"packages", {{"trl", "1.9.0"}}}};
  EXPECT_TRUE(print(compare(before, now))
                  .find("missing 0\nwhat changed in the environment:\n    commit a1 -> b2\n    cores 2 -> unknown\n"
                        "    packages.trl 1.6.0 -> 1.9.0\n    packages.x 1 -> none\nlikely causes:\n") !=
              std::string::npos)
      << print(compare(before, now));
  const auto json = to_json(compare(before, now), parse_gate("fixed"))["environment"];
  EXPECT_EQ(json["packages.trl"], nlohmann::ordered_json({{"old", "1.6.0"}, {"new", "1.9.0"}}));
  EXPECT_EQ(json.size(), 4U);

  EXPECT_TRUE(print(compare(before, before)).ends_with("missing 0\n"));
  now.cases = before.cases;
  EXPECT_TRUE(print(compare(before, now)).ends_with("missing 0\n")) << "where all is as before it is no cause";
  now = document({{error("no"), {}, {}}});
  now.environment = before.environment;
  EXPECT_TRUE(print(compare(before, now)).find("missing 0\nlikely causes:\n") != std::string::npos);
}

}  // namespace
}  // namespace regather::matrix
