// Shards of a run put together: equal to one run, or refused in clear words.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "program.h"

namespace regather {
namespace {

using Json = nlohmann::json;

class MergeTest : public testing::Test {
 protected:
  Ended run(const std::string& out, std::vector<std::string> more = {}, const std::string& behaviour = kFails) {
    more.insert(more.begin(), {"matrix", "run", "smoke", "--out", folder_ / out});
    return regather(std::move(more), {{"FAKE_WORKER", behaviour}});
  }
  void run_shards(size_t count, const std::vector<std::string>& more = {}, const std::string& behaviour = kFails) {
    for (size_t i = 1; i <= count; ++i) {
      std::vector<std::string> arguments = more;
      const std::string shard = std::to_string(i) + "/" + std::to_string(count);
      arguments.insert(arguments.end(), {"--shard", shard});
      run(std::to_string(i), arguments, behaviour);
    }
  }
  std::string results(const std::string& out) const { return folder_ / (out + "/results.json"); }
  Json document(const std::string& out) const { return Json::parse(read_text(results(out))); }
  Json timeless(const std::string& out) const {
    Json json = document(out);
    json.erase("seconds");
    for (Json& line : json["cases"]) line.erase("milliseconds");
    return json;
  }
  Ended merge(const std::vector<std::string>& shards, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments{"matrix", "merge", "--out", folder_ / "merged"};
    for (const std::string& shard : shards) arguments.push_back(results(shard));
    arguments.insert(arguments.end(), more.begin(), more.end());
    return regather(std::move(arguments));
  }
  void rewrite(const std::string& out, const Json& json) { std::ofstream(results(out)) << json; }
  void expect_refused(const std::vector<std::string>& shards, const std::string& words) {
    const Ended ended = merge(shards);
    EXPECT_EQ(ended.code, 2) << words;
    EXPECT_NE(ended.err.find(words), std::string::npos) << ended.err;
    EXPECT_EQ(read_text(results("merged")), "") << "nothing is written";
  }

  static constexpr const char* kFails = "ddp/grpo/fix=none=wrong";
  TemporaryFolder folder_;
};

TEST_F(MergeTest, EqualsOneRun) {
  for (const std::vector<std::string>& options :
       {std::vector<std::string>{}, {"--retries", "2"}, {"--expectations", "card"}}) {
    const std::string behaviour = "ddp/grpo/fix=none=wrong;zero3/kto=wrong_once";
    const int code = run("whole", options, behaviour).code;
    for (const size_t count : {2U, 5U}) {
      run_shards(count, options, behaviour);
      std::vector<std::string> shards;
      for (size_t i = count; i >= 1; --i) shards.push_back(std::to_string(i));  // in any order
      const Ended ended = merge(shards);
      EXPECT_EQ(ended.code, code) << ended.err;
      EXPECT_EQ(timeless("merged"), timeless("whole"));
      EXPECT_GT(document("merged")["seconds"], 0);
    }
  }
  // The same by eye too: members in their order, a case a line.
  run("whole");
  run_shards(2);
  merge({"1", "2"});
  EXPECT_EQ(read_text(results("merged")).substr(0, 200), read_text(results("whole")).substr(0, 200));
  EXPECT_EQ(regather({"compare", results("whole"), results("merged")}).code, 0);
}

TEST_F(MergeTest, MoreShardsThanCases) {
  std::ofstream(folder_ / "two.json") << R"({"schema":1,"sets":[{"fix":["none"],"loss":["sft","kto"]}]})";
  const auto part = [&](const std::string& shard) {
    return regather({"matrix", "run", folder_ / "two.json", "--shard", shard, "--out", folder_ / shard.substr(0, 1)});
  };
  EXPECT_EQ(part("1/3").code, 0);
  EXPECT_EQ(part("2/3").code, 0);
  EXPECT_EQ(part("3/3").code, 4) << "an empty part";
  EXPECT_EQ(merge({"1", "2"}).code, 0) << "nothing is missing";
}

TEST_F(MergeTest, RulesJudgeTheWhole) {
  run_shards(2);
  EXPECT_EQ(merge({"1", "2"}).code, 0);
  run("whole", {}, "");
  const Ended ended = merge({"1", "2"}, {"--baseline", results("whole")});
  EXPECT_EQ(ended.code, 1) << "what one passes the other fails";
  EXPECT_NE(ended.err.find("RED ddp/grpo/fix=none\n"), std::string::npos) << ended.err;
  run("judged", {"--baseline", results("whole")});
  EXPECT_EQ(timeless("merged"), timeless("judged"));

  std::ofstream(folder_ / "idle.json") << R"({"schema":1,"about":"x","definition":"smoke","expectations":[
    {"select":"backend=single","outcome":"pass","issues":[],"reason":"x","since":"2026-01-01"}]})";
  EXPECT_NE(merge({"1", "2"}, {"--expectations", folder_ / "idle.json"}).err.find("selects nothing"),
            std::string::npos);
  EXPECT_EQ(merge({"1"}, {"--expectations", folder_ / "idle.json"}).err.find("selects nothing"), std::string::npos)
      << "a part";
}

