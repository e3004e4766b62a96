// The committed expectations of the card: green on what the card does, red when any one entry is altered. What the card
// does, as a run of it says, is here by backend; tests/tables runs it.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include <algorithm>

#include "base/file.h"
#include "case/mechanism.h"
#include "matrix/judge/judge.h"
#include "matrix/judge/load.h"
#include "matrix/plan.h"
#include "some_cases.h"

namespace regather::matrix {
namespace {

using Json = nlohmann::json;

CaseResult result_of(const Case& c) {
  const std::string which = id(c);
  if (!c.fixes.empty()) return ran(which, Outcome::pass);
  switch (c.backend) {
    case Backend::ddp:
      return failed(which, Outcome::wrong_gradient, "reducer_unarmed", Phase::gradients,
                    "model.norm.weight: relative L2 error 1.36", "gradient");
    case Backend::zero3:
      return failed(which, Outcome::error, "head_read_partitioned", Phase::forward,
                    "size mismatch, got input (22), mat (22x32), vec (0)", "c10::Error");
    case Backend::fsdp2:
      return failed(which, Outcome::error, "mixed_dtensor", Phase::forward,
                    "aten.embedding.default got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to "
                    "DTensor before calling distributed operators!",
                    "c10::Error");
    default:
      return ran(which, Outcome::pass);
  }
}

Exit judged(const Expectations& expectations) {
  static const Plan plan = make_plan({});
  const Judge judge(expectations, std::nullopt, Setting{});
  std::vector<CaseResult> results;
  std::vector<Judgement> judgements;
  for (const Case& c : plan.cases) {
    results.push_back(result_of(c));
    judgements.push_back(judge.of(results.back(), {}));
  }
  return decide(results, judgements, !judge.complaints(plan.cases, plan.definition, true).empty());
}

Json file() { return Json::parse(read_file(REGATHER_SOURCE_DIR "/matrix/expectations/card.json", 1 << 20)); }

Exit judged(const Json& json) { return judged(parse_expectations("altered", json.dump())); }

TEST(CardExpectations, AreGreen) {
  EXPECT_EQ(known_expectations(), std::vector<std::string>{"card"});
  EXPECT_EQ(judged(load_expectations("card")), Exit::green);
  EXPECT_EQ(judged(file()), Exit::green);
}

TEST(CardExpectations, SelectEveryCaseWithoutFixesAndNoOther) {
  const Expectations card = load_expectations("card");
  for (const Case& c : make_plan({}).cases) {
    const auto selects = [&](const Expectation& e) { return e.selects(c); };
    EXPECT_EQ(std::ranges::count_if(card.entries, selects), c.fixes.empty() ? 1 : 0) << id(c);
  }
}

TEST(CardExpectations, AreRedWhenAnyEntryIsAltered) {
  const Json whole = file();
  size_t altered = 0;
  const auto red = [&](size_t entry, const Json& change, const char* what) {
    Json copy = whole;
    Json& e = copy["expectations"][entry];
    const std::string before = e.dump();
    e.merge_patch(change);
    ASSERT_NE(e.dump(), before) << "nothing was altered";
    EXPECT_EQ(judged(copy), Exit::red) << "entry " << entry + 1 << " " << what << ": " << e.dump();
    ++altered;
  };
  const Json signature{{"mechanism", "lifecycle"}, {"phase", "invariant"}};
  for (size_t i = 0; i < whole["expectations"].size(); ++i) {
    const Json& entry = whole["expectations"][i];
    for (const char* outcome : {"pass", "wrong_gradient", "nonfinite", "error", "invariant", "hang", "crash", "oom"}) {
      if (entry["outcome"] == outcome) continue;
      Json change{{"outcome", outcome}};
      if (std::string(outcome) == "pass") change["signature"] = nullptr;
      if (std::string(outcome) != "pass" && !entry.contains("signature")) change["signature"] = signature;
      red(i, change, "outcome");
    }
    // Of another backend's cases: those fail otherwise, or have an entry already; or of nothing.
    for (const char* backend : {"ddp", "zero1", "zero2", "zero3", "fsdp2", "single"}) {
      const std::string select = std::string("fix=none & backend=") + backend;
      if (entry["select"].get<std::string>().find(backend) == std::string::npos)
        red(i, {{"select", select}}, "selector");
    }
    red(i, {{"select", "fix=none"}}, "selector");
    red(i, {{"select", "backend=ddp & fix=gather"}}, "selector");
    if (!entry.contains("signature")) continue;
    for (const std::string_view mechanism : known_mechanisms()) {
      if (entry["signature"]["mechanism"] != mechanism)
        red(i, {{"signature", {{"mechanism", mechanism}}}}, "mechanism");
    }
    for (const char* phase : {"build", "forward", "backward", "gradients", "step", "invariant"}) {
      if (entry["signature"]["phase"] != phase) red(i, {{"signature", {{"phase", phase}}}}, "phase");
    }
    red(i, {{"signature", {{"type", "Other"}}}}, "type");
    red(i, {{"signature", {{"text", "^other"}}}}, "text");
  }
  EXPECT_GT(altered, 100U);
}

TEST(CardExpectations, IssuesAreWrittenAsTheRegisterWritesThem) {
  for (const Expectation& e : load_expectations("card").entries) {
    EXPECT_FALSE(e.reason.empty());
    EXPECT_EQ(e.issues.empty(), e.outcome == Outcome::pass) << e.where;
  }
}

}  // namespace
}  // namespace regather::matrix
