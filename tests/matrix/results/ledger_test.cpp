#include "matrix/results/ledger.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "tests/full_disk.h"
#include "tests/matrix/program.h"

namespace regather::matrix {
namespace {

std::string line_of(const char* id) {
  CaseResult r;
  r.which = parse_id(id);
  r.outcome = Outcome::pass;
  return to_line(r);
}

class LedgerTest : public testing::Test {
 protected:
  TemporaryFolder folder_;
  std::string path_ = folder_ / "cases.jsonl";
};

TEST_F(LedgerTest, LinesCarryThePlanAndComeBack) {
  {
    Ledger ledger(path_, "abc", false);
    const std::string line = ledger.append(line_of("ddp/sft/fix=none"));
    EXPECT_TRUE(line.ends_with(",\"plan\":\"abc\"}"));
    EXPECT_EQ(read_text(path_), line + "\n");
    ledger.append(line_of("zero3/sft/fix=none"));
  }
  const Ledger again(path_, "abc", true);
  ASSERT_EQ(again.earlier().size(), 2U);
  EXPECT_EQ(id(again.earlier()[1].result.which), "zero3/sft/fix=none");
}

TEST_F(LedgerTest, ATornLastLineIsCutOffAndOverwritten) {
  { Ledger(path_, "abc", false).append(line_of("ddp/sft/fix=none")); }
  const std::string whole = read_text(path_);
  std::ofstream(path_, std::ios::app) << whole.substr(0, whole.size() / 2);
  Ledger ledger(path_, "abc", true);
  EXPECT_EQ(ledger.earlier().size(), 1U);
  EXPECT_EQ(read_text(path_), whole);
}

TEST_F(LedgerTest, OnAFullDiskTheLinesBeforeStayWhole) {
  const std::string line = line_of("ddp/sft/fix=none");
  std::string whole;
  {
    Ledger ledger(path_, "abc", false);
    ledger.append(line);
    whole = read_text(path_);
    const FullDisk disk(whole.size() + whole.size() / 2);
    try {
      ledger.append(line);
      FAIL() << "no error";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("--resume goes on"), std::string::npos) << e.what();
    }
    EXPECT_EQ(read_text(path_), whole);
  }
  Ledger resumed(path_, "abc", true);
  EXPECT_EQ(resumed.earlier().size(), 1U);
  resumed.append(line);
  EXPECT_EQ(read_text(path_), whole + whole);
}

TEST_F(LedgerTest, ANewRunStartsEmpty) {
  { Ledger(path_, "abc", false).append(line_of("ddp/sft/fix=none")); }
  const Ledger ledger(path_, "abc", false);
  EXPECT_EQ(read_text(path_), "");
}

TEST_F(LedgerTest, WhatIsNotALineOfThisPlanIsRefused) {
  { Ledger(path_, "abc", false).append(line_of("ddp/sft/fix=none")); }
  EXPECT_THROW(Ledger(path_, "other", true), UsageError);
  std::ofstream(path_) << "something else\n";
  EXPECT_THROW(Ledger(path_, "abc", true), UsageError);
  std::ofstream(path_) << "{\"plan\":\"abc\"}\n";
  EXPECT_THROW(Ledger(path_, "abc", true), UsageError);
  std::ofstream(path_) << "";
  EXPECT_TRUE(Ledger(path_, "abc", true).earlier().empty());
}

TEST_F(LedgerTest, OneRunAtATime) {
  const Ledger first(path_, "abc", false);
  EXPECT_THROW(Ledger(path_, "abc", true), UsageError);
}

TEST_F(LedgerTest, AFolderThatIsNotThereIsAUsageError) {
  EXPECT_THROW(Ledger(folder_ / "missing/cases.jsonl", "abc", false), UsageError);
}

}  // namespace
}  // namespace regather::matrix
