// The runner against workers that crash, hang, talk nonsense and die: nothing is lost and nothing is left running.
#include "matrix/runner/runner.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "matrix/runner/signals.h"
#include "tests/matrix/program.h"

namespace regather::matrix {
namespace {

const std::vector<std::string> kIds{"ddp/sft/fix=none",
                                    "ddp/sft/frozen=norms/fix=none",
                                    "ddp/sft/frozen=lora/fix=none",
                                    "ddp/sft/frozen=head/fix=none",
                                    "zero3/sft/fix=none",
                                    "zero3/sft/frozen=norms/fix=none"};

// A control group that may hold so many bytes, below that of this process.
class MemoryGroup {
 public:
  explicit MemoryGroup(int64_t bytes) {
    std::ifstream groups("/proc/self/cgroup");
    for (std::string line; std::getline(groups, line);) {
      const std::string name = line.substr(line.find(':', line.find(':') + 1) + 1);
      const bool first_version = line.find(":memory:") != std::string::npos;
      if (!first_version && !line.starts_with("0::")) continue;
      path_ = "/sys/fs/cgroup" + std::string(first_version ? "/memory" : "") + name + "/regather-test-" +
              std::to_string(::getpid());
      const std::string limit = path_ + (first_version ? "/memory.limit_in_bytes" : "/memory.max");
      std::error_code refused;
      if (!std::filesystem::create_directory(path_, refused)) continue;
      usable_ = static_cast<bool>(std::ofstream(limit) << bytes << std::flush);
      if (usable_) return;
      std::filesystem::remove(path_, refused);
    }
  }
  ~MemoryGroup() { ::rmdir(path_.c_str()); }
  MemoryGroup(const MemoryGroup&) = delete;
  MemoryGroup& operator=(const MemoryGroup&) = delete;
  bool usable() const { return usable_; }
  std::string processes() const { return path_ + "/cgroup.procs"; }

 private:
  std::string path_;
  bool usable_ = false;
};

class RunnerTest : public testing::Test {
 protected:
  std::map<std::string, CaseResult> run(const std::string& behaviour, double timeout = 30) {
    ::setenv("FAKE_WORKER", behaviour.c_str(), 1);
    ::setenv("FAKE_WORKER_PIDS", (folder_ / "pids").c_str(), 1);
    std::vector<Case> cases;
    for (const std::string& text : kIds) cases.push_back(parse_id(text));
    Schedule schedule(cases.size(), policy_);
    schedule.enqueue({0, 1, 2, 3, 4, 5});
    RunnerOptions options{.stack = {}, .jobs = jobs_, .request = {}};
    options.stack.worker = REGATHER_FAKE_WORKER;
    options.request.timeout = timeout;
    std::map<std::string, CaseResult> results;
    conclusions_.clear();
    {
      const SignalScope signals;
      end_ = run_cases(
          cases, schedule, options,
          [&](size_t index, const CaseResult& result, const std::string& line) {
            schedule.record(index, result, line);
            lines_[id(result.which)] = line;
            results[id(result.which)] = result;
            ++attempts_;
            return attempts_ < stop_after_;
          },
          [&](const DeathReport& report) { conclusions_.push_back(report.conclusion); });
    }
    EXPECT_TRUE(still_running(folder_ / "pids").empty());
    return results;
  }

  // The result of the case that misbehaves; all others must have passed.
  CaseResult odd_one_out(const std::map<std::string, CaseResult>& results, const std::string& odd) {
    EXPECT_EQ(results.size(), kIds.size());
    for (const auto& [id, result] : results) {
      EXPECT_TRUE(id == odd || result.outcome == Outcome::pass) << id;
    }
    return results.at(odd);
  }

