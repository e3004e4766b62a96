// The mechanisms at the level of whole cases. The card against the real packages is in tests/tables.
#include <gtest/gtest.h>

#include "base/error.h"
#include "train/run_case.h"

namespace regather::train {
namespace {

CaseResult run(const std::string& id, const RunOptions& options = {}) {
  static Runner runner;
  return runner.run(parse_id(id), options);
}

void expect(const std::string& id, Outcome outcome, Phase phase, const std::string& mechanism,
            const std::string& text = "") {
  const CaseResult result = run(id);
  ASSERT_TRUE(result.signature) << id << " is " << name(result.outcome);
  EXPECT_EQ(result.outcome, outcome) << id << ": " << result.signature->text;
  EXPECT_EQ(result.signature->phase, phase) << id << ": " << result.signature->text;
  EXPECT_EQ(result.signature->mechanism, mechanism) << id << ": " << result.signature->text;
  EXPECT_NE(result.signature->text.find(text), std::string::npos) << id << ": " << result.signature->text;
}

TEST(Case, PassesWithItsFixes) {
  for (const char* id : {"ddp/sft/fix=redirect", "zero3/sft/fix=gather+recompute_hold+redirect",
                         "zero3/sft/checkpoint=nonreentrant/frozen=norms/fix=gather+recompute_hold+redirect",
                         "zero3/sft/kernel=chunked/checkpoint=reentrant/fix=gather+recompute_hold+redirect",
                         "zero3/sft/kernel=eager/call=engine/fix=none", "zero3/sft/head=tied/fix=redirect",
                         "zero3/sft/head_bias=yes/fix=gather+redirect", "zero3/sft/world=4/fix=gather+redirect",
                         "zero3/sft/checkpoint=nonreentrant/checkpoint_at=call/fix=gather+redirect"}) {
    const CaseResult result = run(id);
    EXPECT_EQ(result.outcome, Outcome::pass) << id << ": " << (result.signature ? result.signature->text : "");
    EXPECT_GT(result.gradients->compared, 0) << id;
    EXPECT_LT(result.gradients->relative_l2, 2e-6) << id << ": the real packages stay under 2e-6";
  }
}

TEST(Case, FailsByItsMechanism) {
  expect("ddp/sft/fix=none", Outcome::wrong_gradient, Phase::gradients, "reducer_unarmed");
  expect("zero3/sft/fix=none", Outcome::error, Phase::forward, "head_read_partitioned",
         "size mismatch, got input (16), mat (16x32), vec (0)");
  expect("zero3/sft/kernel=chunked/fix=none", Outcome::error, Phase::forward, "head_read_partitioned",
         "size mismatch, got input (8), mat (8x32), vec (0)");
  expect("zero3/sft/fix=gather", Outcome::error, Phase::backward, "head_grad_on_partitioned",
         "The size of tensor a (0) must match the size of tensor b (32) at non-singleton dimension 1");
  expect("zero3/sft/kernel=chunked/fix=gather", Outcome::error, Phase::backward, "head_grad_on_partitioned",
         "The size of tensor a (0) must match the size of tensor b (32) at non-singleton dimension 1");
  expect("zero3/sft/checkpoint=nonreentrant/frozen=norms/fix=gather+redirect", Outcome::error, Phase::backward,
         "recompute_freed_frozen", "tensor at position 4:\nsaved metadata: {'shape': torch.Size([32])");
  expect("ddp/sft/checkpoint=reentrant/frozen=lora/input_grad=no/fix=redirect", Outcome::error, Phase::backward,
         "no_grad_input", "element 0 of tensors does not require grad and does not have a grad_fn");
  expect("zero3/sft/checkpoint=reentrant/frozen=lora/input_grad=no/fix=gather+redirect", Outcome::error,
         Phase::backward, "no_grad_input");
}

TEST(Case, TheOtherLossesPassOnEveryKernelAndReference) {
  for (const char* id : {"ddp/grpo/kernel=eager/call=engine/fix=none",
                         "ddp/dpo/kernel=eager/call=engine/fix=none",
                         "ddp/kto/kernel=eager/call=engine/fix=none",
                         "zero3/grpo/kernel=eager/call=engine/fix=none",
                         "zero3/dpo/kernel=eager/call=engine/fix=none",
                         "zero3/kto/kernel=eager/call=engine/fix=none",
                         "zero3/dpo/kernel=eager/fix=redirect",
                         "ddp/dpo/frozen=lora/reference=shared/fix=redirect",
                         "ddp/kto/frozen=lora/reference=shared/fix=redirect",
                         "zero3/dpo/frozen=lora/reference=shared/fix=gather+redirect",
                         "zero3/kto/checkpoint=reentrant/frozen=lora/reference=shared/fix=gather+kl_backbone+redirect",
                         "zero3/kto/kernel=eager/call=engine/frozen=lora/reference=shared/fix=none",
                         "zero3/grpo/head_bias=yes/fix=gather+redirect",
                         "zero3/dpo/head_bias=yes/fix=gather+redirect",
                         "zero3/kto/head_bias=yes/fix=gather+kl_backbone+redirect",
                         "zero3/dpo/head=tied/fix=gather+redirect",
                         "zero3/kto/head=tied/fix=gather+kl_backbone+redirect",
                         "zero3/kto/world=4/fix=gather+kl_backbone+redirect",
                         "zero3/dpo/world=1/fix=gather+redirect",
                         "zero3/dpo/persistence=huge/fix=gather+redirect",
                         "zero3/kto/persistence=upstream/fix=gather+kl_backbone+redirect"}) {
    const CaseResult result = run(id);
    EXPECT_EQ(result.outcome, Outcome::pass) << id << ": " << (result.signature ? result.signature->text : "");
    EXPECT_LT(result.gradients->relative_l2, 2e-6) << id;
  }
}

TEST(Case, TheOtherLossesFailByTheirMechanisms) {
  const std::string empty =
      "The size of tensor a (0) must match the size of tensor b (32) at non-singleton dimension 1";
  expect("zero3/dpo/fix=none", Outcome::error, Phase::forward, "head_read_partitioned",
         "size mismatch, got input (22), mat (22x32), vec (0)");
  expect("zero3/kto/fix=none", Outcome::error, Phase::forward, "head_read_partitioned",
         "size mismatch, got input (11), mat (11x32), vec (0)");
  expect("zero3/dpo/fix=redirect", Outcome::error, Phase::forward, "head_read_partitioned",
         "size mismatch, got input (22), mat (22x32), vec (0)");
  expect("zero3/grpo/fix=gather", Outcome::error, Phase::backward, "head_grad_on_partitioned", empty);
  expect("zero3/kto/fix=gather+redirect", Outcome::error, Phase::backward, "head_double_touch", empty);
  expect("zero3/dpo/checkpoint=reentrant/frozen=lora/input_grad=no/fix=gather+redirect", Outcome::wrong_gradient,
         Phase::gradients, "no_grad_input");
  expect("ddp/kto/fix=none", Outcome::wrong_gradient, Phase::gradients, "reducer_unarmed");
}

// The KL term's second call of the root does no harm where no dense gradient needs the head in backward.
TEST(Case, TheHeadTouchedTwiceIsFineWhenItIsFrozenOrTied) {
  for (const char* id : {"zero3/kto/frozen=head/fix=gather+redirect", "zero3/kto/frozen=lora/fix=gather+redirect",
                         "zero3/kto/head=tied/fix=gather+redirect"}) {
    const CaseResult result = run(id);
    EXPECT_EQ(result.outcome, Outcome::pass) << id << ": " << (result.signature ? result.signature->text : "");
  }
}

TEST(Case, WhatTheFirstStepLeavesBehindShowsInTheSecond) {
  const CaseResult result = run("ddp/sft/checkpoint=reentrant/frozen=embedding/input_grad=no/fix=redirect");
  EXPECT_EQ(result.outcome, Outcome::wrong_gradient);
  EXPECT_EQ(result.signature->step, 0);
  bool later = false;
  for (const Departure& also : result.also) {
    later = later || (also.signature.step == 1 && also.signature.phase == Phase::forward &&
                      also.signature.text.find("Expected to have finished reduction") != std::string::npos);
  }
  EXPECT_TRUE(later);
}

TEST(Case, UnsupportedSaysWhy) {
  const CaseResult result = run("ddp/dpo/kernel=chunked/fix=redirect");
  EXPECT_EQ(result.outcome, Outcome::unsupported);
  EXPECT_FALSE(result.reason.empty());
}

TEST(Case, RunsOnAHuggingFaceFolder) {
  RunOptions options;
  options.model = REGATHER_SOURCE_DIR "/tests/data/qwen2-tiny";
  EXPECT_EQ(run("zero3/sft/fix=gather+redirect", options).outcome, Outcome::pass);
  EXPECT_EQ(run("zero3/sft/head=tied/fix=gather+redirect", options).outcome, Outcome::pass);
  options.model = REGATHER_SOURCE_DIR "/tests/data/no-such-folder";
  EXPECT_THROW(run("zero3/sft/fix=gather+redirect", options), UsageError);
}

}  // namespace
}  // namespace regather::train
