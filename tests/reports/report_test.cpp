#include "reports/report.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "reports/github.h"
#include "reports/markdown.h"
#include "some_report.h"

namespace regather::reports {
namespace {

const Item& item(const Report& report, const std::string& which) {
  return *std::ranges::find_if(report.items, [&](const Item& i) { return id(i.of.result.which) == which; });
}

TEST(Report, RedIsWhatTheRecordedVerdictSays) {
  const Report report = mixed_report();
  EXPECT_FALSE(item(report, "ddp/sft/fix=none").red) << "xfail";
  EXPECT_TRUE(item(report, "ddp/dpo/fix=none").red) << "xpass";
  EXPECT_TRUE(item(report, "fsdp2/kto/fix=redirect").red) << "absent";
  EXPECT_TRUE(item(report, "ddp/kto/fix=redirect").red);
}

TEST(Report, WithoutAVerdictTheDefaultRulesDo) {
  std::string json = read_file(kMixed, 1 << 20);
  for (size_t at; (at = json.find(",\"verdict\":\"")) != std::string::npos;) {
    json.erase(at, json.find('"', at + 12) + 1 - at);
  }
  const Report report = report_of(json);
  EXPECT_FALSE(item(report, "ddp/sft/fix=none").red);
  EXPECT_FALSE(item(report, "ddp/dpo/fix=none").red);
  EXPECT_TRUE(item(report, "fsdp2/sft/fix=redirect").red) << "fully fixed and not finite";
}

TEST(Report, TheFewestFixesThatPassRepairACase) {
  const Report report = mixed_report();
  const Item& broken = item(report, "zero3/sft/fix=none");
  ASSERT_TRUE(broken.repaired);
  EXPECT_EQ(id(report.items[*broken.repaired].of.result.which), "zero3/sft/fix=gather+recompute_hold+redirect");
  EXPECT_FALSE(item(report, "zero3/kto/fix=none").repaired) << "no case of it passes";
  EXPECT_FALSE(item(report, "ddp/sft/fix=redirect").repaired) << "it passes itself";
}

TEST(Report, NamesEachIssueOnce) {
  const Report report = mixed_report();
  ASSERT_EQ(report.issues.size(), 2U);
  EXPECT_EQ(report.issues[0].id, "liger#1");
  EXPECT_EQ(item(report, "zero3/sft/fix=none").issues, (std::vector<std::string>{"liger#1", "trl#2"}));
}

TEST(Report, TheSentenceSaysWhatCameOut) {
  EXPECT_EQ(verdict_sentence(mixed_report()),
            "16 cases on cpu: without fixes 2 pass, 1 computes wrong gradients without an error, 3 end in an error and "
            "1 is not "
            "supported; with the recommended fixes 3 pass, 2 compute wrong gradients without an error, 3 crash, hang "
            "or run out "
            "of memory and 1 has not run. 7 are red. 1 of the plan's cases has no result.");
  Report none;
  EXPECT_EQ(verdict_sentence(none), "0 cases on no device. Nothing is red.");
}

TEST(Report, TheCommandSurvivesAShell) {
  const Report report = mixed_report();
  CaseResult result = item(report, "ddp/dpo/fix=none").of.result;
  EXPECT_EQ(rerun_command(report, result),
            "regather matrix run --case 'ddp/dpo/fix=none' --stack 'python:o'\\''brien'");
  result.device = "cuda; x";
  result.stack = "reference";
  EXPECT_EQ(rerun_command(report, result), "regather matrix run --case 'ddp/dpo/fix=none' --device 'cuda; x'");
}

TEST(Report, TheCommandBreaksTheRuntimeAsTheRunDid) {
  Report report = mixed_report();
  report.document.environment["fault"] = "drop_all_reduce";
  EXPECT_TRUE(
      rerun_command(report, item(report, "ddp/sft/fix=none").of.result).ends_with(" --fault 'drop_all_reduce'"));
}

TEST(Summary, StaysBelowWhatGitHubShows) {
  Report report = mixed_report();
  const Item red = item(report, "ddp/kto/fix=redirect");
  report.items.assign(20'000, red);
  const std::string text = step_summary(report);
  EXPECT_LE(text.size(), kLongestSummary);
  EXPECT_GT(text.size(), kLongestSummary / 2) << "as many as fit";
  EXPECT_NE(text.find("more red cases are in the report"), std::string::npos);
}

TEST(Annotations, AreAtMostTen) {
  Report report = mixed_report();
  const Item red = item(report, "ddp/kto/fix=redirect");
  for (const size_t count : {0, 1, 10, 11, 500}) {
    report.items.assign(count, red);
    const std::string text = annotations(report);
    EXPECT_EQ(static_cast<size_t>(std::ranges::count(text, '\n')), std::min<size_t>(count, 10));
    EXPECT_EQ(text.find("more red cases") != std::string::npos, count > 10);
  }
}

}  // namespace
}  // namespace regather::reports