TEST_F(MergeTest, AMissingShardIsIncomplete) {
  run_shards(3);
  const Ended ended = merge({"3", "1"});
  EXPECT_EQ(ended.code, 5);
  EXPECT_NE(ended.err.find("missing: shard 2; 8 of 24 cases are not reported"), std::string::npos) << ended.err;
  EXPECT_EQ(document("merged")["plan"]["cases"], 24);
  EXPECT_EQ(document("merged")["cases"].size(), 16U);
  run("whole");
  const Ended compared = regather({"compare", results("whole"), results("merged")});
  EXPECT_EQ(compared.code, 1);
  EXPECT_NE(compared.out.find("missing 8\n"), std::string::npos) << compared.out;
}

TEST_F(MergeTest, WhatDoesNotBelongTogetherIsRefused) {
  run_shards(2);
  expect_refused({"1", "2", "1"}, "shard 1/2 stands twice");
  run("whole");
  expect_refused({"1", "whole"}, "is no shard");
  run("seed", {"--shard", "2/2", "--seed", "3"});
  expect_refused({"1", "seed"}, "are not of one plan: hashes");
  run("third", {"--shard", "2/3"});
  expect_refused({"1", "third"}, "are not of one plan: shards of 2 and 3");

  const Json second = document("2");
  Json json = second;
  json["environment"]["torch"] = "2.12.0";
  rewrite("2", json);
  expect_refused({"1", "2"}, "were run in different environments: torch");
  json = second;
  json["cases"].erase(0);
  rewrite("2", json);
  expect_refused({"1", "2"}, "has 11 cases: shard 2/2 of 24 has 12");
  for (const Json& selected : {Json(24.5), Json(1e18), Json("x"), Json(999999999)}) {
    json = second;
    json["plan"]["selected"] = selected;
    rewrite("2", json);
    expect_refused({"1", "2"}, "'plan.selected': expected the number of cases");
  }
  json = second;
  json["cases"][0]["id"] = document("1")["cases"][0]["id"];
  rewrite("2", json);
  expect_refused({"1", "2"}, "stands twice");
  expect_refused({"nowhere"}, "cannot read");
}

TEST_F(MergeTest, HostsMayDiffer) {
  run_shards(2);
  Json json = document("2");
  json["environment"]["cpu"] = "another processor";
  rewrite("2", json);
  EXPECT_EQ(merge({"1", "2"}).code, 0);
  EXPECT_TRUE(document("merged")["environment"]["cpu"].is_null());
  EXPECT_EQ(document("merged")["environment"]["torch"], json["environment"]["torch"]);
}

}  // namespace
}  // namespace regather
