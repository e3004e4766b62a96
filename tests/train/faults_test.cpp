// Every check can go red: each seeded fault turns the cases red that it names beforehand, and no other.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/blackbox.h"
#include "case/fault.h"
#include "train/run_case.h"

namespace regather::train {
namespace {

class Faults : public ::testing::TestWithParam<FaultInfo> {};
INSTANTIATE_TEST_SUITE_P(Seeded, Faults, ::testing::ValuesIn(known_faults()),
                         [](const auto& fault) { return fault.param.name; });

// A rank that dies or hangs takes its process along; so it needs one of its own. That is slow and the same in every
// case, so a few have to do.
size_t stride(Fault fault) { return fault == Fault::crash_rank ? 5 : fault == Fault::hang_rank ? 25 : 1; }

CaseResult run_with(Fault fault, const Case& c) {
  static Runner runner;
  RunOptions options;
  options.deadline = std::chrono::milliseconds(fault == Fault::hang_rank ? 1500 : 5000);
  if (stride(fault) > 1) options.launcher = Launcher::processes;
  seed_fault(fault);
  CaseResult result = runner.run(c, options);
  seed_fault(Fault::none);
  return result;
}

TEST_P(Faults, TurnsRedWhatItNamesAndNothingElse) {
  const std::set<std::string> red(GetParam().red.begin(), GetParam().red.end());
  ASSERT_FALSE(red.empty());
  for (size_t i = 0; i < fault_panel().size(); i += stride(GetParam().fault)) {
    const Case& c = fault_panel()[i];
    const CaseResult result = run_with(GetParam().fault, c);
    EXPECT_EQ(result.outcome != Outcome::pass, red.contains(id(c)))
        << id(c) << ": " << name(result.outcome) << " "
        << (result.signature ? result.signature->type + ": " + result.signature->text : "");
  }
}

TEST(NoFault, ThePanelIsGreen) {
  for (const Case& c : fault_panel()) {
    const CaseResult result = run_with(Fault::none, c);
    EXPECT_EQ(result.outcome, Outcome::pass) << id(c) << ": " << (result.signature ? result.signature->text : "");
  }
}

TEST(SomeFaults, ShowOnlyInTheSecondStepOnOneRankOrWithinTenTimesTheTolerance) {
  const CaseResult second_step = run_with(Fault::keep_gradients, parse_id("ddp/sft/fix=redirect"));
  EXPECT_EQ(second_step.signature->step, 1);
  const CaseResult small = run_with(Fault::late_rank_scale, parse_id("ddp/sft/fix=redirect"));
  EXPECT_EQ(small.signature->rank, 1);
  EXPECT_LT(small.gradients->share, 10);
  EXPECT_GT(small.gradients->share, 1);
}

TEST(SomeFaults, ARankThatHangsIsTheOneToBlame) {
  const auto box = std::filesystem::temp_directory_path() / fmt::format("faults-{}", ::getpid());
  map_blackbox(box);  // shared with the ranks
  std::filesystem::remove(box);
  const CaseResult hang = run_with(Fault::hang_rank, parse_id("zero3/sft/fix=gather+recompute_hold+redirect"));
  EXPECT_EQ(hang.outcome, Outcome::hang);
  EXPECT_EQ(hang.signature->rank, 1) << "not rank 0, which waited for it in vain";
  EXPECT_EQ(hang.signature->step, 1);
  EXPECT_EQ(hang.signature->phase, Phase::backward);
  ASSERT_FALSE(hang.also.empty());
  EXPECT_EQ(hang.also[0].signature.rank, 0);
}

}  // namespace
}  // namespace regather::train
