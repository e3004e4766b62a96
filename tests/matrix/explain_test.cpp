// The search of `regather explain`, over what a stand-in for the worker answers.
#include "matrix/explain.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "case/fixes.h"
#include "program.h"

namespace regather::matrix {
namespace {

using Json = nlohmann::json;

Fixes candidates_of(const char* id) { return candidates(parse_id(id)); }

TEST(Explain, CandidatesAreWhatActsOnTheBackendAndIsLegal) {
  EXPECT_EQ(candidates_of("ddp/sft/fix=none"), Fixes{"redirect"}) << "sync is not built";
  EXPECT_EQ(candidates_of("zero3/kto/fix=none"), (Fixes{"gather", "kl_backbone", "recompute_hold", "redirect"}));
  EXPECT_EQ(candidates_of("zero3/sft/kernel=eager/call=engine/fix=none"),
            (Fixes{"gather", "kl_backbone", "recompute_hold"}));
  const Fixes fsdp = candidates_of("fsdp2/sft/call=method/fix=none");
  EXPECT_NE(std::ranges::find(fsdp, "forward_method"), fsdp.end());
  EXPECT_EQ(std::ranges::find(fsdp, "gather"), fsdp.end());
}

struct Explained {
  Ended ended;
  Json json;
  std::vector<Fixes> sets() const {
    std::vector<Fixes> list;
    for (const Json& set : json["sets"]) list.push_back(set["fixes"]);
    return list;
  }
};

Explained explained(const std::string& id, const std::string& behaviour) {
  Explained e{regather({"explain", id, "--json"}, {{"FAKE_WORKER", behaviour}}), {}};
  e.json = Json::parse(e.ended.out, nullptr, false);
  return e;
}

TEST(Explain, FindsTheSmallestSetsAndWhatEachFixRepairs) {
  // Passes with gather and redirect, or with kl_backbone; the first rule that stands in an id decides.
  const Explained e = explained("zero3/sft/fix=none",
                                "gather+redirect=pass;gather+recompute_hold+redirect=pass;"
                                "kl_backbone=pass;zero3=wrong");
  EXPECT_EQ(e.ended.code, 0) << e.ended.err;
  EXPECT_EQ(e.sets(), (std::vector<Fixes>{{"kl_backbone"}, {"gather", "redirect"}}));
  EXPECT_EQ(e.json["outcome"], "wrong_gradient");
  EXPECT_EQ(e.json["superfluous"], Json::array());
  EXPECT_EQ(e.json["rerun"], "regather matrix run --case 'zero3/sft/fix=none'");
  const Json& redirect = e.json["sets"][1]["repairs"][1];
  EXPECT_EQ(redirect["fix"], "redirect");
  EXPECT_EQ(redirect["mechanism"], "reducer_unarmed");
  EXPECT_EQ(redirect["without"]["id"], "zero3/sft/fix=gather");
  EXPECT_EQ(redirect["without"]["signature"]["phase"], "gradients");
}

TEST(Explain, WhatHoldsAPassingSetIsNotRun) {
  const TemporaryFolder folder;
  // A superset of gather would hang.
  EXPECT_EQ(explained("zero3/sft/fix=none", "fix=gather+=silent;fix=gather=pass;zero3=wrong").sets(),
            (std::vector<Fixes>{{"gather"}}));
}

TEST(Explain, OfACaseThatPassesTellsWhichFixesAreSuperfluous) {
  const std::string id = "zero3/sft/fix=gather+recompute_hold+redirect";
  const Explained e = explained(id, "recompute_hold+redirect=pass;gather+redirect=pass;fix=redirect=pass;zero3=wrong");
  EXPECT_EQ(e.ended.code, 0);
  EXPECT_EQ(e.json["outcome"], "pass");
  EXPECT_EQ(e.sets(), (std::vector<Fixes>{{"redirect"}}));
  EXPECT_EQ(e.json["superfluous"], Json({"gather", "recompute_hold"}));
  const Ended text = regather({"explain", id}, {{"FAKE_WORKER", "redirect=pass;zero3=wrong"}});
  EXPECT_NE(text.out.find("superfluous: gather\n"), std::string::npos) << text.out;
  EXPECT_EQ(explained("ddp/sft/fix=none", "").sets(), std::vector<Fixes>{Fixes{}}) << "needs none";
}

TEST(Explain, WhereNothingHelpsIsRed) {
  const Explained e = explained("ddp/sft/fix=none", "ddp=wrong");
  EXPECT_EQ(e.ended.code, 1);
  EXPECT_TRUE(e.sets().empty());
  EXPECT_NE(regather({"explain", "ddp/sft/fix=none"}, {{"FAKE_WORKER", "ddp=wrong"}}).out.find("no set of fixes"),
            std::string::npos);
}

TEST(Explain, WhatCannotRunIsSaid) {
  const Ended unsupported = regather({"explain", "fsdp1/sft/fix=none"});
  EXPECT_EQ(unsupported.code, 4);
  EXPECT_NE(unsupported.err.find("backend fsdp1 is not in the reference runtime yet"), std::string::npos);
  const Ended illegal = regather({"explain", "zero3/sft/call=engine/fix=redirect"});
  EXPECT_EQ(illegal.code, 2);
  EXPECT_NE(illegal.err.find("nothing to redirect"), std::string::npos);
  EXPECT_EQ(regather({"explain"}).code, 2);
}

}  // namespace
}  // namespace regather::matrix
