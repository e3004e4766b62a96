#include "matrix/death/bisection.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "base/random.h"

namespace regather::matrix {
namespace {

std::vector<size_t> numbers(size_t count) {
  std::vector<size_t> all(count);
  std::iota(all.begin(), all.end(), size_t{0});
  return all;
}

// Runs the search where the case dies after any set that holds all of `guilty`; counts the runs.
Bisection search(size_t predecessors, const std::set<size_t>& guilty, int most_runs, int& runs) {
  Bisection bisection(numbers(predecessors), most_runs);
  while (bisection.next()) {
    ++runs;
    const std::vector<size_t>& set = *bisection.next();
    EXPECT_TRUE(std::ranges::is_sorted(set)) << "predecessors run in their order";
    bisection.answer(std::ranges::all_of(guilty, [&](size_t g) { return std::ranges::count(set, g) == 1; }));
  }
  return bisection;
}

TEST(Bisection, FindsExactlyTheGuiltyOnes) {
  Random random(7);
  for (int round = 0; round < 200; ++round) {
    const auto predecessors = static_cast<size_t>(1 + random.below(100));
    std::set<size_t> guilty;
    for (int64_t i = 0; i <= random.below(3); ++i) {
      guilty.insert(static_cast<size_t>(random.below(static_cast<int64_t>(predecessors))));
    }
    int runs = 0;
    const Bisection found = search(predecessors, guilty, 10000, runs);
    ASSERT_TRUE(found.reproduced());
    EXPECT_EQ(std::set<size_t>(found.culprits().begin(), found.culprits().end()), guilty);
  }
}

TEST(Bisection, OneGuiltyPredecessorTakesLogarithmicallyManyRuns) {
  int runs = 0;
  EXPECT_EQ(search(512, {300}, 10000, runs).culprits(), std::vector<size_t>{300});
  EXPECT_LE(runs, 1 + 2 * 9);
}

TEST(Bisection, WhatDoesNotHappenAgainTakesOneRun) {
  Bisection bisection(numbers(40), 100);
  ASSERT_TRUE(bisection.next());
  bisection.answer(false);
  EXPECT_FALSE(bisection.next());
  EXPECT_FALSE(bisection.reproduced());
}

TEST(Bisection, WithoutPredecessorsThereIsNothingToRun) { EXPECT_FALSE(Bisection({}, 100).next()); }

TEST(Bisection, TheRunsAreBounded) {
  int runs = 0;
  const Bisection found = search(400, {1, 200, 399}, 12, runs);
  EXPECT_EQ(runs, 12);
  EXPECT_TRUE(found.reproduced());
  for (const size_t guilty : {1, 200, 399}) EXPECT_EQ(std::ranges::count(found.culprits(), guilty), 1) << guilty;
}

}  // namespace
}  // namespace regather::matrix
