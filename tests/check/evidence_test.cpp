// What may stand for a cell that was not measured.
#include <gtest/gtest.h>

#include "repro/check/evidence.h"

namespace regather::check {
namespace {

Measured measured(const std::vector<std::pair<std::string, Outcome>>& cells) {
  Measured m;
  m.name = "a test's";
  for (const auto& [text, outcome] : cells) {
    Cell cell;
    cell.which = parse_id(text);
    cell.outcome = outcome;
    m.cells.emplace(text, cell);
  }
  return m;
}

std::optional<Found> find(const std::vector<Measured>& all, const std::string& text) {
  return find_cell(all.front(), parse_id(text), all);
}

TEST(Evidence, TheCellItselfComesFirst) {
  const std::vector all{
      measured({{"zero3/dpo/fix=none", Outcome::error}, {"zero3/dpo/dtype=bf16/fix=none", Outcome::pass}})};
  const auto found = find(all, "zero3/dpo/dtype=bf16/fix=none");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->cell->outcome, Outcome::pass);
  EXPECT_TRUE(found->differences.empty());
}

TEST(Evidence, AnAxisIsSetAsideOnlyWhereMeasuredPairsAgree) {
  std::vector all{measured({{"zero3/dpo/fix=none", Outcome::error},
                            {"zero3/sft/fix=none", Outcome::pass},
                            {"zero3/sft/dtype=bf16/fix=none", Outcome::pass}})};
  const auto found = find(all, "zero3/dpo/dtype=bf16/fix=none");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->cell->outcome, Outcome::error);
  ASSERT_EQ(found->differences.size(), 1U);
  EXPECT_EQ(found->differences[0].axis, "dtype");
  EXPECT_EQ(found->differences[0].pairs, 1U);

  all.front().cells.at("zero3/sft/dtype=bf16/fix=none").outcome = Outcome::nonfinite;
  EXPECT_FALSE(find(all, "zero3/dpo/dtype=bf16/fix=none")) << "the axis changed an outcome";
  all.front().cells.at("zero3/sft/dtype=bf16/fix=none").outcome = Outcome::pass;
  all.front().cells.at("zero3/sft/dtype=bf16/fix=none").mechanism = "another";
  EXPECT_FALSE(find(all, "zero3/dpo/dtype=bf16/fix=none")) << "the axis changed a mechanism";
  all.front().cells.erase("zero3/sft/dtype=bf16/fix=none");
  EXPECT_FALSE(find(all, "zero3/dpo/dtype=bf16/fix=none")) << "nothing measured speaks for it";
}

TEST(Evidence, PairsOfAnotherBackendSpeakForNone) {
  const std::vector all{measured({{"zero3/dpo/fix=none", Outcome::error},
                                  {"ddp/sft/fix=none", Outcome::pass},
                                  {"ddp/sft/dtype=bf16/fix=none", Outcome::pass}})};
  EXPECT_FALSE(find(all, "zero3/dpo/dtype=bf16/fix=none"));
}

TEST(Evidence, PairsOutsideTheForwardSpeakForNoneInside) {
  const std::vector all{measured({{"zero3/dpo/fix=gather+redirect", Outcome::pass},
                                  {"zero3/sft/frozen=head/fix=gather", Outcome::pass},
                                  {"zero3/sft/frozen=head/accumulate=2/fix=gather", Outcome::wrong_gradient},
                                  {"zero3/grpo/fix=redirect", Outcome::pass},
                                  {"zero3/grpo/accumulate=2/fix=redirect", Outcome::pass}})};
  EXPECT_TRUE(find(all, "zero3/dpo/accumulate=2/fix=gather+redirect"));
  EXPECT_FALSE(find(all, "zero3/grpo/frozen=head/accumulate=2/fix=gather"));
}

TEST(Evidence, WhatMakesTheMechanismIsNeverSetAside) {
  const std::vector all{measured({{"zero3/dpo/fix=none", Outcome::error},
                                  {"zero3/sft/fix=none", Outcome::pass},
                                  {"zero3/sft/checkpoint=reentrant/fix=none", Outcome::pass},
                                  {"zero3/sft/frozen=lora/fix=none", Outcome::pass}})};
  EXPECT_FALSE(find(all, "zero3/dpo/checkpoint=reentrant/fix=none"));
  EXPECT_FALSE(find(all, "zero3/dpo/frozen=lora/fix=none"));
  EXPECT_FALSE(find(all, "zero3/dpo/call=engine/fix=none"));
  EXPECT_FALSE(find(all, "zero3/dpo/fix=gather"));
}

TEST(Evidence, EightRanksStandAsTwoWhereFourDo) {
  const std::vector all{measured({{"zero3/dpo/fix=none", Outcome::error},
                                  {"zero3/sft/fix=none", Outcome::pass},
                                  {"zero3/sft/world=4/fix=none", Outcome::pass},
                                  {"zero3/sft/world=1/fix=none", Outcome::pass}})};
  const auto found = find(all, "zero3/dpo/world=8/fix=none");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->differences[0].asked, "8");
  EXPECT_EQ(found->differences[0].measured, "2");
}

TEST(Evidence, RecordingsHoldBothSetsOnce) {
  const std::vector<Measured> all = measured_by_recordings();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].packages.at("deepspeed"), "0.19.2");
  EXPECT_EQ(all[1].packages.at("deepspeed"), "0.19.8");
  EXPECT_EQ(all[0].cells.at("ddp/dpo/fix=none").mechanism, "reducer_unarmed");
  EXPECT_EQ(all[0].cells.at("zero3/dpo/checkpoint=nonreentrant/frozen=lora/fix=gather+redirect").outcome,
            Outcome::error);
  EXPECT_EQ(all[1].cells.at("zero3/dpo/checkpoint=nonreentrant/frozen=lora/fix=gather+redirect").outcome,
            Outcome::pass);
}

}  // namespace
}  // namespace regather::check
