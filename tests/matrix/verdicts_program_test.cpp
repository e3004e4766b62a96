// Expectations, baselines and compare from outside: verdicts in the document, words, exit codes.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "program.h"

namespace regather {
namespace {

using Json = nlohmann::json;

class VerdictsTest : public testing::Test {
 protected:
  // What the fake worker answers as `wrong`, and four cases, two of them without fixes.
  static constexpr const char* kUnarmed = R"({"mechanism":"reducer_unarmed","phase":"gradients"})";
  static constexpr const char* kDefinition =
      R"({"schema":1,"fixes":["off","on"],"sets":[{"backend":["ddp"],"loss":["sft","kto"]}]})";

  void SetUp() override { std::ofstream(definition_) << kDefinition; }

  Ended run(std::vector<std::string> more, const std::string& behaviour, const std::string& out = "out") {
    more.insert(more.begin(), {"matrix", "run", definition_, "--out", folder_ / out});
    return regather(std::move(more), {{"FAKE_WORKER", behaviour}});
  }
  Json document(const std::string& out = "out") const {
    return Json::parse(read_text(folder_ / (out + "/results.json")));
  }
  std::string results(const std::string& out) const { return folder_ / (out + "/results.json"); }

  std::string expectations(const std::vector<Json>& entries) {
    Json json{{"schema", 1}, {"about", "a test's"}, {"definition", definition_}, {"expectations", entries}};
    const std::string path = folder_ / "mine.json";
    std::ofstream(path) << json.dump(1);
    return path;
  }
  static Json entry(const std::string& select, const std::string& outcome, const char* signature = nullptr) {
    Json json{{"select", select},
              {"outcome", outcome},
              {"issues", Json::array()},
              {"reason", "a test's reason"},
              {"since", "2026-01-01"}};
    if (signature != nullptr) json["signature"] = Json::parse(signature);
    return json;
  }

