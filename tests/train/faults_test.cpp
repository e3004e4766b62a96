// Every check can go red: each seeded fault turns the cases red that it names beforehand, and no other.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "case/fault.h"
#include "train/run_case.h"

namespace regather::train {
namespace {

class Faults : public ::testing::TestWithParam<FaultInfo> {};
INSTANTIATE_TEST_SUITE_P(Seeded, Faults, ::testing::ValuesIn(known_faults()),
                         [](const auto& fault) { return fault.param.name; });

CaseResult run_with(Fault fault, const Case& c) {
  static Runner runner;
  RunOptions options;
  options.deadline = std::chrono::milliseconds(5000);
  // A rank that dies takes its process along; so it needs one of its own.
  if (fault == Fault::crash_rank) options.launcher = Launcher::processes;
  seed_fault(fault);
  CaseResult result = runner.run(c, options);
  seed_fault(Fault::none);
  return result;
}

TEST_P(Faults, TurnsRedWhatItNamesAndNothingElse) {
  const std::set<std::string> red(GetParam().red.begin(), GetParam().red.end());
  ASSERT_FALSE(red.empty());
  // A crash costs a process a rank and says the same of every case: each fifth has to do.
  const size_t stride = GetParam().fault == Fault::crash_rank ? 5 : 1;
  for (size_t i = 0; i < fault_panel().size(); i += stride) {
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

}  // namespace
}  // namespace regather::train
