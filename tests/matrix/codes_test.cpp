// Every exit code and every verdict, reached from outside: a row each.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "matrix/results/verdict.h"
#include "program.h"

namespace regather {
namespace {

using Json = nlohmann::json;
using matrix::Exit;
using matrix::Verdict;

// Two cases without fixes and two with them.
constexpr const char* kDefinition =
    R"({"schema":1,"fixes":["off","on"],"sets":[{"backend":["ddp"],"loss":["sft","kto"]}]})";
constexpr const char* kExpectations =
    R"({"schema":1,"about":"a test's","definition":"none","expectations":[{"select":"fix=none","outcome":
        "wrong_gradient","signature":{"mechanism":"reducer_unarmed","phase":"gradients"},"issues":[],"reason":"a test's",
        "since":"2026-01-01"}]})";

class CodesTest : public testing::Test {
 protected:
  void SetUp() override {
    std::ofstream(definition_) << kDefinition;
    std::ofstream(expectations_) << kExpectations;
  }

  std::vector<std::string> arguments(std::vector<std::string> more, const std::string& out) const {
    more.insert(more.begin(), {"matrix", "run", definition_, "--out", folder_ / out});
    return more;
  }
  Ended run(std::vector<std::string> more, const std::string& behaviour = "", const std::string& out = "out") {
    return regather(arguments(std::move(more), out), {{"FAKE_WORKER", behaviour}});
  }
  std::string results(const std::string& out = "out") const { return folder_ / (out + "/results.json"); }
  // An earlier run in which the cases of one loss fail.
  std::string earlier(const std::string& behaviour) {
    run({}, behaviour, "earlier");
    return results("earlier");
  }

  TemporaryFolder folder_;
  std::string definition_ = folder_ / "definition.json";
  std::string expectations_ = folder_ / "expectations.json";
};

TEST_F(CodesTest, EveryExitCode) {
  const std::map<Exit, std::function<Ended()>> rows{
      {Exit::green, [&] { return run({}); }},
      {Exit::red, [&] { return run({}, "fix=redirect=wrong"); }},
      {Exit::usage,
       [&] {
         return run({"--case", "ddp"});
       }},
      {Exit::internal,
       [&] {
         return regather(arguments({}, "out"), {{"REGATHER_WORKER", "/nowhere/worker"}});
       }},
      {Exit::nothing,
       [&] {
         return run({"-k", "no such text"});
       }},
      {Exit::incomplete,
       [&] {
         run({"--shard", "1/2"}, "", "first");
         return regather({"matrix", "merge", results("first"), "--out", folder_ / "merged"});
       }},
      {Exit::interrupted,
       [&] {
         Program program(arguments({}, "slow"), {{"FAKE_WORKER", "ddp=slow"}});
         while (count_lines(folder_ / "slow/cases.jsonl") < 1)
           std::this_thread::sleep_for(std::chrono::milliseconds(5));
         program.signal(SIGINT);
         return program.wait();
       }},
  };
  for (const int code : {0, 1, 2, 3, 4, 5, 130}) {
    const auto row = rows.find(static_cast<Exit>(code));
    ASSERT_NE(row, rows.end()) << code;
    const Ended ended = row->second();
    EXPECT_EQ(ended.code, code) << ended.err;
  }
  EXPECT_EQ(rows.size(), 7U);
}

