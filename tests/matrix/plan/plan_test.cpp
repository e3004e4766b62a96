#include "matrix/plan/plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include <map>
#include <set>

#include "base/error.h"
#include "base/random.h"
#include "case/fixes.h"

namespace regather::matrix {
namespace {

std::set<std::string> ids_of(const std::vector<Case>& cases) {
  std::set<std::string> ids;
  for (const Case& c : cases) EXPECT_TRUE(ids.insert(id(c)).second) << id(c) << " stands twice";
  return ids;
}

Plan plan(const std::string& definition, const std::string& fixes = "") {
  Selection selection{.definition = definition, .fixes = {}, .filter = {}, .text = {}, .ids = {}, .shard = {}};
  if (!fixes.empty()) selection.fixes = parse_fix_modes(fixes);
  return make_plan(selection);
}

TEST(Plan, TheCardHolds600RunsHalfOfThemWithFixes) {
  const Plan card = plan("card");
  EXPECT_EQ(ids_of(card.cases).size(), 600U);
  EXPECT_EQ(std::ranges::count_if(card.cases, [](const Case& c) { return c.fixes.empty(); }), 300);
  for (const Case& c : card.cases) {
    EXPECT_FALSE(illegal(c));
    EXPECT_TRUE(c.fixes.empty() || c.fixes == recommended_fixes(c.backend, c.loss)) << id(c);
  }
}

TEST(Plan, EachLeavesOneFixOutAtATime) {
  const std::set<std::string> each = ids_of(plan("each").cases);
  EXPECT_TRUE(each.contains("zero3/kto/fix=gather+kl_backbone+recompute_hold"));
  EXPECT_TRUE(each.contains("zero3/kto/fix=gather+kl_backbone+redirect"));
  EXPECT_TRUE(each.contains("zero3/kto/fix=gather+recompute_hold+redirect"));
  EXPECT_TRUE(each.contains("zero3/kto/fix=kl_backbone+recompute_hold+redirect"));
  EXPECT_TRUE(each.contains("zero2/sft/accumulate=2/fix=none"));
  EXPECT_FALSE(each.contains("zero3/kto/fix=none"));
  // 60 cells on each of four backends with one fix; 45 and 15 on zero3 with three and four; 8 with accumulation.
  EXPECT_EQ(each.size(), 4U * 60 + 45 * 3 + 15 * 4 + 8);
}

TEST(Plan, SpeedHolds40CellsABackend) {
  std::map<std::string, size_t> of_backend;
  const std::vector<Case> cases = plan("speed").cases;
  for (const Case& c : cases) ++of_backend[axis_values(c)[0].value];
  EXPECT_EQ(of_backend,
            (std::map<std::string, size_t>{{"ddp", 40}, {"fsdp2", 40}, {"zero1", 40}, {"zero2", 40}, {"zero3", 40}}));
  EXPECT_EQ(ids_of(cases).size(), 200U);
}

TEST(Plan, FidelityHoldsTheTablesAndEveryAxisThatBothStacksHave) {
  const std::set<std::string> fidelity = ids_of(plan("fidelity").cases);
  const std::set<std::string> tables = ids_of(plan("tables").cases);
  EXPECT_GE(tables.size(), 680U + 46);
  EXPECT_TRUE(std::ranges::includes(fidelity, tables));
  for (const char* part : {"head=tied", "dtype=bf16", "accumulate=2", "accumulate=manual2", "input_grad=no",
                           "persistence=huge", "persistence=upstream", "steps=3", "kernel=chunked", "world=4"}) {
    EXPECT_TRUE(std::ranges::any_of(fidelity, [&](const std::string& id) { return id.find(part) != id.npos; })) << part;
  }
}

TEST(Plan, ASetsOwnFixesStandBeforeModesAndGiveWayToTheCommandLine) {
  Definition d = parse_definition("mine", R"({"schema":1,"fixes":["on"],"sets":[
      {"backend":["zero3"],"call":["direct","engine"],"fix":["gather","redirect"]}]})");
  EXPECT_EQ(ids_of(expand(d)), (std::set<std::string>{"zero3/sft/call=engine/fix=gather", "zero3/sft/fix=gather",
                                                      "zero3/sft/fix=redirect"}));
  EXPECT_EQ(plan("speed", "off").cases.size(), 200U);
}

