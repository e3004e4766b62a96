// How often diagnose is right on logs that its signatures were not written by: tests/data/logs/make_logs.py.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "program.h"
#include "repro/diagnose/diagnose.h"
#include "repro/diagnose/report.h"
#include "repro/register.h"

namespace regather::repro {
namespace {

struct Score {
  int logs = 0;
  int right = 0;      // known texts: the mechanism, and one of the issues among the candidates
  int first = 0;      // one of the issues stands first
  int confident = 0;  // others: a cause is called known
};

TEST(Corpus, NineteenOfTwentyHeldOutTextsAreRightAndNothingElseIsCalledKnown) {
  const TemporaryFolder folder;
  const std::string command =
      fmt::format("python3 -B '{}/tests/data/logs/make_logs.py' '{}'", REGATHER_SOURCE_DIR, folder.path());
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  std::map<std::string, Score> scores;
  for (const auto& log : nlohmann::json::parse(read_file(folder / "manifest.json", 1 << 22))) {
    Score& score = scores[log["kind"].get<std::string>() + " " + log["part"].get<std::string>()];
    const Findings findings = read_logs({.logs = {folder / log["file"].get<std::string>()}, .configs = {}});
    const Diagnosis d = conclude(knowledge(), known_entries(), findings);
    ++score.logs;
    if (log["kind"] != "known") {
      score.confident += d.unknown ? 0 : 1;
      EXPECT_TRUE(d.unknown) << log["file"] << ", " << log["text"] << ": " << print(knowledge(), d);
      continue;
    }
    const auto issues = log["issues"].get<std::vector<std::string>>();
    const auto is_right = [&](const Candidate& c) { return std::ranges::find(issues, c.entry->id) != issues.end(); };
    const bool right = !d.unknown && d.candidates[0].sign->mechanism == log["mechanism"] &&
                       std::ranges::any_of(d.candidates, is_right);
    score.right += right ? 1 : 0;
    score.first += right && is_right(d.candidates[0]) ? 1 : 0;
  }
  for (const auto& [name, s] : scores) {
    fmt::print("{:<15} {:>3} logs: {:>3} right, {:>3} with the issue first, {} confident wrong\n", name, s.logs,
               s.right, s.first, s.confident);
  }
  EXPECT_GE(scores["known held"].logs, 50);
  EXPECT_GE(scores["known held"].right * 20, scores["known held"].logs * 19);
  EXPECT_GE(scores["known train"].logs, 100);
  EXPECT_GE(scores["known train"].right * 20, scores["known train"].logs * 19);
  for (const char* others : {"near held", "unrelated held"}) {
    EXPECT_GE(scores[others].logs, 40);
    EXPECT_EQ(scores[others].confident, 0);
  }
}

}  // namespace
}  // namespace regather::repro