TEST_F(CodesTest, EveryVerdict) {
  const std::string unarmed = "fix=none=wrong";
  // How to reach it, and whether it is red by default.
  struct Row {
    std::function<Ended()> run;
    bool red;
  };
  const std::map<Verdict, Row> rows{
      {Verdict::expected,
       {[&] {
          return run({"--expectations", expectations_}, unarmed);
        },
        false}},
      {Verdict::xfail,
       {[&] {
          return run({"--expectations", expectations_}, unarmed);
        },
        false}},
      {Verdict::xpass,
       {[&] {
          return run({"--expectations", expectations_}, "sft/fix=none=wrong");
        },
        true}},
      {Verdict::regression,
       {[&] {
          return run({"--baseline", earlier("")}, unarmed);
        },
        true}},
      {Verdict::changed,
       {[&] {
          Json old = Json::parse(read_text(earlier(unarmed)));
          old["cases"][0]["signature"]["mechanism"] = "lifecycle";
          std::ofstream(results("earlier")) << old;
          return run({"--baseline", results("earlier")}, unarmed);
        },
        false}},
      {Verdict::fixed,
       {[&] {
          return run({"--baseline", earlier(unarmed)});
        },
        false}},
      {Verdict::flaky,
       {[&] {
          return run({"--expectations", expectations_, "--retries", "1"}, unarmed + ";fix=redirect=wrong_once");
        },
        false}},
      {Verdict::absent,
       {[&] {
          earlier("");
          std::ofstream(definition_) << R"({"schema":1,"fixes":["off"],"sets":[{"backend":["ddp"],"loss":["sft"]}]})";
          Ended ended = run({"--baseline", results("earlier")});
          std::ofstream(definition_) << kDefinition;
          return ended;
        },
        true}},
      {Verdict::fresh,
       {[&] {
          run({"-k", "sft"}, "", "earlier");
          return run({"--baseline", results("earlier")});
        },
        false}},
  };
  for (int i = 0; i <= static_cast<int>(Verdict::unchanged); ++i) {
    const auto verdict = static_cast<Verdict>(i);
    if (verdict == Verdict::unchanged) continue;  // of two documents alone, below
    const auto row = rows.find(verdict);
    ASSERT_NE(row, rows.end()) << name(verdict);
    const Ended ended = row->second.run();
    EXPECT_EQ(ended.code, row->second.red ? 1 : 0) << name(verdict) << ": " << ended.err;
    EXPECT_GE(Json::parse(read_text(results()))["totals"]["verdict"].value(name(verdict), 0), 1) << name(verdict);
  }
  earlier(unarmed);
  const Json compared = Json::parse(regather({"compare", results("earlier"), results("earlier"), "--json"}).out);
  EXPECT_EQ(compared["counts"], Json({{"unchanged", 4}}));
}

// Every kind may be gated, and every kind may be let through.
TEST_F(CodesTest, TheGateIsTheUsers) {
  const std::string unarmed = "fix=none=wrong";
  EXPECT_EQ(run({"--baseline", earlier(unarmed), "--gate", "fixed"}).code, 1);
  EXPECT_EQ(run({"--baseline", earlier(unarmed), "--gate", "changed"}).code, 0);
  EXPECT_EQ(run({"--baseline", earlier(""), "--gate", "fixed,flaky"}, unarmed).code, 0) << "regressions let through";
  EXPECT_EQ(run({"--retries", "1", "--gate", "regression,flaky"}, "fix=redirect=wrong_once").code, 1);
  run({"-k", "sft"}, "", "earlier");
  EXPECT_EQ(run({"--baseline", results("earlier"), "--gate", "new,regression"}).code, 1);
  const Ended ended = run({"--baseline", results("earlier"), "--gate", "new"});
  EXPECT_NE(ended.err.find("RED ddp/kto/fix=none"), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find("--gate new\n"), std::string::npos) << "the way to run it again: " << ended.err;
  EXPECT_EQ(run({"--gate", "none"}).code, 2);
  earlier("");
  std::ofstream(definition_) << R"({"schema":1,"fixes":["off"],"sets":[{"backend":["ddp"],"loss":["sft"]}]})";
  EXPECT_EQ(run({"--baseline", results("earlier"), "--gate", "regression"}).code, 0) << "absent let through";
}

// -x: one red case is the reason, whatever has not run.
TEST_F(CodesTest, ARunThatStoppedAtARedCaseIsRedAndNotIncomplete) {
  EXPECT_EQ(run({"-x", "-j1"}, "ddp=segv").code, 1);
  EXPECT_EQ(Json::parse(read_text(results()))["totals"]["notrun"], 3);
  run({}, "", "whole");
  EXPECT_EQ(regather({"compare", results("whole"), results(), "--gate", "fixed"}).code, 1) << "three are missing";
}

}  // namespace
}  // namespace regather
