#include "matrix/death/rank_traces.h"

#include <gtest/gtest.h>

namespace regather::matrix {
namespace {

constexpr auto kRuns = SeenRank::State::runs;
constexpr auto kEndedState = SeenRank::State::ended;

SeenRank rank(int number, SeenRank::State state, uint64_t collectives, const char* last = "") {
  return {.number = number, .state = state, .collectives = collectives, .last = last};
}

class Box {
 public:
  explicit Box(const Case& c) : which_(c) {
    box_ = &blackbox();
    trace_case(id(c));
  }
  std::vector<SeenRank> ranks() const { return seen_ranks(which_, *box_); }

 private:
  Case which_;
  const BlackBox* box_;
};

TEST(RankTraces, TellWhereEachRankWas) {
  const Box box(parse_id("zero3/sft/world=4/fix=none"));
  EXPECT_TRUE(box.ranks().empty()) << "no rank has begun";
  trace_phase(0, 1, static_cast<int>(Phase::backward));
  for (uint64_t n = 1; n <= 11; ++n) trace_collective(0, n % 2 == 0 ? "all_gather" : "barrier", n);
  trace_phase(2, 1, static_cast<int>(Phase::step));
  trace_end(2);
  trace_phase(3, 0, static_cast<int>(Phase::build));
  const std::vector<SeenRank> ranks = box.ranks();
  ASSERT_EQ(ranks.size(), 4U);
  EXPECT_EQ(ranks[0].text(), "rank 0 in backward of step 1");
  EXPECT_EQ(ranks[0].last, "barrier #11");
  EXPECT_EQ(ranks[0].recent.size(), kRecent);
  EXPECT_EQ(ranks[0].recent.front(), "all_gather #4");
  EXPECT_EQ(ranks[0].recent.back(), "barrier #11");
  EXPECT_EQ(ranks[1].text(), "rank 1 has not begun");
  EXPECT_EQ(ranks[2].text(), "rank 2 has ended");
  EXPECT_EQ(ranks[3].text(), "rank 3 in build of step 0");
  EXPECT_TRUE(ranks[3].recent.empty());
}

TEST(RankTraces, AStoppedRankIsWaitedFor) {
  const auto culprit = waited_for({rank(0, kRuns, 3), rank(1, kRuns, 9), rank(2, kRuns, 9)}, {2});
  EXPECT_EQ(culprit->rank, 2);
  EXPECT_EQ(culprit->why, "the process of rank 2 is stopped");
  EXPECT_EQ(waited_for({}, {1})->rank, 1) << "even before any rank has begun";
}

TEST(RankTraces, ThenOneThatHasNotBegun) {
  EXPECT_EQ(waited_for({rank(0, kRuns, 1), rank(1, SeenRank::State::not_begun, 0)}, {})->rank, 1);
}

TEST(RankTraces, ThenOneBehindTheOthers) {
  const auto culprit = waited_for({rank(0, kRuns, 9), rank(1, kRuns, 9), rank(2, kRuns, 8)}, {});
  EXPECT_EQ(culprit->rank, 2);
  EXPECT_EQ(culprit->why, "rank 2 has entered 8 collectives, rank 0 9");
}

TEST(RankTraces, ThenOneInAnotherCollective) {
  const auto culprit =
      waited_for({rank(0, kRuns, 9, "barrier #9"), rank(1, kRuns, 9, "sum #9"), rank(2, kRuns, 9, "barrier #9")}, {});
  EXPECT_EQ(culprit->rank, 1);
  EXPECT_EQ(culprit->why, "rank 1 has entered sum #9, others barrier #9");
}

TEST(RankTraces, NeverOneThatHasEnded) {
  EXPECT_EQ(waited_for({rank(0, kEndedState, 7), rank(1, kRuns, 7)}, {})->rank, 1);
  EXPECT_EQ(waited_for({rank(0, kEndedState, 6), rank(1, kRuns, 7)}, {})->rank, 1);
  EXPECT_FALSE(waited_for({rank(0, kEndedState, 7), rank(1, kEndedState, 7)}, {}));
  EXPECT_FALSE(waited_for({}, {}));
}

}  // namespace
}  // namespace regather::matrix
