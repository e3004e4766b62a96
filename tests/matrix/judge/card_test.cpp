// The committed expectations of the card as data. That they are right, and red when altered, is seen on a run of the
// card: tests/tables/card_expectations_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>

#include "matrix/judge/judge.h"
#include "matrix/judge/load.h"
#include "matrix/plan/plan.h"

namespace regather::matrix {
namespace {

TEST(CardExpectations, SelectEveryCaseWithoutFixesAndNoOther) {
  EXPECT_EQ(known_expectations(), std::vector<std::string>{"card"});
  const Expectations card = load_expectations("card");
  for (const Case& c : make_plan({}).cases) {
    const auto selects = [&](const Expectation& e) { return e.selects(c); };
    EXPECT_EQ(std::ranges::count_if(card.entries, selects), c.fixes.empty() ? 1 : 0) << id(c);
  }
  EXPECT_EQ(card.to_cover.size(), 300U);
}

TEST(CardExpectations, IssuesAreWrittenAsTheRegisterWritesThem) {
  for (const Expectation& e : load_expectations("card").entries) {
    EXPECT_FALSE(e.reason.empty());
    EXPECT_EQ(e.issues.empty(), e.outcome == Outcome::pass) << e.where;
  }
}

}  // namespace
}  // namespace regather::matrix
