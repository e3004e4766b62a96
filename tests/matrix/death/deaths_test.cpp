#include "matrix/death/deaths.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "tests/matrix/program.h"

namespace regather::matrix {
namespace {

class DeathsTest : public testing::Test {
 protected:
  static DeathReport report(const char* conclusion) {
    DeathReport r{.death = {}, .output = "stack of rank 1:\n    main", .conclusion = conclusion};
    r.death.result.which = parse_id("ddp/sft/fix=none");
    r.death.result.outcome = Outcome::crash;
    r.death.details = R"({"rank":1})";
    return r;
  }

  TemporaryFolder folder_;
  std::string path_ = folder_ / "deaths.jsonl";
};

TEST_F(DeathsTest, EachIsALine) {
  Deaths deaths(path_, false);
  EXPECT_EQ(read_text(path_), "") << "no file without a death";
  deaths.append(report("runs again alone"));
  deaths.append(report("alone too: recorded"));
  EXPECT_EQ(deaths.count(), 2U);
  std::ifstream file(path_);
  for (const char* conclusion : {"runs again alone", "alone too: recorded"}) {
    std::string line;
    ASSERT_TRUE(std::getline(file, line));
    const auto json = nlohmann::json::parse(line);
    EXPECT_EQ(json["id"], "ddp/sft/fix=none");
    EXPECT_EQ(json["outcome"], "crash");
    EXPECT_EQ(json["death"]["rank"], 1);
    EXPECT_EQ(json["output"], "stack of rank 1:\n    main");
    EXPECT_EQ(json["conclusion"], conclusion);
    EXPECT_EQ(json["when"].get<std::string>().size(), std::string("2026-12-01T10:00:00Z").size());
  }
}

TEST_F(DeathsTest, KeptWhereTheRunGoesOnAndBegunAnewOtherwise) {
  Deaths(path_, false).append(report("first"));
  Deaths(path_, true).append(report("second"));
  EXPECT_EQ(count_lines(path_), 2U);
  Deaths(path_, false).append(report("third"));
  EXPECT_EQ(count_lines(path_), 1U);
}

TEST_F(DeathsTest, WhatAKilledRunnerLeftOfALineDoesNotGarbleTheNext) {
  Deaths(path_, false).append(report("first"));
  const std::string whole = read_text(path_);
  std::ofstream(path_, std::ios::app) << whole.substr(0, whole.size() / 2);
  Deaths(path_, true).append(report("first"));
  EXPECT_EQ(count_lines(path_), 2U);
  EXPECT_EQ(read_text(path_).size(), 2 * whole.size());
}

TEST_F(DeathsTest, AFolderThatIsGoneIsAnErrorThatSaysWhatToDo) {
  Deaths deaths(folder_ / "missing/deaths.jsonl", false);
  try {
    deaths.append(report("first"));
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("--resume goes on"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace regather::matrix
