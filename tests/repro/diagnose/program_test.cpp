// `regather diagnose` as people call it.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "program.h"

namespace regather::repro {
namespace {

using Json = nlohmann::json;

const std::string kLog =
    "zero_stage: 3\nTraceback (most recent call last):\n  File \"/x/site-packages/trl/trainer/dpo_trainer.py\", line "
    "9\n"
    "RuntimeError: size mismatch, got input (22), mat (22x2048), vec (0)\n";

class DiagnoseProgram : public testing::Test {
 protected:
  std::string written(const std::string& name, const std::string& text) const {
    replace_file(folder_ / name, text);
    return folder_ / name;
  }

 private:
  TemporaryFolder folder_;
};

TEST_F(DiagnoseProgram, AnswersByExitCode) {
  const std::string log = written("known.log", kLog);
  EXPECT_EQ(regather({"diagnose", log}).code, 0);
  EXPECT_EQ(regather({"diagnose", written("none.log", "all is well\n")}).code, 1);
  EXPECT_EQ(regather({"diagnose", written("empty.log", "")}).code, 1);
  EXPECT_EQ(regather({"diagnose"}).code, 2);
  const Ended absent = regather({"diagnose", "/nowhere/x.log"});
  EXPECT_EQ(absent.code, 2);
  EXPECT_NE(absent.err.find("log '/nowhere/x.log': No such file"), std::string::npos) << absent.err;
  EXPECT_EQ(regather({"diagnose", log, "--config", "/nowhere/ds.json"}).code, 2);
  EXPECT_EQ(regather({"diagnose", "-", "-"}).code, 2);
}

TEST_F(DiagnoseProgram, SaysTheSameAsJson) {
  const Ended ended = regather({"diagnose", "--json", written("known.log", kLog), written("other.log", "fine\n")});
  const Json json = Json::parse(ended.out);
  EXPECT_EQ(json["unknown"], false);
  EXPECT_EQ(json["candidates"][0]["mechanism"], "head_read_partitioned");
  EXPECT_GT(json["candidates"][0]["confidence"], 0.8);
  EXPECT_EQ(json["candidates"][0]["evidence"][0]["line"], 4);
  EXPECT_EQ(json["candidates"][0]["case"], "zero3/dpo/fix=none");
  const Json unknown = Json::parse(regather({"diagnose", "--json", written("none.log", "fine\n")}).out);
  EXPECT_EQ(unknown["unknown"], true);
  EXPECT_FALSE(unknown["collect"].empty());
}

// The whole measurement is `regather bench diagnose`; here that a small one finds its bug in little memory.
TEST_F(DiagnoseProgram, ItsBenchmarkFindsTheBugInLittleMemory) {
  const TemporaryFolder folder;
  const Json json =
      Json::parse(regather({"bench", "diagnose", "--mebibytes", "32", "--json", "--out", folder.path()}).out);
  EXPECT_EQ(json["right"], true);
  EXPECT_GT(json["bytes"], 32 << 20);
#ifndef __SANITIZE_ADDRESS__
  EXPECT_LE(json["memory_mib"], 64);
#endif
  EXPECT_EQ(regather({"bench", "diagnose", "--mebibytes", "0"}).code, 2);
}

TEST_F(DiagnoseProgram, TakesSeveralConfigs) {
  const std::string log = written("bare.log", kLog.substr(kLog.find('\n') + 1));
  const std::string config = written("ds.json", R"({"zero_optimization": {"stage": 3}})");
  const std::string other = written("fsdp.yaml", "mixed_precision: bf16\n");
  const Json json = Json::parse(regather({"diagnose", "--json", "--config", other, "--config", config, log}).out);
  bool told = false;
  for (const auto& line : json["candidates"][0]["evidence"]) told = told || line["log"] == config;
  EXPECT_TRUE(told) << json.dump(1);
}

}  // namespace
}  // namespace regather::repro
