// `regather explain` on the runtime: the sets of fixes, what each repairs, and where a case departs.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "case/case.h"
#include "case/fixes.h"

namespace regather::matrix {
namespace {

using Json = nlohmann::json;

Json explained(const std::string& id) {
  const std::string command = "'" REGATHER_PROGRAM "' explain '" + id + "' --json";
  FILE* pipe = ::popen(command.c_str(), "r");
  std::string text;
  char buffer[4096];
  for (size_t got; (got = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, got);
  EXPECT_EQ(::pclose(pipe), 0) << id;
  return Json::parse(text, nullptr, false);
}

// Set and, for each fix, the mechanism without it.
std::vector<std::vector<std::string>> sets(const Json& explanation) {
  std::vector<std::vector<std::string>> all;
  for (const Json& set : explanation["sets"]) {
    all.emplace_back();
    for (const Json& repair : set["repairs"]) {
      all.back().push_back(repair["fix"].get<std::string>() + ": " +
                           (repair["mechanism"].is_null() ? "none" : repair["mechanism"].get<std::string>()));
    }
  }
  return all;
}

using Sets = std::vector<std::vector<std::string>>;

TEST(Explained, TheBugsOfTheCard) {
  const Json ddp = explained("ddp/sft/fix=none");
  EXPECT_EQ(sets(ddp), (Sets{{"redirect: reducer_unarmed"}}));
  EXPECT_EQ(ddp["signature"]["where"]["parameter"], "lm_head.weight");

  const Json freed = explained("zero3/sft/checkpoint=nonreentrant/frozen=norms/fix=none");
  EXPECT_EQ(sets(freed), (Sets{{"recompute_hold: recompute_freed_frozen", "redirect: head_read_partitioned"}}));
  EXPECT_EQ(freed["signature"]["where"]["module"], "lm_head");
  EXPECT_EQ(freed["signature"]["where"]["parameter"], "lm_head.weight");
  EXPECT_TRUE(freed["signature"]["where"]["collective"].get<std::string>().starts_with("all_gather #"));

  const Json kto = explained("zero3/kto/fix=gather+kl_backbone+recompute_hold+redirect");
  EXPECT_EQ(kto["outcome"], "pass");
  EXPECT_FALSE(kto["superfluous"].empty());

  // Either gives the loss gathered weights: inside the root's forward, or in a method that the root's hooks run around.
  EXPECT_EQ(sets(explained("fsdp2/dpo/fix=none")),
            (Sets{{"forward_method: mixed_dtensor"}, {"redirect: mixed_dtensor"}}));
}

TEST(Explained, AnErrorInBackwardHasItsModule) {
  const Json head = explained("zero3/sft/fix=gather");
  EXPECT_EQ(head["signature"]["mechanism"], "head_grad_on_partitioned");
  EXPECT_EQ(head["signature"]["where"]["module"], "lm_head");
}

// A fix is tried on the backends that it acts on: on others it changes nothing.
TEST(Explained, AFixChangesNothingWhereItDoesNotAct) {
  const std::string out = "explained_elsewhere";
  std::string arguments;
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const char* backend : {"ddp", "zero2", "zero3", "fsdp2"}) {
    for (const char* loss : {"sft", "kto"}) {
      Case c = parse_id(std::string(backend) + "/" + loss + "/checkpoint=nonreentrant/frozen=norms/fix=none");
      const std::string plain = id(c);
      arguments += " --case " + plain;
      for (const FixInfo& fix : known_fixes()) {
        if (fix.acts_on(c.backend)) continue;
        c.fixes = {fix.name};
        arguments += " --case " + id(c);
        pairs.emplace_back(plain, id(c));
      }
    }
  }
  ASSERT_GT(pairs.size(), 30U);
  const std::string command = "'" REGATHER_PROGRAM "' matrix run" + arguments + " --out " + out + " 2>/dev/null";
  ASSERT_EQ(std::system(command.c_str()), 0);
  std::map<std::string, std::string> kinds;
  std::ifstream lines(out + "/cases.jsonl");
  for (std::string line; std::getline(lines, line);) {
    const Json result = Json::parse(line);
    Json signature = result["signature"];
    if (result["outcome"] == "unsupported") continue;
    kinds[result["id"]] =
        result["outcome"].get<std::string>() + signature["mechanism"].dump() + signature["phase"].dump();
  }
  size_t compared = 0;
  for (const auto& [plain, other] : pairs) {
    if (!kinds.contains(other)) continue;  // a fix that is not built
    EXPECT_EQ(kinds.at(plain), kinds.at(other)) << other;
    ++compared;
  }
  EXPECT_GT(compared, 30U);
}

}  // namespace
}  // namespace regather::matrix
