#include "matrix/plan/cover.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "case/fixes.h"
#include "case/support.h"
#include "matrix/plan/plan.h"

namespace regather::matrix {
namespace {

void add(const std::vector<AxisValue>& values, size_t from, size_t strength, const std::string& text,
         std::set<std::string>& all) {
  if (strength == 0) all.insert(text);
  for (size_t i = from; strength > 0 && i < values.size(); ++i) {
    add(values, i + 1, strength - 1, text + values[i].axis + "=" + values[i].value + " ", all);
  }
}

// Every combination of the values of any `strength` axes, spelt out.
std::set<std::string> combinations(const std::vector<Case>& cases, size_t strength) {
  std::set<std::string> all;
  for (const Case& c : cases) {
    if (unsupported(c)) continue;
    std::vector<AxisValue> values = axis_values(c);
    values.push_back({"fix", print_fixes(c.fixes)});
    add(values, 0, strength, "", all);
  }
  return all;
}

std::vector<std::string> ids(const std::vector<Case>& cases) {
  std::vector<std::string> list;
  for (const Case& c : cases) list.push_back(id(c));
  return list;
}

TEST(Cover, HasEveryCombinationAndIsASubsetInOrder) {
  Selection smoke;
  smoke.definition = "smoke";
  Selection each;
  each.definition = "each";
  Selection with_unsupported;
  with_unsupported.ids = {"fsdp1/sft/fix=none", "ddp/kto/fix=none", "ddp/sft/dtype=fp16/fix=none", "zero3/sft/fix=none",
                          "zero3/kto/dtype=bf16/fix=none"};
  for (const Selection& selection : {Selection{}, smoke, each, with_unsupported}) {
    const std::vector<Case> plan = make_plan(selection).cases;
    const std::vector<std::string> whole = ids(plan);
    for (size_t strength = 1; strength <= 3; ++strength) {
      const std::vector<Case> subset = cover(plan, strength);
      EXPECT_EQ(combinations(subset, strength), combinations(plan, strength)) << selection.definition << strength;
      size_t at = 0;
      for (const std::string& one : ids(subset)) {
        at = static_cast<size_t>(std::find(whole.begin() + static_cast<std::ptrdiff_t>(at), whole.end(), one) -
                                 whole.begin());
        ASSERT_LT(at, whole.size()) << one << " is not in the plan, or out of its order";
      }
      EXPECT_EQ(ids(cover(plan, strength)), ids(subset)) << "the same every time";
      for (const Case& c : subset) EXPECT_FALSE(unsupported(c));
      // None is superfluous: every fifth is looked at.
      for (size_t i = 0; strength < 3 && i < subset.size(); i += 5) {
        std::vector<Case> rest = subset;
        rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(i));
        EXPECT_NE(combinations(rest, strength), combinations(plan, strength)) << id(subset[i]);
      }
    }
  }
}

// The card has five varying axes: 5 backends, 4 losses, 3 checkpoints, 5 frozen sets, and the fixes that go with
// backend and loss.
TEST(Cover, IsSmall) {
  const std::vector<Case> card = make_plan({}).cases;
  EXPECT_EQ(cover(card, 1).size(), 6U) << "zero3 twice: kto has fixes of its own";
  EXPECT_LE(cover(card, 2).size(), 31U);
  EXPECT_LE(cover(card, 3).size(), 150U);
  EXPECT_EQ(ids(cover(card, 5)), ids(card));
  EXPECT_EQ(ids(cover(card, 6)), ids(card)) << "fewer axes vary than asked for";
}

TEST(Cover, NothingSupportedCoversNothing) { EXPECT_TRUE(cover({parse_id("fsdp1/sft/fix=none")}, 2).empty()); }

TEST(Cover, TooManyToCountIsAUsageError) {
  std::vector<Case> many;
  for (const char* dtype : {"fp32", "bf16"}) {
    Case c;
    set_axis(c, "dtype", dtype);
    for (const Axis& axis : axes()) {
      for (const std::string& value : axis.values) {
        Case other = c;
        set_axis(other, axis.name, value);
        for (int i = 0; i < 20; ++i) many.push_back(other);
      }
    }
  }
  EXPECT_THROW(cover(many, 6), UsageError);
}

}  // namespace
}  // namespace regather::matrix
