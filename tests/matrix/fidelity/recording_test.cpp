#include "matrix/fidelity/recording.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "matrix/fidelity/agreement.h"
#include "tests/matrix/some_results.h"

namespace regather::matrix {
namespace {

const nlohmann::ordered_json kEnvironment{{"python", "3.11.2"}, {"packages", {{"torch", "2.11.0"}}}};

TEST(Recording, ReadsBackWhatWasWritten) {
  std::vector<RecordedCell> cells;
  for (const CaseResult& r : some_results()) cells.push_back({.real = r, .built_in = {}, .runtime_l2 = 2e-7});
  cells[4].built_in = {"recompute_hold"};
  cells[5].runtime_l2.reset();
  const Recording read = parse_recording("mine", print_recording("supported", kEnvironment, cells));
  EXPECT_EQ(read.set, "supported");
  EXPECT_NE(read.header.find("2.11.0"), std::string::npos);
  ASSERT_EQ(read.cells.size(), cells.size());
  for (size_t i = 0; i < cells.size(); ++i) {
    EXPECT_TRUE(differences(cells[i], read.cells[i].real).empty()) << id(cells[i].real.which);
    EXPECT_EQ(read.cells[i].real.which, cells[i].real.which);
    EXPECT_EQ(read.cells[i].runtime_l2, cells[i].runtime_l2);
    EXPECT_EQ(read.cells[i].built_in, cells[i].built_in);
  }
}

TEST(Recording, AFixOfTheReleaseIsAddedToTheRuntimesCase) {
  RecordedCell cell;
  cell.real.which = parse_id("zero3/sft/fix=gather+redirect");
  cell.built_in = {"recompute_hold"};
  EXPECT_EQ(id(cell.runtime_case()), "zero3/sft/fix=gather+recompute_hold+redirect");
  cell.real.which = parse_id("zero3/sft/fix=recompute_hold");
  EXPECT_EQ(id(cell.runtime_case()), "zero3/sft/fix=recompute_hold");
}

TEST(Recording, KeepsTheFirstLineOfATextAndNotAllOfIt) {
  RecordedCell cell;
  cell.real = some_results()[3];
  cell.real.signature->text = std::string(500, 'x') + "\nhidden";
  const std::string text = print_recording("s", kEnvironment, {cell});
  EXPECT_EQ(text.find("hidden"), std::string::npos);
  EXPECT_EQ(parse_recording("s", text).cells[0].real.signature->text, std::string(200, 'x'));
}

TEST(Recording, WhatIsNoneNamesTheLine) {
  const std::string good =
      print_recording("s", kEnvironment, {{.real = some_results()[0], .built_in = {}, .runtime_l2 = {}}});
  for (const auto& [text, part] :
       std::vector<std::pair<std::string, std::string>>{{"", "is empty"},
                                                        {"{}\n", "line 1"},
                                                        {"{\"recording\":2,\"set\":\"s\"}\n", "expected 1"},
                                                        {good + "nonsense\n", "line 3"},
                                                        {good + "{\"id\":\"ddp/sft/fix=none\"}\n", "line 3"},
                                                        {good + "{\"id\":\"ddp\"}\n", "line 3"}}) {
    try {
      parse_recording("mine", text);
      ADD_FAILURE() << text;
    } catch (const UsageError& e) {
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
  }
}

TEST(Recording, ThoseThatComeWithRegatherAreCases) {
  const std::vector<Recording> known = known_recordings();
  ASSERT_GE(known.size(), 2U);
  size_t cells = 0;
  for (const Recording& recording : known) cells += recording.cells.size();
  EXPECT_GE(cells, 700U);
}

}  // namespace
}  // namespace regather::matrix