TEST(Plan, ACaseThatOffAndEachShareRunsOnce) {
  const size_t off = plan("card", "off").cases.size();
  const size_t each = plan("card", "each").cases.size();
  // On every backend with a single recommended fix, each is off.
  EXPECT_EQ(ids_of(plan("card", "off,each").cases).size(), off + each - 4U * 60);
  EXPECT_EQ(ids_of(plan("card", "off,on,each").cases).size(), off + each - 4U * 60 + 300);
}

TEST(Plan, OnIsLegalInsideTheEngineToo) {
  const Definition d = parse_definition(
      "mine", R"({"schema":1,"fixes":["off","on","each"],"sets":[{"backend":["ddp","zero3"],"call":["engine"]}]})");
  EXPECT_EQ(ids_of(expand(d)),
            (std::set<std::string>{"ddp/sft/call=engine/fix=none", "zero3/sft/call=engine/fix=none",
                                   "zero3/sft/call=engine/fix=gather+recompute_hold",
                                   "zero3/sft/call=engine/fix=gather", "zero3/sft/call=engine/fix=recompute_hold"}));
}

TEST(Plan, CombinationsThatMeanNothingAreLeftOut) {
  const Definition d = parse_definition(
      "mine", R"({"schema":1,"fixes":["off"],"sets":[{"head":["untied","tied"],"frozen":["head","embedding"]}]})");
  EXPECT_EQ(expand(d).size(), 3U);
}

TEST(Plan, ShardsAreAPartitionOfEqualParts) {
  const std::vector<Case> whole = plan("each").cases;
  for (const size_t count : {1U, 2U, 3U, 7U, 64U, 443U, 1000U}) {
    std::vector<Case> together;
    size_t smallest = whole.size();
    size_t largest = 0;
    for (size_t index = 1; index <= count; ++index) {
      const std::vector<Case> part = divide(whole, {index, count});
      smallest = std::min(smallest, part.size());
      largest = std::max(largest, part.size());
      together.insert(together.end(), part.begin(), part.end());
    }
    EXPECT_LE(largest - smallest, 1U) << count;
    EXPECT_EQ(ids_of(together), ids_of(whole)) << count;
  }
}

TEST(Plan, ShardsParse) {
  EXPECT_EQ(parse_shard("2/4"), (Shard{2, 4}));
  for (const char* wrong : {"", "2", "0/4", "5/4", "2/", "/4", "a/b", "2/4x", "-1/2", "1/99999999999999999999999"}) {
    EXPECT_THROW(parse_shard(wrong), UsageError) << wrong;
  }
}

TEST(Plan, IdsStandForThemselves) {
  Selection selection;
  selection.ids = {"zero3/sft/fix=none", "ddp/sft/world=2/fix=none", "zero3/sft/fix=none"};
  const Plan p = make_plan(selection);
  EXPECT_EQ(p.definition, "cases");
  ASSERT_EQ(p.cases.size(), 2U);
  EXPECT_EQ(id(p.cases[1]), "ddp/sft/fix=none");
}

TEST(Plan, FiltersAndTexts) {
  Selection selection;
  selection.filter = "backend=zero3 & loss in (dpo,kto) & !fix=none";
  EXPECT_EQ(make_plan(selection).cases.size(), 30U);
  selection.text = "lora";
  EXPECT_EQ(make_plan(selection).cases.size(), 6U);
}

TEST(Plan, AProductWithoutBoundIsRefused) {
  std::string set = "{\"fixes\":[\"off\"]";
  for (const Axis& axis : axes()) {
    set += ",\"" + axis.name + "\":[";
    for (const std::string& value : axis.values) set += (value == axis.values[0] ? "\"" : ",\"") + value + "\"";
    set += "]";
  }
  try {
    expand(parse_definition("all", "{\"schema\":1,\"sets\":[" + set + "}]}"));
    FAIL() << "no error";
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find("at most 200000"), std::string::npos) << e.what();
  }
}

TEST(Plan, TheHashIsTheSameForEver) {
  EXPECT_EQ(stable_hash(""), "cbf29ce484222325");
  EXPECT_EQ(stable_hash("a"), "af63dc4c8601ec8c");
  EXPECT_EQ(
      plan("card").fingerprint,
      make_plan({.definition = "card", .fixes = {}, .filter = {}, .text = {}, .ids = {}, .shard = {2, 3}}).fingerprint);
}

}  // namespace
}  // namespace regather::matrix
