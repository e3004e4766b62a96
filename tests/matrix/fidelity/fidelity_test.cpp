// The command from outside, with an environment whose Python is a script in front of the fake worker.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/matrix/program.h"

namespace regather {
namespace {

using Json = nlohmann::json;

class FidelityTest : public testing::Test {
 protected:
  // bin/python -W ignore -m regather_peers.MODULE [--blackbox FILE]
  void SetUp() override {
    std::filesystem::create_directories(env_ + "/bin");
    std::ofstream(env_ + "/bin/python")
        << "#!/bin/sh\n"
           "case \"$4\" in *environment)\n"
           "  echo '{\"python\":\"3.11.2\",\"packages\":{\"torch\":\"2.11.0\"}}'; exit;;\n"
           "esac\n"
           "FAKE_WORKER=$FAKE_PYTHON exec '" REGATHER_FAKE_WORKER "' \"$5\" \"$6\"\n";
    ::chmod((env_ + "/bin/python").c_str(), 0700);
  }
  Ended fidelity(std::vector<std::string> more, const std::string& python = "", const std::string& runtime = "") {
    more.insert(more.begin(), {"fidelity", "--out", folder_ / "out"});
    return regather::regather(std::move(more), {{"FAKE_PYTHON", python}, {"FAKE_WORKER", runtime}});
  }
  std::vector<std::string> some(std::vector<std::string> more = {}) const {
    more.insert(more.begin(),
                {"card", "--stack", "python:" + env_, "--filter=backend=zero3 & loss=sft", "--fixes=off"});
    return more;
  }

  TemporaryFolder folder_;
  std::string env_ = folder_ / "env";
};

TEST_F(FidelityTest, AgreementIsGreenAndCounted) {
  const Ended ended = fidelity(some({"--json"}));
  ASSERT_EQ(ended.code, 0) << ended.err;
  const Json json = Json::parse(ended.out);
  EXPECT_EQ(json["compared"], 15);
  EXPECT_EQ(json["agree"], 15);
  EXPECT_EQ(json["disagree"], 0);
  EXPECT_EQ(json["excepted"], 0);
  EXPECT_EQ(json["cells"].size(), 15U);
}

TEST_F(FidelityTest, ADisagreementIsRedAndNamesCellAndMechanism) {
  const Ended ended = fidelity(some(), "zero3/sft/fix=none=wrong");
  EXPECT_EQ(ended.code, 1);
  EXPECT_NE(ended.out.find("zero3/sft/fix=none [local]\n    outcome: real wrong_gradient, runtime pass\n"
                           "    failure: real reducer_unarmed in gradients of step 0: model.norm.weight"),
            std::string::npos)
      << ended.out;
  EXPECT_NE(ended.out.find("compared 15, agree 14, disagree 1, excepted 0"), std::string::npos) << ended.out;
}

TEST_F(FidelityTest, ARuntimeThatCrashesDisagrees) {
  const Ended ended = fidelity(some(), "", "zero3/sft/fix=none=abort");
  EXPECT_EQ(ended.code, 1) << ended.err;
  EXPECT_NE(ended.out.find("outcome: real pass, runtime crash"), std::string::npos) << ended.out;
}

TEST_F(FidelityTest, WritesARecordingOfWhatPythonDid) {
  const std::string file = folder_ / "mine.jsonl";
  ASSERT_EQ(fidelity(some({"--record", file, "--set", "mine"})).code, 0);
  EXPECT_EQ(count_lines(file), 16U);
  const Json header = Json::parse(read_text(file).substr(0, read_text(file).find('\n')));
  EXPECT_EQ(header["set"], "mine");
  EXPECT_EQ(header["packages"]["torch"], "2.11.0");
}

TEST_F(FidelityTest, TheRecordingsAreComparedWithoutPython) {
  // The fake runtime passes everything, which the recorded failures contradict.
  const Ended ended = fidelity({"--recorded", "--json"});
  EXPECT_EQ(ended.code, 1) << ended.err;
  const Json json = Json::parse(ended.out);
  EXPECT_GE(json["compared"], 700);
  EXPECT_GT(json["disagree"], 100);
  EXPECT_EQ(json["compared"], json["agree"].get<int>() + json["disagree"].get<int>() + json["excepted"].get<int>());
}

TEST_F(FidelityTest, WhatItCannotUseIsExit2) {
  for (const auto& [arguments, part] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{}, "expected --recorded, or --stack"},
           {{"--recorded", "--stack", "python:" + env_}, "exclude each other"},
           {{"--recorded", "--record", "x"}, "--record"},
           {{"--stack", "python:" + env_, "--record", "/none/x"}, "cannot write in '/none'"},
           {{"--stack", "python:" + env_ + "/no"}, "expected the folder of a Python environment"},
           {{"--stack", "python:none_such"}, "regather peers setup --set none_such"},
           {{"--stack", "ruby"}, "expected reference or python:ENV"}}) {
    const Ended ended = fidelity(arguments);
    EXPECT_EQ(ended.code, 2) << part;
    EXPECT_NE(ended.err.find(part), std::string::npos) << ended.err;
  }
}

TEST_F(FidelityTest, MatrixRunTakesAPythonStackAndSaysWhatIsInIt) {
  const std::string out = folder_ / "run";
  const Ended ended =
      regather::regather({"matrix", "run", "--case", "zero3/sft/fix=none", "--stack", "python:" + env_, "--out", out});
  ASSERT_EQ(ended.code, 0) << ended.err;
  const Json document = Json::parse(read_text(out + "/results.json"));
  EXPECT_EQ(document["environment"]["stack"], "python:" + env_);
  EXPECT_EQ(document["environment"]["packages"]["torch"], "2.11.0");
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--fault", "skip_mask"}, {"--launcher", "threads"}, {"--device", "tpu"}}) {
    std::vector<std::string> arguments{"matrix", "run", "--stack", "python:" + env_, "--out", out};
    arguments.insert(arguments.end(), more.begin(), more.end());
    EXPECT_EQ(regather::regather(arguments).code, 2) << more[0];
  }
}

TEST_F(FidelityTest, BisectingNeedsAStackAndOneCase) {
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--case", "zero3/sft/fix=none"}, {"--stack", "python:" + env_}}) {
    std::vector<std::string> arguments{"matrix", "run", "--bisect-versions", "deepspeed", "--out", folder_ / "run"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Ended ended = regather::regather(arguments);
    EXPECT_EQ(ended.code, 2) << more[0];
    EXPECT_NE(ended.err.find("expected it with --stack python:ENV and one --case"), std::string::npos) << ended.err;
  }
}

TEST_F(FidelityTest, BenchStackComparesTimesAndOutcomes) {
  std::vector<std::string> arguments{"bench", "stack",           "--stack", "python:" + env_,
                                     "--out", folder_ / "speed", "--json"};
  const Ended ended = regather::regather(arguments);
  ASSERT_EQ(ended.code, 0) << ended.err;
  const Json rows = Json::parse(ended.out)["rows"];
  ASSERT_EQ(rows.size(), 6U);
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(rows[i]["cells"], 40) << rows[i];
  EXPECT_EQ(rows[5]["cells"], 200);
  EXPECT_EQ(regather::regather(arguments, {{"FAKE_PYTHON", "ddp/sft/fix=redirect=wrong"}}).code, 1);
  EXPECT_EQ(regather::regather({"bench", "stack"}).code, 2);
}

}  // namespace
}  // namespace regather
