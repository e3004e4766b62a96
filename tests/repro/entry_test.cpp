#include "repro/entry.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace regather::repro {
namespace {

using Json = nlohmann::json;

Json good() {
  return Json::parse(R"({"schema":1,"id":"proj#1","aliases":["proj#2"],"title":"a bug","status":"fixed",
    "mechanism":"reducer_unarmed","axes":{"backend":["ddp"],"loss":["sft","kto"]},"versions":"all","symptom":"wrong",
    "signatures":[{"outcome":"wrong_gradient","phase":"gradients"}],"workarounds":[],"references":["https://x"],
    "cases":{"without":["ddp/sft/fix=none"],"with":["ddp/sft/fix=redirect"],"control":[]}})");
}

std::string error_with(const std::string& pointer, const Json& value) {
  Json json = good();
  json[Json::json_pointer(pointer)] = value;
  try {
    parse_entry("mine", json.dump());
  } catch (const UsageError& e) {
    return e.what();
  }
  return "no error";
}

TEST(Entry, ReadsEveryMember) {
  const Entry e = parse_entry("mine", good().dump());
  EXPECT_EQ(e.id, "proj#1");
  EXPECT_EQ(e.status, Status::fixed);
  EXPECT_EQ(e.axes[1].first, "loss");
  EXPECT_EQ(e.axes[1].second, (std::vector<std::string>{"sft", "kto"}));
  EXPECT_EQ(e.signatures[0].outcome, Outcome::wrong_gradient);
  EXPECT_EQ(id(e.with[0]), "ddp/sft/fix=redirect");
}

TEST(Entry, NamesTheMemberAtFault) {
  const Json whole = good();
  for (const auto& [key, value] : whole.items()) {
    Json json = whole;
    json.erase(key);
    EXPECT_THROW(parse_entry("mine", json.dump()), UsageError) << key;
  }
  EXPECT_NE(error_with("/status", "closed").find("'status' is 'closed': expected one of fixed, open, refuted"),
            std::string::npos);
  EXPECT_NE(error_with("/extra", 1).find("'extra' is not a member"), std::string::npos);
  EXPECT_NE(error_with("/axes/wheel", Json::array()).find("'axes.wheel' is not a member"), std::string::npos);
  EXPECT_NE(error_with("/axes/backend", {"zero9"}).find("'zero9' is not a value of backend"), std::string::npos);
  EXPECT_NE(error_with("/signatures/0/phase", "later").find("'later' is not a phase"), std::string::npos);
  EXPECT_NE(error_with("/signatures/0", Json::object()).find("would match everything"), std::string::npos);
  EXPECT_NE(error_with("/cases/without", {"ddp"}).find("expected backend/loss"), std::string::npos);
  EXPECT_NE(error_with("/cases/without", Json::array()).find("at least one case"), std::string::npos);
  EXPECT_NE(error_with("/cases/with", Json::array()).find("since the status is fixed"), std::string::npos);
  EXPECT_NE(error_with("/title", "").find("not empty"), std::string::npos);
  EXPECT_THROW(parse_entry("mine", "{"), UsageError);
  EXPECT_THROW(parse_entry("mine", "[]"), UsageError);
}

TEST(Entry, APatternAsksForAllThatItGives) {
  CaseResult r;
  r.outcome = Outcome::error;
  r.signature = Signature{"recompute_freed_frozen", Phase::backward, 0, 0, "CheckpointError", "shape [0]", ""};
  EXPECT_TRUE(
      (Pattern{Outcome::error, Phase::backward, "recompute_freed_frozen", "CheckpointError", "[0]"}.matches(r)));
  EXPECT_TRUE((Pattern{Outcome::error, std::nullopt, "", "", ""}.matches(r)));
  EXPECT_FALSE((Pattern{Outcome::crash, std::nullopt, "", "", ""}.matches(r)));
  EXPECT_FALSE((Pattern{std::nullopt, Phase::forward, "", "", ""}.matches(r)));
  EXPECT_FALSE((Pattern{std::nullopt, std::nullopt, "", "", "[32]"}.matches(r)));
  r.signature.reset();
  EXPECT_FALSE((Pattern{Outcome::error, std::nullopt, "", "", "[0]"}.matches(r)));
}

TEST(Register, EveryEntryLoadsAndIsFoundByEveryName) {
  ASSERT_FALSE(known_entries().empty());
  for (const Entry& entry : known_entries()) {
    EXPECT_EQ(find_entry(entry.id).id, entry.id);
    for (const std::string& alias : entry.aliases) EXPECT_EQ(find_entry(alias).id, entry.id);
    for (const Case& c : entry.without) EXPECT_FALSE(illegal(c));
  }
  EXPECT_EQ(find_entry("DeepSpeed#8130").id, "deepspeed#8130");
  EXPECT_THROW(find_entry("deepspeed#1"), UsageError);
}

}  // namespace
}  // namespace regather::repro
