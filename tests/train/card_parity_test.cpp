// The whole card, with the fixes off and on, with ranks as threads over shared memory and as processes over gloo.
#include <gtest/gtest.h>

#include "case/fixes.h"
#include "train/run_case.h"

namespace regather::train {
namespace {

std::vector<Case> card() {
  std::vector<Case> cases;
  for (const Backend backend : {Backend::ddp, Backend::zero1, Backend::zero2, Backend::zero3, Backend::fsdp2}) {
    for (const Loss loss : {Loss::sft, Loss::grpo, Loss::dpo, Loss::kto}) {
      for (const Checkpoint checkpoint : {Checkpoint::none, Checkpoint::reentrant, Checkpoint::nonreentrant}) {
        for (const Frozen frozen : {Frozen::none, Frozen::norms, Frozen::lora, Frozen::head, Frozen::embedding}) {
          Case c{.backend = backend, .loss = loss, .checkpoint = checkpoint, .frozen = frozen};
          cases.push_back(c);
          c.fixes = recommended_fixes(c);
          cases.push_back(c);
        }
      }
    }
  }
  return cases;
}

TEST(CardParity, ThreadsAndGlooProcessesGiveTheSameBits) {
  const std::vector<Case> cases = card();
  ASSERT_EQ(cases.size(), 600U);
  Runner runner;
  RunOptions in_processes;
  in_processes.launcher = Launcher::processes;
  for (const Case& c : cases) {
    const CaseResult threads = runner.run(c, {});
    const CaseResult processes = runner.run(c, in_processes);
    EXPECT_EQ(name(threads.outcome), name(processes.outcome)) << id(c);
    EXPECT_EQ(threads.signature, processes.signature) << id(c);
    // Two ranks add in either order to the same sum, so equal means equal.
    EXPECT_EQ(threads.gradients, processes.gradients) << id(c);
    EXPECT_EQ(threads.loss, processes.loss) << id(c);
  }
}

}  // namespace
}  // namespace regather::train
