// The same cases with ranks as threads over shared memory and as processes over gloo give equal results.
#include <gtest/gtest.h>

#include "base/error.h"
#include "train/run_case.h"

namespace regather::train {
namespace {

std::vector<std::string> cases() {
  std::vector<std::string> ids;
  for (const char* checkpoint : {"", "/checkpoint=reentrant", "/checkpoint=nonreentrant"}) {
    for (const char* frozen : {"", "/frozen=norms", "/frozen=lora"}) {
      ids.push_back(std::string("ddp/sft") + checkpoint + frozen + "/fix=redirect");
      ids.push_back(std::string("zero3/sft") + checkpoint + frozen + "/fix=gather+recompute_hold+redirect");
    }
    ids.push_back(std::string("zero3/sft") + checkpoint + "/frozen=norms/fix=gather+redirect");
    ids.push_back(std::string("zero3/sft") + checkpoint + "/fix=none");
  }
  for (const char* id : {"ddp/sft/fix=none",
                         "zero3/sft/fix=gather",
                         "zero3/sft/kernel=chunked/fix=redirect",
                         "zero3/sft/head=tied/fix=gather+redirect",
                         "ddp/sft/head=tied/fix=redirect",
                         "zero3/sft/persistence=huge/fix=gather+redirect",
                         "ddp/grpo/fix=redirect",
                         "ddp/dpo/fix=redirect",
                         "ddp/kto/fix=redirect",
                         "zero3/grpo/fix=gather+redirect",
                         "zero3/dpo/fix=gather+redirect",
                         "zero3/kto/fix=gather+kl_backbone+redirect",
                         "zero3/kto/fix=gather+redirect",
                         "zero1/sft/fix=none",
                         "zero2/kto/accumulate=2/fix=redirect",
                         "zero2/dpo/accumulate=2/fix=none",
                         "fsdp2/grpo/fix=none",
                         "fsdp2/kto/checkpoint=nonreentrant/frozen=norms/fix=redirect",
                         "fsdp2/sft/accumulate=2/fix=redirect",
                         "zero3/sft/dtype=bf16/fix=gather+redirect"}) {
    ids.emplace_back(id);
  }
  return ids;
}

TEST(Parity, ThreadsAndGlooProcessesGiveTheSameBits) {
  Runner runner;
  ASSERT_EQ(cases().size(), 44U);
  for (const std::string& id : cases()) {
    const CaseResult threads = runner.run(parse_id(id), {});
    RunOptions options;
    options.launcher = Launcher::processes;
    const CaseResult processes = runner.run(parse_id(id), options);
    EXPECT_EQ(name(threads.outcome), name(processes.outcome)) << id;
    EXPECT_EQ(threads.signature, processes.signature) << id;
    // Two ranks add in either order to the same sum, so equal means equal.
    EXPECT_EQ(threads.gradients, processes.gradients) << id;
    EXPECT_EQ(threads.loss, processes.loss) << id;
  }
}

}  // namespace
}  // namespace regather::train
