// Every way in which a cell can differ is found, and nothing else.
#include "matrix/fidelity/agreement.h"

#include <gtest/gtest.h>

#include <functional>

namespace regather::matrix {
namespace {

CaseResult result(const char* id, Outcome outcome) {
  CaseResult r;
  r.which = parse_id(id);
  r.outcome = outcome;
  r.gradients = GradientSummary{.compared = 54,
                                .worst = "lm_head.weight",
                                .relative_l2 = 3e-7,
                                .cosine = 1,
                                .tolerance = 1e-5,
                                .share = 0.03,
                                .max_abs = 1e-6,
                                .at = {3, 4},
                                .got = 0.5,
                                .want = 0.5,
                                .missing = 0,
                                .unexpected = 0,
                                .nonfinite = 0};
  r.loss = LossPair{5.5, 5.5};
  return r;
}

Departure departure(Outcome outcome, const char* mechanism, Phase phase, int step, int rank, const char* text) {
  return {outcome, {mechanism, phase, step, rank, "RuntimeError", text, ""}};
}

void fail(CaseResult& r, const Departure& d) {
  r.outcome = d.outcome;
  r.signature = d.signature;
}

CaseResult wrong() {
  CaseResult r = result("ddp/sft/fix=none", Outcome::wrong_gradient);
  fail(r, departure(Outcome::wrong_gradient, "reducer_unarmed", Phase::gradients, 0, 0, "lm_head.weight"));
  r.gradients->relative_l2 = 1.2;
  r.gradients->cosine = 0.4;
  return r;
}

CaseResult error() {
  CaseResult r = result("zero3/sft/fix=none", Outcome::error);
  fail(r, departure(Outcome::error, "head_read_partitioned", Phase::forward, 0, 0,
                    "size mismatch, got input (16), mat (16x32), vec (0)"));
  r.gradients.reset();
  r.loss.reset();
  return r;
}

// What differs once `change` has been made to the runtime's result, joined.
std::string after(const CaseResult& real, const std::function<void(CaseResult&)>& change,
                  std::optional<double> apart = {}) {
  CaseResult runtime = real;
  change(runtime);
  std::string text;
  for (const Difference& d : differences({.real = real, .built_in = {}, .runtime_l2 = apart}, runtime)) {
    text += (text.empty() ? "" : "; ") + d.what;
  }
  return text;
}

TEST(Agreement, OfEqualResults) {
  for (const CaseResult& r : {result("ddp/sft/fix=redirect", Outcome::pass), wrong(), error()}) {
    EXPECT_EQ(after(r, [](CaseResult&) {}), "") << id(r.which);
  }
}

TEST(Agreement, AnotherOutcomeNamesBothFailures) {
  const auto differs =
      differences({.real = wrong(), .built_in = {}, .runtime_l2 = {}}, result("ddp/sft/fix=none", Outcome::pass));
  ASSERT_EQ(differs.size(), 2U);
  EXPECT_EQ(differs[0].real, "wrong_gradient");
  EXPECT_EQ(differs[0].runtime, "pass");
  EXPECT_EQ(differs[1].real, "reducer_unarmed in gradients of step 0: lm_head.weight");
  EXPECT_EQ(differs[1].runtime, "no failure");
}

TEST(Agreement, OfAFailureEveryPartCounts) {
  EXPECT_EQ(after(error(), [](CaseResult& r) { r.signature->phase = Phase::backward; }), "phase");
  EXPECT_EQ(after(error(), [](CaseResult& r) { r.signature->step = 1; }), "step");
  EXPECT_EQ(after(error(), [](CaseResult& r) { r.signature->mechanism = "lifecycle"; }), "mechanism");
  EXPECT_EQ(
      after(error(), [](CaseResult& r) { r.signature->text = "size mismatch, got input (16), mat (16x32), vec (32)"; }),
      "text");
  EXPECT_EQ(
      after(error(),
            [](CaseResult& r) { r.also.push_back(departure(Outcome::error, "", Phase::forward, 1, 0, "later")); }),
      "also");
}

TEST(Agreement, TheRowsOfAChunkTheRankAndOurOwnWordsDoNot) {
  EXPECT_EQ(
      after(error(), [](CaseResult& r) { r.signature->text = "size mismatch, got input (22), mat (22x32), vec (0)"; }),
      "");
  EXPECT_EQ(after(error(), [](CaseResult& r) { r.signature->rank = 1; }), "");
  EXPECT_EQ(after(error(), [](CaseResult& r) { r.also = {{r.outcome, *r.signature}}; }), "");
  EXPECT_EQ(after(error(),
                  [](CaseResult& r) {
                    r.signature->upstream = r.signature->text;
                    r.signature->text = "ours";
                  }),
            "");
  EXPECT_EQ(after(wrong(), [](CaseResult& r) { r.signature->text = "model.norm.weight: 1.2"; }), "");
}

TEST(Agreement, GradientsAreHeldToTheTolerance) {
  const auto error_by = [](double by) { return [by](CaseResult& r) { r.gradients->relative_l2 += by; }; };
  EXPECT_EQ(after(wrong(), error_by(1e-5)), "");
  EXPECT_EQ(after(wrong(), error_by(1e-4)), "gradients: worst relative L2 error");
  EXPECT_EQ(after(wrong(), [](CaseResult& r) { r.gradients->missing = 24; }), "gradients: missing");
  EXPECT_EQ(after(wrong(), [](CaseResult& r) { r.gradients->unexpected = 1; }), "gradients: unexpected");
  EXPECT_EQ(after(wrong(), [](CaseResult& r) { r.gradients->nonfinite = 7; }), "gradients: nonfinite");
  EXPECT_EQ(after(wrong(), [](CaseResult& r) { r.gradients->compared = 27; }), "gradients: compared");
  EXPECT_EQ(after(wrong(), [](CaseResult& r) { r.loss->got = 5.4; }), "loss");
  EXPECT_EQ(after(wrong(), [](CaseResult& r) { r.loss = LossPair{4.5, 4.5}; }), "") << "another step's, as right";
}

TEST(Agreement, TheStacksGradientsAreCloseToEachOther) {
  const CaseResult pass = result("ddp/sft/fix=redirect", Outcome::pass);
  EXPECT_EQ(after(
                pass, [](CaseResult&) {}, 5e-7),
            "");
  EXPECT_EQ(after(
                pass, [](CaseResult&) {}, 1e-3),
            "gradients: one stack's from the other's");
}

}  // namespace
}  // namespace regather::matrix