  TemporaryFolder folder_;
  std::string definition_ = folder_ / "definition.json";
};

TEST_F(VerdictsTest, XfailIsGreenAndWrittenDown) {
  const std::string file = expectations({entry("fix=none", "wrong_gradient", kUnarmed)});
  const Ended ended = run({"--expectations", file}, "fix=none=wrong");
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_NE(ended.err.find("verdicts: 2 expected, 2 xfail"), std::string::npos) << ended.err;
  EXPECT_EQ(document()["totals"], Json::parse(R"({"pass":2,"wrong_gradient":2,"verdict":{"expected":2,"xfail":2}})"));
  EXPECT_EQ(document()["cases"][0]["verdict"], "xfail");
  EXPECT_EQ(document()["cases"][1]["verdict"], "expected");
  EXPECT_EQ(read_text(folder_ / "out/cases.jsonl").find("verdict"), std::string::npos) << "lines stay raw";
}

TEST_F(VerdictsTest, WithoutExpectationsAndBaselineNoVerdictIsWritten) {
  EXPECT_EQ(run({}, "fix=none=wrong").code, 0);
  EXPECT_FALSE(document()["totals"].contains("verdict"));
  EXPECT_FALSE(document()["cases"][0].contains("verdict"));
}

TEST_F(VerdictsTest, XpassIsRedAndNamesTheEntry) {
  const std::string file = expectations({entry("fix=none", "wrong_gradient", kUnarmed)});
  const Ended ended = run({"--expectations", file}, "kto/fix=none=wrong");
  EXPECT_EQ(ended.code, 1);
  EXPECT_NE(ended.err.find("RED ddp/sft/fix=none\n    pass\n    " + file +
                           ":5 (entry 1, 'fix=none') expects wrong_gradient in gradients [reducer_unarmed]: delete the "
                           "entry, or narrow it to what still fails\n    regather matrix run --case 'ddp/sft/fix=none' "
                           "--expectations '" +
                           file + "'\n"),
            std::string::npos)
      << ended.err;
  EXPECT_EQ(document()["totals"]["verdict"]["xpass"], 1);
}

TEST_F(VerdictsTest, AnotherSignatureIsARegression) {
  const std::string file =
      expectations({entry("fix=none", "wrong_gradient", R"({"mechanism":"lifecycle","phase":"gradients"})")});
  EXPECT_EQ(run({"--expectations", file}, "fix=none=wrong").code, 1);
  EXPECT_EQ(document()["totals"]["verdict"], Json({{"expected", 2}, {"regression", 2}}));
}

TEST_F(VerdictsTest, ACrashIsGreenOnlyWhereAnEntryNamesIt) {
  EXPECT_EQ(run({"--expectations", expectations({entry("fix=none & loss=sft", "crash")})}, "sft/fix=none=segv").code,
            0);
  EXPECT_EQ(run({"--expectations", expectations({entry("fix=none & loss=sft", "hang")})}, "sft/fix=none=segv").code, 1);
}

TEST_F(VerdictsTest, EntriesAtFaultAreRed) {
  Ended ended = run({"--expectations", expectations({entry("fix=none", "pass"), entry("loss=sft", "pass")})}, "");
  EXPECT_EQ(ended.code, 1);
  EXPECT_NE(ended.err.find("overlaps"), std::string::npos) << ended.err;
  const std::string idle = expectations({entry("backend=zero3", "pass")});
  ended = run({"--expectations", idle}, "");
  EXPECT_EQ(ended.code, 1);
  EXPECT_NE(ended.err.find("RED " + idle + ":5 (entry 1, 'backend=zero3') selects nothing"), std::string::npos)
      << ended.err;
  EXPECT_EQ(run({"--expectations", idle, "-k", "sft"}, "").code, 0) << "a part of the definition";
}

TEST_F(VerdictsTest, AnOverdueReviewIsAWarning) {
  Json late = entry("fix=none", "pass");
  late["review_by"] = "2020-01-01";
  const Ended ended = run({"--expectations", expectations({late})}, "");
  EXPECT_EQ(ended.code, 0);
  EXPECT_NE(ended.err.find("should have been reviewed by 2020-01-01"), std::string::npos) << ended.err;
}

TEST_F(VerdictsTest, RetriesAndExitFirstGoByTheVerdict) {
  const std::string file = expectations({entry("fix=none", "crash")});
  EXPECT_EQ(run({"--expectations", file, "--retries", "3", "-x", "-j1"}, "fix=none=segv").code, 0);
  EXPECT_EQ(count_lines(folder_ / "out/cases.jsonl"), 4U) << "an expected crash is not tried again";
  EXPECT_EQ(run({"--expectations", file, "-x", "-j1"}, "").code, 1);
  EXPECT_EQ(document()["totals"]["verdict"], Json({{"xpass", 1}, {"absent", 3}})) << "what has not run is absent";
}

TEST_F(VerdictsTest, FlakyIsAVerdictAndGreen) {
  const Ended ended = run({"--retries", "1", "--expectations", expectations({})}, "fix=redirect=wrong_once");
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(document()["totals"]["verdict"]["flaky"], 2);
  EXPECT_NE(ended.err.find("attempts: wrong_gradient, pass"), std::string::npos) << ended.err;
}

TEST_F(VerdictsTest, ABaselineTellsWhatHasBecomeOfItsCases) {
  ASSERT_EQ(run({}, "sft/fix=none=wrong", "old").code, 0);
  EXPECT_EQ(run({"--baseline", results("old")}, "sft/fix=none=wrong").code, 0);
  EXPECT_EQ(document()["totals"]["verdict"], Json({{"expected", 3}, {"xfail", 1}}));

  Ended ended = run({"--baseline", results("old")}, "");
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(document()["totals"]["verdict"], Json({{"expected", 3}, {"fixed", 1}}));
  EXPECT_NE(ended.err.find("fixed ddp/sft/fix=none\n    pass\n    the baseline has wrong_gradient"), std::string::npos)
      << ended.err;

  ended = run({"--baseline", results("old")}, "ddp=wrong");
  EXPECT_EQ(ended.code, 1);
  EXPECT_EQ(document()["totals"]["verdict"], Json({{"xfail", 1}, {"regression", 3}}));
  EXPECT_NE(ended.err.find("RED ddp/kto/fix=none"), std::string::npos) << "without fixes it is red by the baseline";

  // Another definition's cases are new; those of the same one that it no longer holds are absent.
  ASSERT_EQ(run({"-k", "sft"}, "", "part").code, 0);
  EXPECT_EQ(run({"--baseline", results("part")}, "").code, 0);
  EXPECT_EQ(document()["totals"]["verdict"], Json({{"expected", 2}, {"new", 2}}));
  std::ofstream(definition_) << R"({"schema":1,"fixes":["off","on"],"sets":[{"backend":["ddp"],"loss":["sft"]}]})";
  ended = run({"--baseline", results("old")}, "sft/fix=none=wrong");
  EXPECT_EQ(ended.code, 1);
  EXPECT_NE(ended.err.find("RED ddp/kto/fix=none: absent"), std::string::npos) << ended.err;
  EXPECT_EQ(document()["totals"]["verdict"]["absent"], 2);
}

TEST_F(VerdictsTest, ChangedIsTold) {
  ASSERT_EQ(run({}, "sft/fix=none=wrong", "old").code, 0);
  Json old = document("old");
  old["cases"][0]["signature"]["mechanism"] = "lifecycle";
  std::ofstream(results("old")) << old;
  EXPECT_EQ(run({"--baseline", results("old")}, "sft/fix=none=wrong").code, 0);
  EXPECT_EQ(document()["totals"]["verdict"], Json({{"changed", 1}, {"expected", 3}}));
}

TEST_F(VerdictsTest, CompareHasItsExitCodes) {
  ASSERT_EQ(run({}, "sft/fix=none=wrong", "old").code, 0);
  ASSERT_EQ(run({}, "kto/fix=none=wrong", "new").code, 0);
  ASSERT_EQ(run({"-k", "kto"}, "", "kto").code, 0);
  ASSERT_EQ(run({"-k", "sft"}, "", "sft").code, 0);
  const auto compare = [&](const char* a, const char* b, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"compare", results(a), results(b)});
    return regather(std::move(more));
  };
  EXPECT_EQ(compare("old", "old").code, 0);
  const Ended both = compare("old", "new");
  EXPECT_EQ(both.code, 1);
  EXPECT_EQ(both.out,
            "fixed ddp/sft/fix=none\n    wrong_gradient in gradients of step 0 on rank 1: model.norm.weight "
            "[reducer_unarmed]\n    -> pass\n"
            "regression ddp/kto/fix=none\n    pass\n    -> wrong_gradient in gradients of step 0 on rank 1: "
            "model.norm.weight [reducer_unarmed]\n"
            "compared 4, 1 regression, 1 fixed, 2 unchanged, missing 0\nlikely causes:\n"
            "    1 regression, pass -> wrong_gradient in gradients [reducer_unarmed]: DDP's forward never runs, so its "
            "reducer is never armed: no all-reduce, no error, and every rank trains on its own gradients\n"
            "    1 fixed, wrong_gradient in gradients [reducer_unarmed] -> pass\n");
  EXPECT_EQ(compare("old", "new", {"--gate", "changed,absent"}).code, 0);
  EXPECT_EQ(compare("old", "new", {"--gate", "fixed"}).code, 1);
  EXPECT_EQ(Json::parse(compare("old", "new", {"--json"}).out)["counts"]["fixed"], 1);
  EXPECT_EQ(compare("old", "sft").code, 1) << "absent";
  EXPECT_EQ(compare("sft", "kto").code, 4);
  EXPECT_EQ(compare("old", "new", {"--gate", "none"}).code, 2);
  EXPECT_EQ(compare("old", "nowhere").code, 2);
  Json lost = document("old");
  lost["plan"]["cases"] = 5;
  std::ofstream(results("new")) << lost;
  EXPECT_EQ(compare("old", "new", {"--gate", "fixed"}).code, 1) << "one is missing";
  std::ofstream(results("new")) << std::string(1 << 20, '[');
  const Ended deep = compare("old", "new");
  EXPECT_EQ(deep.code, 2);
  EXPECT_NE(deep.err.find("expected a JSON object"), std::string::npos) << deep.err;
}

TEST_F(VerdictsTest, WhatCannotBeReadTouchesNothing) {
  std::ofstream(folder_ / "bad.json") << "{";
  for (const std::vector<std::string>& wrong : {std::vector<std::string>{"--expectations", "deck"},
                                                {"--expectations", folder_ / "bad.json"},
                                                {"--expectations", folder_ / "nowhere.json"},
                                                {"--baseline", folder_ / "bad.json"},
                                                {"--baseline", folder_ / "nowhere.json"}}) {
    const Ended ended = run(wrong, "");
    EXPECT_EQ(ended.code, 2) << wrong[0] << wrong[1] << ended.err;
    EXPECT_NE(ended.err.find(wrong[1]), std::string::npos) << ended.err;
  }
  EXPECT_TRUE(read_text(folder_ / "out/cases.jsonl").empty());
}

}  // namespace
}  // namespace regather
