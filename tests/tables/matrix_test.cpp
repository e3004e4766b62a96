// What the regather program finds, against the tables of what the real packages do.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <set>
#include <string>
#include <vector>

#include "case/case.h"
#include "case/fixes.h"
#include "compare.h"

namespace regather::tables {
namespace {

const std::filesystem::path kTables = REGATHER_SOURCE_DIR "/tests/tables";

// Runs the program in a folder of its own and returns its results. Red (1) is a legal end unless `green`: some cells of
// the real packages are bugs without a known fix.
ById run(const std::string& arguments, bool green = false) {
  std::string test = testing::UnitTest::GetInstance()->current_test_info()->name();
  std::ranges::replace(test, '/', '_');
  const std::filesystem::path out = std::filesystem::current_path() / "matrix_test" / test;
  std::filesystem::remove_all(out);
  std::filesystem::create_directories(out);
  const std::string command = fmt::format("'{}' matrix run {} --out '{}' 2>'{}/stderr'", REGATHER_PROGRAM, arguments,
                                          out.string(), out.string());
  const int status = std::system(command.c_str());
  const bool ended = WIFEXITED(status) && WEXITSTATUS(status) <= (green ? 0 : 1);
  EXPECT_TRUE(ended) << "exit status " << status << "; its words are in " << out.string() << "/stderr";
  return ended ? read_results(out / "cases.jsonl") : ById{};
}

// Every disagreement is a failure of its own.
void compare(const Json& row, const Json& result, size_t& compared) {
  ++compared;
  if (const auto wrong = disagreement(row, result)) ADD_FAILURE() << *wrong;
}

class Measured : public testing::TestWithParam<const char*> {};

TEST_P(Measured, EveryCell) {
  const ById rows = read_table(kTables / GetParam());
  std::string cases;
  for (const auto& [id, row] : rows) cases += fmt::format(" --case {}", id);
  const ById results = run("card" + cases);
  EXPECT_EQ(results.size(), rows.size());
  size_t compared = 0;
  for (const auto& [id, row] : rows) {
    const auto at = results.find(id);
    if (at == results.end()) {
      ADD_FAILURE() << id << ": no result";
    } else {
      compare(row, at->second, compared);
    }
  }
  std::cout << compared << " cells compared\n";
}

INSTANTIATE_TEST_SUITE_P(Tables, Measured, testing::Values("card_real.json", "modes.json", "each_rules.json"),
                         [](const auto& table) {
                           const std::string file = table.param;
                           return file.substr(0, file.find('.'));
                         });

// Outcome and mechanism of each result.
std::set<std::string> kinds(const ById& results) {
  std::set<std::string> all;
  for (const auto& [id, result] : results) {
    const Json& signature = result.at("signature");
    all.insert(fmt::format("{} {}", result.at("outcome").get<std::string>(),
                           signature.is_null() ? "" : signature.at("mechanism").get<std::string>()));
  }
  return all;
}

// The tables cover what they should: a table that lost its rows would compare nothing.
TEST(Tables, Counts) {
  const auto count = [](const char* file) { return read_table(kTables / file).size(); };
  // A backend and loss: 15 cells in modes a and c, 4 with input_grad=no.
  EXPECT_EQ(count("card_real.json"), 5 * 4 * (2 * 15 + 4));
  EXPECT_EQ(count("modes.json"), 72);
  // zero3 without redirect, without gather; kto without kl_backbone; zero1 and zero2 without redirect, accumulating.
  EXPECT_EQ(count("each_rules.json"), (2 * 4 + 1) * 15 + 2 * 4);
}

// The whole card with the fixes off, on and each left out: with all of them a case passes; anything less stands in a
// table.
TEST(Card, OffOnEach) {
  ById rows = read_table(kTables / "card_real.json");
  rows.merge(read_table(kTables / "each_rules.json"));
  size_t less = 0;
  size_t with_all = 0;
  const ById card = run("card --fixes off,on,each --expectations card", true);
  for (const auto& [id, result] : card) {
    const Case c = parse_id(id);
    if (const auto row = rows.find(id); row != rows.end()) {
      compare(row->second, result, less);
    } else if (c.fixes != recommended_fixes(c.backend, c.loss)) {
      ADD_FAILURE() << id << ": in no table";
    }
    if (c.fixes == recommended_fixes(c.backend, c.loss)) {
      ++with_all;
      EXPECT_EQ(result.at("outcome"), "pass") << id << ": " << result.at("signature").dump();
    }
  }
  EXPECT_EQ(with_all, 5 * 4 * 15);
  // Off ZeRO-3: off, and on, which is in card_real too; zero3: off, and the sets with one fix left out, three and kto's
  // four.
  EXPECT_EQ(less, 15 * (4 * 4 * 2 + 3 * 4 + 5));

  const ById smoke = run("smoke");
  EXPECT_EQ(smoke.size(), 24U);
  std::set<std::string> shown = kinds(card);
  shown.insert("wrong_gradient accumulation_scaled");  // of the cases that each adds
  EXPECT_EQ(kinds(smoke), shown);
  for (const Axis& axis : {axes()[0], axes()[1], axes()[3]}) {
    std::set<std::string> in_smoke;
    std::set<std::string> in_card;
    for (const auto& [id, result] : smoke) in_smoke.insert(result.at("axes").at(axis.name).get<std::string>());
    for (const auto& [id, result] : card) in_card.insert(result.at("axes").at(axis.name).get<std::string>());
    EXPECT_EQ(in_smoke, in_card) << axis.name;
  }
}

}  // namespace
}  // namespace regather::tables
