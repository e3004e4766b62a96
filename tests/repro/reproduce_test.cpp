// Judging an issue by what its cases do, on a worker that does what the test says.
#include "repro/reproduce.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "program.h"

namespace regather::repro {
namespace {

Entry entry(Status status) {
  Entry e;
  e.id = "proj#1";
  e.title = "a bug";
  e.status = status;
  e.signatures = {{Outcome::wrong_gradient, Phase::gradients, "reducer_unarmed", "", ""}};
  e.without = {parse_id("ddp/sft/fix=none")};
  e.with = {parse_id("ddp/sft/fix=redirect")};
  e.control = {parse_id("ddp/sft/call=engine/fix=none"), parse_id("fsdp1/sft/fix=none")};
  return e;
}

Reproduction run(const Entry& e, const std::string& behaviour, const std::optional<Fixes>& fixes = std::nullopt) {
  ::setenv("REGATHER_WORKER", REGATHER_FAKE_WORKER, 1);
  ::setenv("FAKE_WORKER", behaviour.c_str(), 1);
  return reproduce({&e}, {.fixes = fixes, .model = {}})->front();
}

TEST(Reproduce, AFixedBugShowsWithoutItsFixOnly) {
  const Entry e = entry(Status::reproduced);
  const Reproduction r = run(e, "ddp/sft/fix=none=wrong");
  EXPECT_TRUE(r.reproduced && r.repaired && r.controlled && r.supported);
  EXPECT_FALSE(r.contradicted);
  EXPECT_EQ(r.control[1].outcome, Outcome::unsupported) << "an unsupported cell is not red";

  EXPECT_TRUE(run(e, "").contradicted) << "it does not show";
  EXPECT_TRUE(run(e, "ddp/sft=wrong").contradicted) << "it is not repaired";
  EXPECT_TRUE(run(e, "fix=none=wrong").contradicted) << "the control fails too";
}

TEST(Reproduce, AFailureOfAnotherKindIsNotTheBug) {
  const Reproduction r = run(entry(Status::reproduced), "ddp/sft/fix=none=exit");
  EXPECT_FALSE(r.reproduced);
  EXPECT_TRUE(r.contradicted);
}

TEST(Reproduce, OpenAndRefutedAreGreenWhenTheyBehaveAsTheySay) {
  Entry open = entry(Status::open);
  open.with.clear();
  EXPECT_FALSE(run(open, "ddp/sft/fix=none=wrong").contradicted);
  EXPECT_TRUE(run(open, "").contradicted);
  EXPECT_TRUE(run(entry(Status::open), "ddp/sft/fix=none=wrong").contradicted) << "it has a fix after all";
  EXPECT_FALSE(run(entry(Status::refuted), "").contradicted);
  EXPECT_TRUE(run(entry(Status::refuted), "ddp/sft/fix=none=wrong").contradicted);
}

TEST(Reproduce, OtherFixesMayStandIn) {
  const Reproduction r = run(entry(Status::reproduced), "ddp/sft/fix=none=wrong", Fixes{"gather"});
  ASSERT_EQ(r.with.size(), 1U);
  EXPECT_EQ(id(r.with[0].which), "ddp/sft/fix=gather");
  EXPECT_THROW(with_fixes({parse_id("ddp/sft/call=engine/fix=none")}, {"redirect"}), UsageError);
}

TEST(Reproduce, NothingSupportedContradictsNothing) {
  Entry e = entry(Status::reproduced);
  e.without = {parse_id("fsdp1/kto/fix=none")};
  const Reproduction r = run(e, "");
  EXPECT_FALSE(r.supported);
  EXPECT_FALSE(r.reproduced);
  EXPECT_FALSE(r.contradicted);
}

TEST(Reproduce, AnEntryWithoutCasesRunsNothingAndContradictsNothing) {
  Entry e = entry(Status::recognised);
  e.without.clear();
  e.with.clear();
  e.control.clear();
  const Reproduction r = run(e, "exit");
  EXPECT_TRUE(r.supported);
  EXPECT_FALSE(r.reproduced || r.repaired || r.contradicted);
  EXPECT_NE(print(r).find("nothing to run"), std::string::npos);
}

TEST(ReproProgram, ListsRunsAndJudges) {
  EXPECT_NE(regather({"repro", "list"}).out.find("deepspeed#8130"), std::string::npos);
  EXPECT_EQ(regather({"repro", "list", "--fix", "gather"}).code, 2);
  for (const auto& entry : nlohmann::json::parse(regather({"repro", "list", "--json"}).out)) {
    EXPECT_FALSE(entry["why"].empty()) << entry["id"];
  }
  EXPECT_EQ(regather({"repro", "deepspeed#4595"}).code, 0) << "open, and nothing to run";
  EXPECT_EQ(regather({"repro", "deepspeed#8130"}).code, 1) << "the fake worker passes everything";
  const Ended ended = regather({"repro", "deepspeed#8130", "--json"});
  const nlohmann::json json = nlohmann::json::parse(ended.out);
  EXPECT_EQ(json["id"], "deepspeed#8130");
  EXPECT_EQ(json["without"][0]["outcome"], "pass");
  EXPECT_EQ(json["reproduced"], false);
  EXPECT_EQ(json["repaired"], true);
  EXPECT_EQ(json["status"], "reproduced");
  EXPECT_EQ(json["contradicted"], true);
  EXPECT_TRUE(nlohmann::json::parse(regather({"repro", "all", "--json"}).out).is_array());
  EXPECT_EQ(regather({"repro", "deepspeed#1"}).code, 2);
  EXPECT_EQ(regather({"repro", "deepspeed#8130", "--fix", "magic"}).code, 2);
  EXPECT_EQ(regather({"repro", "deepspeed#8130", "--model", "/nowhere"}).code, 2);
  EXPECT_EQ(regather({"repro"}).code, 2);
}

}  // namespace
}  // namespace regather::repro
