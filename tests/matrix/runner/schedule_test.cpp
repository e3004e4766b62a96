#include "matrix/runner/schedule.h"

#include <gtest/gtest.h>

namespace regather::matrix {
namespace {

CaseResult attempt(Outcome outcome, int number = 1) {
  CaseResult r;
  r.which = parse_id("ddp/sft/fix=redirect");
  r.outcome = outcome;
  r.attempt = number;
  return r;
}

TEST(Schedule, OneAttemptSettlesWithoutRetries) {
  Schedule s(2, {});
  s.enqueue({1, 0});
  EXPECT_EQ(s.next(), 1U);
  EXPECT_TRUE(s.record(1, attempt(Outcome::crash), "a"));
  EXPECT_FALSE(s.settled(0));
  EXPECT_EQ(s.next(), 0U);
  EXPECT_FALSE(s.record(0, attempt(Outcome::pass), "b"));
  EXPECT_EQ(s.next(), std::nullopt);
  EXPECT_EQ(s.history(1).line, "a");
}

TEST(Schedule, ARedAttemptIsRetriedAndTheLastDecides) {
  Schedule s(1, {.retries = 2, .repeat = 1});
  s.enqueue({0});
  s.next();
  EXPECT_FALSE(s.record(0, attempt(Outcome::crash, 1), "first"));
  EXPECT_EQ(s.next(), 0U);
  EXPECT_FALSE(s.record(0, attempt(Outcome::pass, 2), "second"));
  EXPECT_TRUE(s.settled(0));
  EXPECT_EQ(s.history(0).line, "second");
  EXPECT_EQ(s.history(0).attempts, (std::vector{Outcome::crash, Outcome::pass}));
  EXPECT_EQ(s.history(0).starts, 2);
}

TEST(Schedule, RetriesEnd) {
  Schedule s(1, {.retries = 1, .repeat = 1});
  s.enqueue({0});
  EXPECT_FALSE(s.record(0, attempt(Outcome::crash), "1"));
  EXPECT_TRUE(s.record(0, attempt(Outcome::crash), "2"));
  EXPECT_TRUE(s.settled(0));
}

TEST(Schedule, OneRedRoundOfManyDecides) {
  Schedule s(1, {.retries = 0, .repeat = 3});
  s.enqueue({0});
  s.record(0, attempt(Outcome::pass), "1");
  s.record(0, attempt(Outcome::hang), "2");
  EXPECT_FALSE(s.settled(0));
  s.record(0, attempt(Outcome::pass), "3");
  EXPECT_TRUE(s.settled(0));
  EXPECT_EQ(s.history(0).line, "2");
}

TEST(Schedule, UnsupportedIsAnsweredOnceHoweverManyRounds) {
  Schedule s(1, {.retries = 3, .repeat = 3});
  s.enqueue({0});
  s.record(0, attempt(Outcome::unsupported), "1");
  EXPECT_TRUE(s.settled(0));
}

TEST(Schedule, ThePolicySaysWhatIsRed) {
  Schedule s(1, {.retries = 1, .repeat = 1, .red = [](const CaseResult& r) { return r.outcome == Outcome::pass; }});
  s.enqueue({0});
  EXPECT_FALSE(s.record(0, attempt(Outcome::pass), "1"));
  EXPECT_FALSE(s.settled(0));
  EXPECT_FALSE(s.record(0, attempt(Outcome::crash), "2"));
  EXPECT_TRUE(s.settled(0));
}

TEST(Schedule, ReplayedLinesLeadToTheSameState) {
  const std::vector<Outcome> outcomes{Outcome::crash, Outcome::pass, Outcome::hang, Outcome::hang};
  Schedule live(1, {.retries = 1, .repeat = 3});
  Schedule replayed(1, {.retries = 1, .repeat = 3});
  live.enqueue({0});
  for (const Outcome outcome : outcomes) {
    live.record(0, attempt(outcome), name(outcome));
    replayed.replay(0, attempt(outcome), name(outcome));
  }
  replayed.enqueue({0});
  EXPECT_EQ(replayed.history(0).rounds, 2);
  EXPECT_EQ(replayed.history(0).rounds, live.history(0).rounds);
  EXPECT_EQ(replayed.history(0).line, live.history(0).line);
  EXPECT_EQ(replayed.next(), 0U) << "one round is missing";
}

}  // namespace
}  // namespace regather::matrix