  TemporaryFolder folder_;
  SchedulePolicy policy_;
  int jobs_ = 2;
  RunEnd end_ = RunEnd::done;
  std::vector<std::string> conclusions_;      // what became of the deaths
  std::map<std::string, std::string> lines_;  // by id
  int attempts_ = 0;
  int stop_after_ = 1000;
};

TEST_F(RunnerTest, RunsEveryCaseOnce) {
  const auto results = run("");
  EXPECT_EQ(results.size(), kIds.size());
  EXPECT_EQ(attempts_, static_cast<int>(kIds.size()));
  for (const auto& [id, result] : results) EXPECT_EQ(result.outcome, Outcome::pass) << id;
}

TEST_F(RunnerTest, ACrashNamesSignalRankPhaseAndCollective) {
  const CaseResult crash = odd_one_out(run("ddp/sft/frozen=lora=segv"), "ddp/sft/frozen=lora/fix=none");
  EXPECT_EQ(crash.outcome, Outcome::crash);
  EXPECT_EQ(crash.attempt, 1);
  EXPECT_EQ(conclusions_, (std::vector<std::string>{"runs again alone", "alone too: recorded"}));
  ASSERT_TRUE(crash.signature);
  EXPECT_EQ(crash.signature->type, "signal 11 (SIGSEGV)");
  EXPECT_EQ(crash.signature->rank, 1);
  EXPECT_EQ(crash.signature->step, 1);
  EXPECT_EQ(crash.signature->phase, Phase::backward);
  EXPECT_NE(crash.signature->text.find("last collective reduce_scatter #7"), std::string::npos);
  EXPECT_NE(crash.signature->text.find("at 0x? in backward"), std::string::npos) << crash.signature->text;
  const auto death = nlohmann::json::parse(lines_["ddp/sft/frozen=lora/fix=none"])["death"];
  EXPECT_EQ(death["signal"], "SIGSEGV");
  EXPECT_EQ(death["rank"], 1);
  EXPECT_EQ(death["phase"], "backward");
  EXPECT_EQ(death["last_collective"], "reduce_scatter #7");
  EXPECT_FALSE(nlohmann::json::parse(lines_["ddp/sft/fix=none"]).contains("death"));
}

TEST_F(RunnerTest, ACaseThatOnlyItsNeighboursKillIsRescuedAlone) {
  const CaseResult rescued = odd_one_out(run("ddp/sft/frozen=lora=segv_once"), "ddp/sft/frozen=lora/fix=none");
  EXPECT_EQ(rescued.outcome, Outcome::pass);
  EXPECT_EQ(rescued.attempt, 1) << "what did not happen again is no attempt";
  EXPECT_EQ(conclusions_.size(), 2U);
  EXPECT_TRUE(conclusions_.back().starts_with("did not happen again")) << conclusions_.back();
}

TEST_F(RunnerTest, TheCasesThatBringAnotherDownAreNamed) {
  // One worker, so that the predecessors are those before it in the list.
  jobs_ = 1;
  const CaseResult crash = odd_one_out(run("zero3/sft/fix=segv_after_norms"), "zero3/sft/fix=none");
  EXPECT_EQ(crash.outcome, Outcome::crash);
  ASSERT_TRUE(crash.signature);
  EXPECT_TRUE(crash.signature->text.starts_with(
      "alone it ends as pass; it dies in a worker that ran ddp/sft/frozen=norms/fix=none before; "))
      << crash.signature->text;
  EXPECT_EQ(conclusions_.back(), "happens again after those cases");
  EXPECT_EQ(nlohmann::json::parse(lines_["zero3/sft/fix=none"])["death"]["signal"], "SIGSEGV");
}

TEST_F(RunnerTest, AKillFromOutsideLeavesNoTraceInTheResult) {
  for (const char* how : {"killed_once", "killed_thrice", "rank_killed_once"}) {
    const CaseResult result = odd_one_out(run("zero3/sft/fix=" + std::string(how)), "zero3/sft/fix=none");
    EXPECT_EQ(result.outcome, Outcome::pass) << how;
    EXPECT_EQ(result.attempt, 1) << how;
    EXPECT_EQ(conclusions_.front(), "killed from outside: runs again") << how;
  }
}

TEST_F(RunnerTest, ASignalThatAnotherProcessSentIsFromOutside) {
  for (const char* how : {"terminated_once", "sent_segv_once"}) {
    EXPECT_EQ(odd_one_out(run("zero3/sft/fix=" + std::string(how)), "zero3/sft/fix=none").outcome, Outcome::pass);
    EXPECT_EQ(conclusions_, (std::vector<std::string>{"killed from outside: runs again"})) << how;
  }
}

TEST_F(RunnerTest, ARankKilledAfterAnotherFailureLeavesNoTrace) {
  const CaseResult result = odd_one_out(run("zero3/sft/fix=rank_killed_late_once"), "zero3/sft/fix=none");
  EXPECT_EQ(result.outcome, Outcome::wrong_gradient);
  EXPECT_TRUE(result.also.empty()) << "the rank's death is not the case's";
  EXPECT_EQ(conclusions_, (std::vector<std::string>{"killed from outside: runs again"}));
}

TEST_F(RunnerTest, AKillWhileOthersAreSuspectedProvesNothing) {
  jobs_ = 1;
  const CaseResult result = odd_one_out(run("zero3/sft/fix=segv_once_killed_after"), "zero3/sft/fix=none");
  EXPECT_EQ(result.outcome, Outcome::pass);
  EXPECT_EQ(conclusions_.back(), "did not happen again, alone or after the same cases");
}

TEST_F(RunnerTest, WhatTheKernelKillsForMemoryIsOom) {
  const MemoryGroup group(64 << 20);
  if (!group.usable()) GTEST_SKIP() << "no control group of memory can be made here";
  ::setenv("FAKE_WORKER_GROUP", group.processes().c_str(), 1);
  const CaseResult oom = odd_one_out(run("zero3/sft/fix=eats_memory"), "zero3/sft/fix=none");
  EXPECT_EQ(oom.outcome, Outcome::oom);
  EXPECT_EQ(oom.signature->type, "OOM killer");
  EXPECT_EQ(conclusions_, (std::vector<std::string>{"runs again alone", "alone too: recorded"})) << "never forgiven";
}

TEST_F(RunnerTest, WhatIsKilledEveryTimeIsACrash) {
  const CaseResult crash = odd_one_out(run("zero3/sft/fix=killed"), "zero3/sft/fix=none");
  EXPECT_EQ(crash.outcome, Outcome::crash);
  EXPECT_EQ(crash.signature->type, "signal 9 (SIGKILL)");
  EXPECT_EQ(conclusions_.size(), 7U) << "five are forgiven, the sixth is looked at alone";
}

TEST_F(RunnerTest, AnAnswerThatTellsOfAHangIsConfirmed) {
  const CaseResult hang = odd_one_out(run("zero3/sft/fix=rank_hangs"), "zero3/sft/fix=none");
  EXPECT_EQ(hang.outcome, Outcome::hang);
  EXPECT_EQ(hang.signature->type, "DeadlineError");
  EXPECT_EQ(conclusions_, (std::vector<std::string>{"runs again alone", "alone too: recorded"}));
}

TEST_F(RunnerTest, AStoppedProcessIsNamed) {
  const CaseResult hang = odd_one_out(run("zero3/sft/fix=stopped", 0.3), "zero3/sft/fix=none");
  EXPECT_EQ(hang.outcome, Outcome::hang);
  EXPECT_NE(hang.signature->text.find("the process of rank 0 is stopped"), std::string::npos) << hang.signature->text;
}

TEST_F(RunnerTest, EveryOtherDeathIsACrashToo) {
  EXPECT_EQ(odd_one_out(run("zero3/sft/fix=abort"), "zero3/sft/fix=none").signature->type, "signal 6 (SIGABRT)");
  EXPECT_EQ(odd_one_out(run("zero3/sft/fix=exit"), "zero3/sft/fix=none").signature->type, "exit 3");
  EXPECT_EQ(odd_one_out(run("zero3/sft/fix=orphan"), "zero3/sft/fix=none").signature->type, "exit 4");
}

TEST_F(RunnerTest, AHangIsKilledWithItsChildren) {
  const CaseResult hang = odd_one_out(run("zero3/sft/fix=hang", 0.3), "zero3/sft/fix=none");
  EXPECT_EQ(hang.outcome, Outcome::hang);
  EXPECT_EQ(hang.signature->type, "timeout");
  EXPECT_EQ(
      hang.signature->text,
      "no answer within 0.3 s; rank 0 in forward of step 0, last collectives all_gather #12; rank 1 has not begun");
  EXPECT_EQ(hang.signature->rank, 1);
  EXPECT_EQ(odd_one_out(run("zero3/sft/fix=silent", 0.3), "zero3/sft/fix=none").outcome, Outcome::hang);
}

TEST_F(RunnerTest, NonsenseIsNotAnAnswer) {
  const CaseResult garbage = odd_one_out(run("zero3/sft/fix=garbage"), "zero3/sft/fix=none");
  EXPECT_EQ(garbage.outcome, Outcome::crash);
  EXPECT_EQ(garbage.signature->type, "reply");
  EXPECT_EQ(garbage.signature->text, "result line: 'schema' is absent");
  EXPECT_EQ(odd_one_out(run("zero3/sft/fix=other"), "zero3/sft/fix=none").signature->text,
            "result line: an answer for 'zero3/kto/world=8/fix=none'");
  EXPECT_EQ(odd_one_out(run("zero3/sft/fix=endless"), "zero3/sft/fix=none").signature->type, "reply");
}

TEST_F(RunnerTest, AWorkerCannotCutItsBlackBoxShort) {
  EXPECT_EQ(odd_one_out(run("zero3/sft/fix=cut_box"), "zero3/sft/fix=none").signature->type, "exit 3");
}

TEST_F(RunnerTest, NoiseAndDeathAfterTheAnswerLoseNothing) {
  EXPECT_EQ(odd_one_out(run("zero3/sft/fix=noise"), "zero3/sft/fix=none").outcome, Outcome::pass);
  EXPECT_EQ(odd_one_out(run("sft=then_exit"), "zero3/sft/fix=none").outcome, Outcome::pass);
}

TEST_F(RunnerTest, EveryCaseMayCrash) {
  for (const auto& [id, result] : run("sft=segv")) EXPECT_EQ(result.outcome, Outcome::crash) << id;
}

TEST_F(RunnerTest, RetriesAndRepeatsAreCounted) {
  policy_ = {.retries = 2, .repeat = 1};
  EXPECT_EQ(odd_one_out(run("zero3/sft/fix=segv"), "zero3/sft/fix=none").attempt, 3);
  attempts_ = 0;
  policy_ = {.retries = 0, .repeat = 3};
  run("");
  EXPECT_EQ(attempts_, 3 * static_cast<int>(kIds.size()));
}

TEST_F(RunnerTest, StopsWhenTold) {
  stop_after_ = 2;
  EXPECT_EQ(run("sft=slow").size(), 2U);
  EXPECT_EQ(end_, RunEnd::stopped);
}

TEST_F(RunnerTest, WhatAWorkerCannotUseIsTheUsersError) {
  try {
    run("zero3/sft/fix=none=usage");
    FAIL() << "expected UsageError";
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find("model.safetensors: truncated"), std::string::npos) << e.what();
  }
}

TEST_F(RunnerTest, AWorkerThatCannotStartIsAnErrorOfOursNotOfACase) {
  try {
    run("start=exit");
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("ends before it begins any case: exit 127"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("libtorch_cpu.so"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace regather::matrix
