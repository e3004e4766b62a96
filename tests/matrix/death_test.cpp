#include "matrix/death.h"

#include <gtest/gtest.h>

#include <cstring>

namespace regather::matrix {
namespace {

const Case kCase = parse_id("zero3/sft/fix=none");

void trace(BlackBox& box, int rank, int step, int phase, uint64_t collectives, const char* last) {
  RankTrace& r = box.ranks[static_cast<size_t>(rank)];
  r.step = step;
  r.phase = phase;
  r.collectives = collectives;
  std::strncpy(r.collective.data(), last, r.collective.size() - 1);
}

void begin(BlackBox& box, const std::string& id) {
  std::strncpy(box.case_id.data(), id.c_str(), box.case_id.size() - 1);
  for (RankTrace& r : box.ranks) r.phase = -1;
}

TEST(Death, BlamesTheRankThatTheOthersWaitFor) {
  BlackBox box{};
  begin(box, id(kCase));
  trace(box, 0, 1, 2, 9, "all_gather #9");
  trace(box, 1, 1, 1, 8, "all_gather #8");
  const CaseResult r = describe_death(kCase, {Outcome::hang, "timeout", "no answer", ""}, box);
  EXPECT_EQ(r.outcome, Outcome::hang);
  EXPECT_EQ(r.signature->rank, 1);
  EXPECT_EQ(r.signature->phase, Phase::forward);
  EXPECT_EQ(r.signature->step, 1);
  EXPECT_EQ(
      r.signature->text,
      "no answer; rank 0 in backward of step 1, last collectives all_gather #9; rank 1 in forward of step 1, last "
      "collectives all_gather #8");
}

TEST(Death, TheRankThatTheWorkerNamedComesFirst) {
  BlackBox box{};
  begin(box, id(kCase));
  trace(box, 0, 0, 2, 9, "");
  trace(box, 1, 0, 1, 8, "");
  const Death death{Outcome::crash, "signal 6 (SIGABRT)", "", "terminate called on rank 0\n0x7f00aa: frame\n"};
  const CaseResult r = describe_death(kCase, death, box);
  EXPECT_EQ(r.signature->rank, 0);
  EXPECT_NE(r.signature->text.find("standard error: terminate called on rank 0\n0x?: frame"), std::string::npos);
}

TEST(Death, AnotherCasesTracesTellNothing) {
  BlackBox box{};
  begin(box, "ddp/sft/fix=none");
  trace(box, 0, 1, 2, 9, "all_gather #9");
  const CaseResult r = describe_death(kCase, {Outcome::crash, "exit 1", "", ""}, box);
  EXPECT_EQ(r.signature->phase, Phase::build);
  EXPECT_EQ(r.signature->text, "");
}

TEST(Death, AWildBoxIsReadWithinBounds) {
  BlackBox box{};
  std::memset(box.case_id.data(), 'x', box.case_id.size());
  EXPECT_EQ(describe_death(kCase, {Outcome::crash, "exit 1", "", ""}, box).signature->step, 0);
  begin(box, id(kCase));
  trace(box, 0, -5, 99, 1, "all_gather");
  trace(box, 1, -5, 2, 1, "");
  box.ranks[1].collective.fill('y');
  const CaseResult r = describe_death(kCase, {Outcome::crash, "exit 1", "", "on rank 77 on rank x"}, box);
  EXPECT_EQ(r.signature->rank, 1);
  EXPECT_EQ(r.signature->step, 0);
}

TEST(Death, OnlyTheEndOfALongStandardErrorIsKept) {
  std::string errors;
  for (int i = 0; i < 1000; ++i) errors += "line " + std::to_string(i) + "\n";
  const CaseResult r = describe_death(kCase, {Outcome::crash, "exit 1", "", errors}, BlackBox{});
  EXPECT_LT(r.signature->text.size(), 2100U);
  EXPECT_TRUE(r.signature->text.ends_with("line 999"));
}

Signature of_type(const char* type) {
  Signature signature;
  signature.type = type;
  return signature;
}

CaseResult died(const char* type, Outcome outcome = Outcome::crash) {
  CaseResult r;
  r.outcome = outcome;
  r.signature = of_type(type);
  return r;
}

// A rank that died after another failure of its case.
CaseResult died_late(const char* type) {
  CaseResult r = died("gradient", Outcome::wrong_gradient);
  r.also = {{Outcome::invariant, of_type("update")}, {Outcome::crash, of_type(type)}};
  return r;
}

TEST(Death, IsFoundBehindAnotherFailureToo) {
  EXPECT_TRUE(tells_of_death(died("signal 11 (SIGSEGV)")));
  EXPECT_TRUE(tells_of_death(died("timeout", Outcome::hang)));
  EXPECT_TRUE(tells_of_death(died_late("signal 11 (SIGSEGV)")));
  EXPECT_FALSE(tells_of_death(died("gradient", Outcome::wrong_gradient)));

  CaseResult late = died_late("signal 11 (SIGSEGV)");
  put_death_first(late);
  EXPECT_EQ(late.outcome, Outcome::crash);
  EXPECT_EQ(late.signature->type, "signal 11 (SIGSEGV)");
  EXPECT_EQ(late.also[1].outcome, Outcome::wrong_gradient);
  EXPECT_EQ(late.also[1].signature.type, "gradient");
  CaseResult bare;
  bare.outcome = Outcome::crash;
  put_death_first(bare);
  EXPECT_TRUE(bare.signature);
}

TEST(Death, ComesFromOutsideBySignalsThatNoCaseRaises) {
  for (const char* type : {"signal 9 (SIGKILL)", "signal 15 (SIGTERM)", "signal 2 (SIGINT)", "signal 1 (SIGHUP)"}) {
    EXPECT_TRUE(from_outside(died(type), "")) << type;
    EXPECT_TRUE(from_outside(died_late(type), "")) << type;
  }
  for (const char* type : {"signal 11 (SIGSEGV)", "signal 6 (SIGABRT)", "exit 9", "signal 10 (SIGUSR1)"}) {
    EXPECT_FALSE(from_outside(died(type), "regather-worker: fatal signal, stack of rank 1:\n")) << type;
    EXPECT_TRUE(from_outside(died(type), "x\nregather-worker: signal from outside, stack of rank 1:\n")) << type;
  }
  EXPECT_FALSE(from_outside(died("signal 9 (SIGKILL)", Outcome::oom), ""));
}

TEST(Death, OnlyAKillIsBlamedOnMemory) {
  CaseResult killed = died("signal 9 (SIGKILL)");
  blame_memory(killed);
  EXPECT_EQ(killed.outcome, Outcome::oom);
  EXPECT_EQ(killed.signature->type, "OOM killer");
  CaseResult late = died_late("signal 9 (SIGKILL)");
  blame_memory(late);
  EXPECT_EQ(late.outcome, Outcome::wrong_gradient);
  EXPECT_EQ(late.also[1].outcome, Outcome::oom);
  CaseResult other = died("signal 11 (SIGSEGV)");
  blame_memory(other);
  EXPECT_EQ(other.outcome, Outcome::crash);
}

TEST(Death, AnEmptyBoxMeansThatNoCaseBegan) {
  BlackBox box{};
  EXPECT_TRUE(before_first_case(box));
  begin(box, "ddp/sft/fix=none");
  EXPECT_FALSE(before_first_case(box));
}

}  // namespace
}  // namespace regather::matrix
