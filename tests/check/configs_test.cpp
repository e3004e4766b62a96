// tests/data/configs: sets of files as people write them, each with what is expected of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "repro/check/check.h"

namespace regather::check {
namespace {

namespace fs = std::filesystem;
using Expected = nlohmann::json;

const std::vector<Measured>& recordings() {
  static const std::vector<Measured> all = measured_by_recordings();
  return all;
}

std::vector<fs::path> folders() {
  std::vector<fs::path> list;
  for (const auto& entry : fs::directory_iterator(REGATHER_SOURCE_DIR "/tests/data/configs"))
    list.push_back(entry.path());
  std::ranges::sort(list);
  return list;
}

std::vector<File> files_of(const fs::path& folder) {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename() != "expect.json") paths.push_back(entry.path());
  }
  std::ranges::sort(paths);
  std::vector<File> files;
  for (const fs::path& path : paths) {
    files.push_back(parse_file(path.filename().string(), read_file(path.string(), kLargestFile)));
  }
  return files;
}

Expected expected_of(const fs::path& folder) {
  return Expected::parse(read_file((folder / "expect.json").string(), 1 << 20));
}

Expected or_null(const std::string& text) { return text.empty() ? Expected() : Expected(text); }
Expected or_null(const std::optional<Case>& c) { return c ? Expected(id(*c)) : Expected(); }

// An answer as expect.json writes it.
Expected told(const Answer& answer) {
  Expected proofs = Expected::array();
  for (const Proof& proof : answer.proofs) {
    proofs.push_back(
        {{"basis", name(proof.basis)}, {"release", or_null(proof.release)}, {"cell", or_null(proof.cell)}});
  }
  return {{"trl", or_null(answer.versions)},
          {"verdict", name(answer.verdict)},
          {"case", or_null(answer.which)},
          {"mechanism", or_null(answer.mechanism)},
          {"proofs", proofs}};
}

class Configs : public testing::TestWithParam<fs::path> {};

TEST_P(Configs, AreAnsweredAsExpected) {
  const Expected expected = expected_of(GetParam());
  const Checked checked = check(files_of(GetParam()), recordings());
  EXPECT_EQ(name(checked.verdict), expected.at("verdict"));
  EXPECT_EQ(checked.problem() ? 1 : checked.verdict == Verdict::works ? 0 : 4, expected.at("exit"));

  Expected answers = Expected::array();
  for (const Answer& answer : checked.answers) answers.push_back(told(answer));
  EXPECT_EQ(answers, expected.at("answers"));

  ASSERT_EQ(checked.setting.findings.size(), expected.at("findings").size());
  for (size_t i = 0; i < checked.setting.findings.size(); ++i) {
    const Finding& finding = checked.setting.findings[i];
    EXPECT_EQ(name(finding.kind), expected.at("findings")[i].at("kind"));
    EXPECT_EQ(finding.text.find(expected.at("findings")[i].at("text").get<std::string>()), 0U) << finding.text;
  }
  Expected assumed = Expected::array();
  for (const Assumption& assumption : checked.setting.assumed) {
    assumed.push_back(assumption.what);
    EXPECT_FALSE(assumption.why.empty()) << assumption.what;
  }
  EXPECT_EQ(assumed, expected.at("assumed"));
}

// The expectation by itself: the cell that it names was measured with that release, and says what is expected.
TEST_P(Configs, FollowFromMeasuredCells) {
  const Expected expected = expected_of(GetParam());
  for (const Expected& answer : expected.at("answers")) {
    const bool known = answer.at("verdict") != "unknown";
    EXPECT_EQ(known, !answer.at("proofs").empty());
    for (const Expected& proof : answer.at("proofs")) {
      if (proof.at("basis") != "cell") continue;
      const std::string release = proof.at("release");
      const auto by_release = [&](const Measured& m) {
        const auto at = m.packages.find(release.substr(0, release.find(' ')));
        return at != m.packages.end() && at->second == release.substr(release.find(' ') + 1);
      };
      const auto set = std::ranges::find_if(recordings(), by_release);
      ASSERT_NE(set, recordings().end()) << release;
      const auto cell = set->cells.find(proof.at("cell").get<std::string>());
      ASSERT_NE(cell, set->cells.end()) << proof.at("cell");
      const std::string verdict = answer.at("verdict");
      const Outcome outcome = cell->second.outcome;
      EXPECT_EQ(verdict, outcome == Outcome::pass ? "works" : outcome == Outcome::error ? "crashes" : "silently_wrong");
    }
  }
}

// Without measured cells nothing works but what a trainer's own run has shown, and no failure is made up.
TEST_P(Configs, AnswerNothingFromNothing) {
  std::vector<Measured> nothing = recordings();
  for (Measured& measured : nothing) measured.cells.clear();
  for (const Answer& answer : check(files_of(GetParam()), nothing).answers) {
    for (const Proof& proof : answer.proofs) EXPECT_NE(proof.basis, Basis::cell);
    EXPECT_EQ(answer.verdict == Verdict::unknown, answer.proofs.empty());
  }
}

// Were every cell measured otherwise, every answer that rests on one would be another.
TEST_P(Configs, FollowTheCellsWhereverTheyLead) {
  std::vector<Measured> turned = recordings();
  for (Measured& measured : turned) {
    for (auto& [name, cell] : measured.cells) {
      cell.outcome = cell.outcome == Outcome::pass ? Outcome::hang : Outcome::pass;
      cell.mechanism.clear();
    }
  }
  const Checked is = check(files_of(GetParam()), recordings());
  const Checked was = check(files_of(GetParam()), turned);
  for (const Answer& answer : was.answers) {
    if (answer.proofs.empty() || answer.proofs.front().basis != Basis::cell) continue;
    const auto same = [&](const Answer& other) { return told(other) == told(answer); };
    EXPECT_TRUE(std::ranges::none_of(is.answers, same)) << id(*answer.which);
  }
}

INSTANTIATE_TEST_SUITE_P(Sets, Configs, testing::ValuesIn(folders()),
                         [](const testing::TestParamInfo<fs::path>& param) {
                           std::string text = param.param.filename().string();
                           std::ranges::replace(text, '-', '_');
                           return text;
                         });

TEST(ConfigSets, AreFortyOfEveryKind) {
  std::map<std::string, int> counts;
  for (const fs::path& folder : folders()) ++counts[expected_of(folder).at("verdict")];
  EXPECT_GE(folders().size(), 40U);
  for (const char* verdict : {"works", "crashes", "silently_wrong", "unknown", "contradictory"}) {
    EXPECT_GE(counts[verdict], 5) << verdict;
  }
}

}  // namespace
}  // namespace regather::check
