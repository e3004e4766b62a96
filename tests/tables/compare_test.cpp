// The comparison itself: green on results made from the tables, red on each way in which a result can differ.
#include "compare.h"

#include <gtest/gtest.h>

namespace regather::tables {
namespace {

const std::filesystem::path kTables = REGATHER_SOURCE_DIR "/tests/tables";

// The result that agrees with a row in everything that the row says.
Json result_for(const Json& row) {
  Json result{{"id", row.at("id")}, {"outcome", row.at("outcome")}, {"signature", nullptr}, {"also", Json::array()}};
  if (row.at("outcome") == "pass") return result;
  const std::string text = row.at("text").is_null() ? "" : row.at("text").get<std::string>();
  const bool python = row.at("text_of") == "python";
  result["signature"] = {{"phase", row.at("phase").is_null() ? "forward" : row.at("phase")},
                         {"step", row.at("step").is_null() ? 0 : row.at("step").get<int>()},
                         {"text", python ? "ours" : text},
                         {"upstream", python ? Json(text) : Json()}};
  if (row.contains("also")) {
    for (Json later : row.at("also")) {
      later["text"] = later.at("text").get<std::string>() + ". And more.";
      result["also"].push_back({{"outcome", "error"}, {"signature", later}});
    }
  }
  return result;
}

class Tables : public testing::TestWithParam<std::pair<const char*, size_t>> {};

TEST_P(Tables, AgreeWithResultsMadeFromThem) {
  const ById rows = read_table(kTables / GetParam().first);
  EXPECT_EQ(rows.size(), GetParam().second);
  for (const auto& [id, row] : rows) EXPECT_EQ(disagreement(row, result_for(row)), std::nullopt);
}

TEST_P(Tables, DisagreeWithEveryOtherOutcome) {
  for (const auto& [id, row] : read_table(kTables / GetParam().first)) {
    for (const char* outcome : {"pass", "wrong_gradient", "error", "unsupported", "unchecked", "hang", "crash"}) {
      Json result = result_for(row);
      if (outcome == result.at("outcome")) continue;
      result["outcome"] = outcome;
      EXPECT_NE(disagreement(row, result), std::nullopt) << id << " " << outcome;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Every, Tables,
                         testing::Values(std::pair{"card_real.json", 680}, std::pair{"modes.json", 72},
                                         std::pair{"each_rules.json", 143}),
                         [](const auto& table) {
                           const std::string file = table.param.first;
                           return file.substr(0, file.find('.'));
                         });

class Cell : public testing::Test {
 protected:
  Json row(const char* id) const { return read_table(kTables / "card_real.json").at(id); }
  Json size_mismatch = row("zero3/sft/fix=none");
  Json recompute = row("zero3/sft/checkpoint=nonreentrant/frozen=norms/fix=gather+redirect");
};

TEST_F(Cell, OtherPhaseOrStep) {
  for (const auto& [part, value] : {std::pair<const char*, Json>{"phase", "backward"}, {"step", 1}}) {
    Json result = result_for(size_mismatch);
    result["signature"][part] = value;
    EXPECT_NE(disagreement(size_mismatch, result), std::nullopt) << part;
  }
}

TEST_F(Cell, RowsOfAChunkAreMaskedAndNothingElse) {
  Json result = result_for(size_mismatch);
  result["signature"]["text"] = "size mismatch, got input (7), mat (7x32), vec (0)";
  EXPECT_EQ(disagreement(size_mismatch, result), std::nullopt);
  result["signature"]["text"] = "size mismatch, got input (16), mat (16x64), vec (0)";
  EXPECT_NE(disagreement(size_mismatch, result), std::nullopt);
}

TEST_F(Cell, OnlyTheFirstLineOfACheckCounts) {
  Json result = result_for(recompute);
  const std::string first = result["signature"]["text"];
  result["signature"]["text"] = first + "\ntensor at position 9";
  EXPECT_EQ(disagreement(recompute, result), std::nullopt);
  result["signature"]["text"] = "other " + first;
  EXPECT_NE(disagreement(recompute, result), std::nullopt);
}

TEST_F(Cell, UpstreamTextCountsWhereItIsGiven) {
  const Json unpack = row("zero3/grpo/fix=none");
  Json result = result_for(unpack);
  result["signature"]["upstream"] = nullptr;
  EXPECT_EQ(disagreement(unpack, result), std::nullopt);
  result["signature"]["upstream"] = "something else";
  EXPECT_NE(disagreement(unpack, result), std::nullopt);
}

TEST_F(Cell, FailureWithoutSignature) {
  Json result = result_for(size_mismatch);
  result["signature"] = nullptr;
  EXPECT_NE(disagreement(size_mismatch, result), std::nullopt);
}

TEST_F(Cell, LaterDepartureIsMissed) {
  const Json unused = row("ddp/sft/checkpoint=reentrant/frozen=embedding/input_grad=no/fix=redirect");
  Json result = result_for(unused);
  result["also"][0]["signature"]["step"] = 0;
  EXPECT_NE(disagreement(unused, result), std::nullopt);
  result["also"] = Json::array();
  EXPECT_NE(disagreement(unused, result), std::nullopt);
}

}  // namespace
}  // namespace regather::tables
