// What the regather program finds, against the tables of what the real packages do. Cases that it does not support
// yet are counted: a backend or loss that starts to work must be added to kSupported.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "case/case.h"
#include "case/fixes.h"
#include "compare.h"

namespace regather::tables {
namespace {

const std::filesystem::path kTables = REGATHER_SOURCE_DIR "/tests/tables";
const std::vector<std::string> kSupported{"ddp/", "zero3/"};

bool supported(const std::string& id) {
  return std::ranges::any_of(kSupported, [&](const std::string& prefix) { return id.starts_with(prefix); });
}

// Runs the program in a folder of its own and returns its results. Red (1) is a legal end: some cells of the real
// packages are bugs without a known fix.
ById run(const std::string& arguments) {
  std::string test = testing::UnitTest::GetInstance()->current_test_info()->name();
  std::ranges::replace(test, '/', '_');
  const std::filesystem::path out = std::filesystem::current_path() / "matrix_test" / test;
  std::filesystem::remove_all(out);
  std::filesystem::create_directories(out);
  const std::string command = fmt::format("'{}' matrix run {} --out '{}' 2>'{}/stderr'", REGATHER_PROGRAM, arguments,
                                          out.string(), out.string());
  const int status = std::system(command.c_str());
  const bool ended = WIFEXITED(status) && WEXITSTATUS(status) <= 1;
  EXPECT_TRUE(ended) << "exit status " << status << "; its words are in " << out.string() << "/stderr";
  return ended ? read_results(out / "cases.jsonl") : ById{};
}

struct Counts {
  size_t compared = 0;
  size_t unsupported = 0;
};

// Compares one result and counts it; every disagreement is a failure of its own.
void compare(const Json& row, const Json& result, Counts& counts) {
  const std::string id = row.at("id");
  if (result.at("outcome") == "unsupported") {
    ++counts.unsupported;
    EXPECT_FALSE(supported(id)) << id << ": unsupported, " << result.at("reason");
    return;
  }
  ++counts.compared;
  EXPECT_TRUE(supported(id)) << id << " runs now: add it to kSupported";
  if (const auto wrong = disagreement(row, result)) ADD_FAILURE() << *wrong;
}

void report(const Counts& counts) {
  std::cout << fmt::format("{} cells compared, {} unsupported\n", counts.compared, counts.unsupported);
}

class Measured : public testing::TestWithParam<const char*> {};

TEST_P(Measured, EveryCell) {
  const ById rows = read_table(kTables / GetParam());
  std::string cases;
  size_t expected = 0;
  for (const auto& [id, row] : rows) {
    cases += fmt::format(" --case {}", id);
    expected += supported(id) ? 1 : 0;
  }
  const ById results = run("card" + cases);
  EXPECT_EQ(results.size(), rows.size());
  Counts counts;
  for (const auto& [id, row] : rows) {
    const auto at = results.find(id);
    if (at == results.end()) {
      ADD_FAILURE() << id << ": no result";
    } else {
      compare(row, at->second, counts);
    }
  }
  report(counts);
  EXPECT_EQ(counts.compared, expected);
  EXPECT_EQ(counts.compared + counts.unsupported, rows.size());
}

INSTANTIATE_TEST_SUITE_P(Tables, Measured, testing::Values("card_real.json", "modes.json", "each_rules.json"),
                         [](const auto& table) {
                           const std::string file = table.param;
                           return file.substr(0, file.find('.'));
                         });

// The tables cover what they should: a table that lost its rows would compare nothing.
TEST(Tables, CountsOfSupportedCells) {
  const auto count = [](const char* file) {
    size_t n = 0;
    for (const auto& [id, row] : read_table(kTables / file)) n += supported(id) ? 1 : 0;
    return n;
  };
  // A backend and loss: 15 cells in modes a and c, 4 with input_grad=no.
  EXPECT_EQ(count("card_real.json"), 2 * 4 * (2 * 15 + 4));
  // ddp: p, a, c of each loss, sft's a and c with two kernels, p once; zero3: b and d too, and kto's k.
  EXPECT_EQ(count("modes.json"), 39);
  // zero3 without redirect, without gather; kto without kl_backbone.
  EXPECT_EQ(count("each_rules.json"), (2 * 4 + 1) * 15);
}

// The whole card with the fixes off, on and each left out: with all of them a case passes; anything less stands in a
// table.
TEST(Card, OffOnEach) {
  ById rows = read_table(kTables / "card_real.json");
  rows.merge(read_table(kTables / "each_rules.json"));
  Counts less;
  size_t with_all = 0;
  for (const auto& [id, result] : run("card --fixes off,on,each")) {
    const Case c = parse_id(id);
    if (const auto row = rows.find(id); row != rows.end()) {
      compare(row->second, result, less);
    } else if (c.fixes != recommended_fixes(c.backend, c.loss)) {
      ADD_FAILURE() << id << ": in no table";
    }
    if (c.fixes == recommended_fixes(c.backend, c.loss) && supported(id)) {
      ++with_all;
      EXPECT_EQ(result.at("outcome"), "pass") << id << ": " << result.at("signature").dump();
    }
  }
  report(less);
  EXPECT_EQ(with_all, 2 * 4 * 15);
  // ddp: off, and on, which is in card_real too; zero3: off, and the sets with one fix left out, three and kto's four.
  EXPECT_EQ(less.compared, 15 * (4 * 2 + 3 * 4 + 5));
}

}  // namespace
}  // namespace regather::tables
