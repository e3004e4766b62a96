#include "matrix/death/death.h"

#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

namespace regather::matrix {
namespace {

using Json = nlohmann::json;

const Case kCase = parse_id("zero3/sft/fix=none");
const std::string kStacks =
    "stack of rank 0:\n/w(_ZN8regather4comm7Meeting4waitEv+0x2) [0x1]\n"
    "stack of rank 1:\n/lib/libc.so.6(sleep+0x3) [0x2]\n/w(_ZN8regather4spinEv+0x2) [0x1]\n";

Json details(const RecordedDeath& death) { return Json::parse(death.details); }

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

TEST(Death, OfAHangNamesWhomTheOthersWaitFor) {
  BlackBox box{};
  begin(box, id(kCase));
  trace(box, 0, 1, 2, 9, "all_gather #9");
  trace(box, 1, 1, 1, 8, "all_gather #8");
  const RecordedDeath r = describe_death(kCase, {Outcome::hang, "timeout", "no answer", kStacks}, box);
  EXPECT_EQ(r.result.outcome, Outcome::hang);
  EXPECT_EQ(r.result.signature->rank, 1);
  EXPECT_EQ(r.result.signature->phase, Phase::forward);
  EXPECT_EQ(r.result.signature->step, 1);
  EXPECT_EQ(r.result.signature->text,
            "no answer; rank 1 has entered 8 collectives, rank 0 9; rank 0 in backward of step 1, last collectives "
            "all_gather #9; rank 1 in forward of step 1, last collectives all_gather #8; in regather::spin");
  EXPECT_EQ(details(r), Json::parse(R"({"rank":1,"step":1,"phase":"forward","signal":null,
      "last_collective":"all_gather #8","backtrace":["sleep","regather::spin"],"ranks":[
      {"rank":0,"state":"runs","step":1,"phase":"backward","collectives":["all_gather #9"],
       "backtrace":["regather::comm::Meeting::wait"]},
      {"rank":1,"state":"runs","step":1,"phase":"forward","collectives":["all_gather #8"],
       "backtrace":["sleep","regather::spin"]}]})"));
}

TEST(Death, OfAStoppedRankThatHasNotBegunNamesIt) {
  BlackBox box{};
  begin(box, id(kCase));
  trace(box, 0, 0, 0, 1, "barrier #1");
  const RecordedDeath r = describe_death(kCase, {Outcome::hang, "timeout", "no answer", "", {1}}, box);
  EXPECT_EQ(r.result.signature->rank, 1);
  EXPECT_EQ(
      r.result.signature->text,
      "no answer; the process of rank 1 is stopped; rank 0 in build of step 0, last collectives barrier #1; rank 1 "
      "has not begun");
  EXPECT_EQ(details(r)["ranks"][1]["state"], "stopped");
}

TEST(Death, OfAWorkerThatPlaysOneRankIsThatRanks) {
  BlackBox box{};
  begin(box, id(kCase));
  trace(box, 1, 1, 2, 6, "broadcast #6");  // rank 0 is another host's
  for (const Outcome outcome : {Outcome::hang, Outcome::crash}) {
    Death death{outcome, "timeout", "", ""};
    death.only = 1;
    const RecordedDeath r = describe_death(kCase, death, box);
    EXPECT_EQ(r.result.signature->rank, 1);
    EXPECT_EQ(r.result.signature->step, 1);
    EXPECT_EQ(r.result.signature->phase, Phase::backward);
    EXPECT_EQ(r.result.signature->text.find("rank 0"), std::string::npos) << r.result.signature->text;
  }
}

TEST(Death, ACrashTellsOfItsOwnRankAlone) {
  BlackBox box{};
  begin(box, id(kCase));
  trace(box, 0, 0, 1, 9, "");
  trace(box, 1, 0, 2, 8, "all_gather #8");
  const std::string errors =
      "note\nstack of rank 0:\n/w(_ZN8regather5otherEv+0x1) [0x1]\n"
      "regather-worker: fatal signal, stack of rank 1:\n/lib/libc.so.6(gsignal+0x1) [0x1]\n"
      "/w(_ZN8regather4goneEv+0x1) [0x1]\n";
  const RecordedDeath r = describe_death(kCase, {Outcome::crash, "signal 6 (SIGABRT)", "", errors}, box);
  EXPECT_EQ(r.result.signature->rank, 1);
  EXPECT_EQ(r.result.signature->text,
            "rank 1 in backward of step 0, last collective all_gather #8; in regather::gone; standard error: note");
  EXPECT_EQ(details(r), Json::parse(R"({"rank":1,"step":0,"phase":"backward","signal":"SIGABRT",
      "last_collective":"all_gather #8","backtrace":["gsignal","regather::gone"]})"));
}

TEST(Death, TheRankThatTheWorkerNamedComesFirst) {
  BlackBox box{};
  begin(box, id(kCase));
  trace(box, 0, 0, 2, 9, "");
  trace(box, 1, 0, 1, 8, "");
  const Death death{Outcome::crash, "signal 6 (SIGABRT)", "", "terminate called on rank 0\n0x7f00aa: frame\n"};
  const CaseResult r = describe_death(kCase, death, box).result;
  EXPECT_EQ(r.signature->rank, 0);
  EXPECT_NE(r.signature->text.find("standard error: terminate called on rank 0\n0x?: frame"), std::string::npos);
}

TEST(Death, AnotherCasesTracesTellNothing) {
  BlackBox box{};
  begin(box, "ddp/sft/fix=none");
  trace(box, 0, 1, 2, 9, "all_gather #9");
  const CaseResult r = describe_death(kCase, {Outcome::crash, "exit 1", "", ""}, box).result;
  EXPECT_EQ(r.signature->phase, Phase::build);
  EXPECT_EQ(r.signature->text, "");
}

TEST(Death, AWildBoxIsReadWithinBounds) {
  BlackBox box{};
  std::memset(box.case_id.data(), 'x', box.case_id.size());
  EXPECT_EQ(describe_death(kCase, {Outcome::crash, "exit 1", "", ""}, box).result.signature->step, 0);
  begin(box, id(kCase));
  trace(box, 0, -5, 99, 1, "all_gather");
  trace(box, 1, -5, 2, uint64_t{1} << 63, "");
  box.ranks[1].collective.fill('y');
  for (auto& recent : box.recent[1]) recent.fill('z');
  for (const char* errors : {"on rank 77 on rank x", "on rank -1", "stack of rank 1:\n"}) {
    for (const Outcome outcome : {Outcome::crash, Outcome::hang}) {
      const RecordedDeath r = describe_death(kCase, {outcome, "exit 1", "", errors, {-1, 70}}, box);
      EXPECT_EQ(r.result.signature->step, 0);
      EXPECT_TRUE(Json::accept(r.details));
    }
  }
}

TEST(Death, OnlyTheEndOfALongStandardErrorIsKept) {
  std::string errors;
  for (int i = 0; i < 1000; ++i) errors += "line " + std::to_string(i) + "\n";
  const CaseResult r = describe_death(kCase, {Outcome::crash, "exit 1", "", errors}, BlackBox{}).result;
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

TEST(Death, ThatAWorkerTellsOfComesWithItsStack) {
  BlackBox box{};
  begin(box, id(kCase));
  trace(box, 1, 1, 2, 3, "all_gather #3");
  CaseResult told = died_late("signal 11 (SIGSEGV)");
  told.which = kCase;
  told.also[1].signature.rank = 1;
  const RecordedDeath r = describe_told_death(
      told, "regather-worker: fatal signal, stack of rank 1:\n/w(_ZN8regather4goneEv+0x1) [0x1]\n", box);
  EXPECT_EQ(r.result.outcome, Outcome::crash) << "whatever failed before";
  EXPECT_EQ(r.result.signature->text, "in regather::gone");
  EXPECT_EQ(r.result.also[1].outcome, Outcome::wrong_gradient);
  EXPECT_EQ(details(r)["rank"], 1);
  EXPECT_EQ(details(r)["signal"], "SIGSEGV");
  EXPECT_EQ(details(r)["last_collective"], "all_gather #3");
  EXPECT_EQ(details(r)["backtrace"], Json::parse(R"(["regather::gone"])"));
}

TEST(Death, AHangIsAFailureAmongOthers) {
  CaseResult told = died_late("DeadlineError");
  told.also[1].outcome = Outcome::hang;
  const RecordedDeath r = describe_told_death(told, "", BlackBox{});
  EXPECT_EQ(r.result.outcome, Outcome::wrong_gradient);
  EXPECT_TRUE(details(r)["ranks"].is_array());
}

TEST(Death, IsAMemberOfALineThatIsReadAsBefore) {
  const RecordedDeath r = describe_death(kCase, {Outcome::crash, "signal 6 (SIGABRT)", "", ""}, BlackBox{});
  EXPECT_EQ(Json::parse(r.line())["death"], details(r));
  const CaseResult read = result_from_line(r.line());
  EXPECT_EQ(read.outcome, Outcome::crash);
  EXPECT_EQ(read.signature, r.result.signature);
}

TEST(Death, AnEmptyBoxMeansThatNoCaseBegan) {
  BlackBox box{};
  EXPECT_TRUE(before_first_case(box));
  begin(box, "ddp/sft/fix=none");
  EXPECT_FALSE(before_first_case(box));
}

}  // namespace
}  // namespace regather::matrix
