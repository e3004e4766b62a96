// The command from outside: exit codes, JSON, --results.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "program.h"

namespace regather {
namespace {

using Json = nlohmann::json;

class CheckTest : public testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& text) {
    const std::string path = folder_ / name;
    std::ofstream(path) << text;
    return path;
  }
  TemporaryFolder folder_;
};

TEST_F(CheckTest, ExitCodesSayWhatWasFound) {
  const std::string zero2 = file("a", R"({"zero_optimization":{"stage":2}})");
  EXPECT_EQ(regather({"check", zero2}).code, 0);
  const std::string dpo = file("b", "loss_type: sigmoid\nuse_liger_kernel: true\n");
  const Ended wrong = regather({"check", dpo});
  EXPECT_EQ(wrong.code, 1) << wrong.err;
  EXPECT_NE(wrong.out.find("SILENTLY WRONG with trl >=1.9.0,<1.14.0"), std::string::npos) << wrong.out;
  const std::string fp16 = file("c", R"({"zero_optimization":{"stage":2},"fp16":{"enabled":true}})");
  const Ended unknown = regather({"check", fp16});
  EXPECT_EQ(unknown.code, 4) << unknown.out;
  EXPECT_NE(unknown.out.find("dtype fp16 is not in the reference runtime"), std::string::npos) << unknown.out;
  EXPECT_EQ(regather({"check", file("d", "foo: 1\n")}).code, 2);
  EXPECT_EQ(regather({"check", folder_ / "absent"}).code, 2);
  EXPECT_EQ(regather({"check", folder_.path()}).code, 2);
  EXPECT_EQ(regather({"check"}).code, 2);
}

TEST_F(CheckTest, AnUnknownCellNamesTheCommandThatMeasuresIt) {
  const std::string dpo =
      file("a", "loss_type: sigmoid\nuse_liger_kernel: true\nbf16: false\ngradient_checkpointing: false\n");
  const std::string pins = file("b", "trl==1.9.0\n");
  const std::string nothing = folder_ / "nothing";
  ASSERT_EQ(regather({"matrix", "run", "--case", "single/sft/world=1/fix=none", "--out", nothing}).code, 0);
  // Of another cell: what is asked for is not in it.
  const Ended unknown = regather({"check", "--json", "--results", nothing + "/results.json", dpo, pins});
  const Json before = Json::parse(unknown.out);
  EXPECT_EQ(before.at("answers")[0].at("proofs")[0].at("basis"), "trainer") << "its own run has shown it";

  const std::string sft = file("c", "packing: true\nbf16: false\n");
  const std::string pin = file("d", "trl==1.6.0\n");
  const Ended none = regather({"check", "--json", "--results", nothing + "/results.json", sft, pin});
  EXPECT_EQ(none.code, 4) << none.out;
  const std::string command = Json::parse(none.out).at("answers")[0].at("command");
  const std::string asked = "ddp/sft/kernel=eager/checkpoint=nonreentrant/call=engine/fix=none";
  EXPECT_EQ(command, "regather matrix run --case '" + asked + "' --out out/check");

  const std::string out = folder_ / "measured";
  ASSERT_EQ(regather({"matrix", "run", "--case", asked, "--out", out}).code, 0);
  const Ended known = regather({"check", "--json", "--results", out + "/results.json", sft, pin});
  EXPECT_EQ(known.code, 0) << known.out;
  EXPECT_EQ(Json::parse(known.out).at("answers")[0].at("proofs")[0].at("cell"), asked);

  regather({"matrix", "run", "--case", asked, "--out", out + "2"}, {{"FAKE_WORKER", "fix=none=wrong"}});
  const Ended wrong = regather({"check", "--json", "--results", out + "2/results.json", sft, pin});
  EXPECT_EQ(wrong.code, 1) << wrong.out;
  EXPECT_EQ(Json::parse(wrong.out).at("verdict"), "silently_wrong");
}

TEST_F(CheckTest, JsonHasTheMembersThatAreDocumented) {
  const std::string dpo = file("a", "loss_type: sigmoid\nuse_liger_kernel: true\nlearning_rat: 1\n");
  const Json json = Json::parse(regather({"check", "--json", dpo}).out);
  for (const char* key : {"schema", "files", "trainer", "verdict", "problem", "findings", "assumed", "answers"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_EQ(json.at("findings")[0].at("kind"), "misspelt");
  const Json& answer = json.at("answers")[1];
  for (const char* key :
       {"trl", "verdict", "case", "proofs", "signature", "assumed", "issues", "remedies", "reason", "command"}) {
    EXPECT_TRUE(answer.contains(key)) << key;
  }
}

}  // namespace
}  // namespace regather
