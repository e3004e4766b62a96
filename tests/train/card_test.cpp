// The mechanisms at the level of whole cases. The card against the real packages is in tests/tables.
#include <fmt/format.h>
#include "base/error.h"
#include "tests/train/cases.h"

namespace regather::train {
namespace {

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

// grpo's loss sums terms of both signs: at world 8 one rank's is as small as 0.003, and its rounding is that of terms
// of size 1.
TEST(Case, ALossThatNearlyCancelsIsHeldToTheRoundingOfItsTerms) {
  EXPECT_EQ(run("ddp/grpo/world=8/fix=redirect").outcome, Outcome::pass);
  EXPECT_EQ(run("zero1/grpo/frozen=head/world=8/fix=redirect").outcome, Outcome::pass);
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

// Stage 3 counts micro-batches in the engine's forward. Around it every backward is a step's first and overwrites what
// the one before has left, whoever divides the loss: the card's frozen head lets such a step end without an error.
TEST(Case, AroundTheEnginesForwardZero3KeepsTheLastMicroBatchAlone) {
  for (const char* accumulate : {"2", "manual2"}) {
    const std::string of = fmt::format("zero3/sft/frozen=head/accumulate={}/", accumulate);
    expect(of + "fix=gather", Outcome::wrong_gradient, Phase::gradients, "accumulation_overwritten");
    EXPECT_EQ(run(of + "fix=gather+redirect").outcome, Outcome::pass) << of;
  }
}

// A module that a recompute runs to its end is released at its end: without early stop that is the module in whose
// backward the recompute runs. Frozen or not makes no difference, nor do persistence and gathering ahead.
TEST(Case, WithoutEarlyStopZero3ReleasesUnderTheBackward) {
  for (const char* id : {"zero3/sft/checkpoint=nonreentrant/early_stop=off/fix=gather+recompute_hold+redirect",
                         "zero3/kto/checkpoint=nonreentrant/frozen=head/persistence=upstream/early_stop=off/"
                         "fix=gather+kl_backbone+recompute_hold+redirect",
                         "zero3/sft/kernel=eager/checkpoint=nonreentrant/call=engine/early_stop=off/fix=none"}) {
    expect(id, Outcome::error, Phase::backward, "recompute_freed_trainable",
           "The size of tensor a (0) must match the size of tensor b (64) at non-singleton dimension 1");
  }
}

TEST(Case, PersistenceDoesNotSaveFrozenParametersButTheFixDoes) {
  for (const char* frozen : {"norms", "lora"}) {
    for (const char* persistence : {"upstream", "huge"}) {
      const std::string of =
          fmt::format("zero3/sft/checkpoint=nonreentrant/frozen={}/persistence={}/", frozen, persistence);
      expect(of + "fix=gather+redirect", Outcome::error, Phase::backward, "recompute_freed_frozen");
      EXPECT_EQ(run(of + "fix=gather+recompute_hold+redirect").outcome, Outcome::pass) << of;
    }
  }
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

TEST(Case, Fsdp2PassesInsideTheRootsForwardAndMeetsShardedParametersOutside) {
  for (const char* id :
       {"fsdp2/sft/fix=redirect", "fsdp2/sft/kernel=eager/call=engine/fix=none", "fsdp2/sft/head=tied/fix=redirect",
        "fsdp2/sft/head_bias=yes/fix=redirect", "fsdp2/sft/world=1/fix=redirect", "fsdp2/sft/world=4/fix=redirect",
        "fsdp2/sft/checkpoint=nonreentrant/checkpoint_at=call/fix=redirect",
        "fsdp2/sft/checkpoint=nonreentrant/early_stop=off/fix=redirect",
        "fsdp2/sft/checkpoint=reentrant/checkpoint_at=call/fix=redirect",
        "fsdp2/sft/kernel=chunked/checkpoint=reentrant/fix=redirect",
        "fsdp2/dpo/frozen=lora/reference=shared/fix=redirect", "fsdp2/grpo/head=tied/fix=redirect",
        "fsdp2/dpo/head_bias=yes/world=4/fix=redirect"}) {
    const CaseResult result = run(id);
    EXPECT_EQ(result.outcome, Outcome::pass) << id << ": " << (result.signature ? result.signature->text : "");
    EXPECT_LT(result.gradients->relative_l2, 2e-6) << id;
  }
  const std::string mixed =
      "aten.embedding.default got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor before "
      "calling distributed operators!";
  expect("fsdp2/sft/fix=none", Outcome::error, Phase::forward, "mixed_dtensor", mixed);
  expect("fsdp2/dpo/fix=gather", Outcome::error, Phase::forward, "mixed_dtensor", mixed);
  expect("fsdp2/sft/checkpoint=reentrant/frozen=lora/input_grad=no/fix=redirect", Outcome::error, Phase::backward,
         "no_grad_input", "element 0 of tensors does not require grad");
  expect("fsdp2/sft/checkpoint=reentrant/frozen=embedding/input_grad=no/fix=redirect", Outcome::wrong_gradient,
         Phase::gradients, "no_grad_input");
}

TEST(Case, ZeroOneAndTwoReduceWhateverTheCallAndMissWhatNeverComes) {
  for (const std::string backend : {"zero1", "zero2"}) {
    for (const char* rest :
         {"/sft/fix=none", "/sft/fix=redirect", "/kto/fix=none", "/sft/head=tied/head_bias=yes/world=4/fix=redirect",
          "/sft/checkpoint=reentrant/frozen=norms/fix=redirect", "/dpo/frozen=lora/reference=shared/fix=redirect",
          "/sft/kernel=chunked/checkpoint=nonreentrant/early_stop=off/fix=none", "/grpo/world=1/fix=redirect"}) {
      const CaseResult result = run(backend + rest);
      EXPECT_EQ(result.outcome, Outcome::pass) << result.signature->text;
      EXPECT_LT(result.gradients->relative_l2, 2e-6) << backend << rest;
    }
    const std::string blind = "/checkpoint=reentrant/input_grad=no";
    expect(backend + "/sft" + blind + "/frozen=lora/fix=redirect", Outcome::error, Phase::backward, "no_grad_input",
           "scalar loss that carries a graph");
    expect(backend + "/dpo" + blind + "/frozen=lora/fix=none", Outcome::error, Phase::backward, "no_grad_input",
           "no gradient arrived at any of the");
    expect(backend + "/sft" + blind + "/frozen=embedding/fix=none", Outcome::wrong_gradient, Phase::gradients,
           "no_grad_input");
  }
}

TEST(Case, AccumulationIsDividedOnTheEnginesOutputsOnZero) {
  for (const char* backend : {"zero1", "zero2"}) {
    const CaseResult direct = run(fmt::format("{}/sft/accumulate=2/fix=none", backend));
    EXPECT_EQ(direct.outcome, Outcome::wrong_gradient);
    EXPECT_EQ(direct.signature->mechanism, "accumulation_scaled");
    EXPECT_NEAR(direct.gradients->relative_l2, 1, 0.2) << "twice as large, then from other parameters";
    EXPECT_GT(direct.gradients->cosine, 0.99);
    EXPECT_EQ(run(fmt::format("{}/sft/accumulate=manual2/fix=none", backend)).outcome, Outcome::pass);
  }
  for (const char* id :
       {"ddp/sft/accumulate=2/fix=redirect", "ddp/kto/accumulate=manual2/fix=redirect",
        "zero1/sft/accumulate=2/fix=redirect", "zero2/kto/accumulate=2/fix=redirect",
        "zero2/dpo/accumulate=manual2/fix=redirect", "zero3/sft/accumulate=2/fix=gather+recompute_hold+redirect",
        "zero3/grpo/checkpoint=nonreentrant/frozen=norms/accumulate=manual2/fix=gather+recompute_hold+redirect",
        "fsdp2/sft/accumulate=2/fix=redirect", "fsdp2/kto/head=tied/accumulate=manual2/fix=redirect",
        "single/sft/world=1/accumulate=2/fix=none"}) {
    const CaseResult result = run(id);
    EXPECT_EQ(result.outcome, Outcome::pass) << id << ": " << (result.signature ? result.signature->text : "");
  }
  expect("ddp/sft/accumulate=2/fix=none", Outcome::wrong_gradient, Phase::gradients, "reducer_unarmed");
}

// The bound must hold the unsharded control, and hide nothing that is wrong by much.
TEST(Case, BFloat16StaysWithinItsBoundAndShowsTheSamePattern) {
  for (const char* id :
       {"single/sft/dtype=bf16/world=1/fix=none", "single/kto/dtype=bf16/world=1/fix=none",
        "ddp/sft/dtype=bf16/fix=redirect", "zero1/dpo/dtype=bf16/fix=redirect",
        "zero2/grpo/dtype=bf16/world=4/fix=redirect",
        "zero3/sft/head=tied/dtype=bf16/fix=gather+recompute_hold+redirect",
        "zero3/sft/checkpoint=nonreentrant/frozen=norms/dtype=bf16/fix=gather+recompute_hold+redirect"}) {
    const CaseResult result = run(id);
    EXPECT_EQ(result.outcome, Outcome::pass) << id << ": " << (result.signature ? result.signature->text : "");
    EXPECT_GT(result.gradients->relative_l2, 1e-3) << id << ": was it computed in bfloat16?";
    EXPECT_LT(result.gradients->share, 0.8) << id;
  }
  expect("ddp/sft/dtype=bf16/fix=none", Outcome::wrong_gradient, Phase::gradients, "reducer_unarmed");
  expect("zero2/sft/dtype=bf16/accumulate=2/fix=none", Outcome::wrong_gradient, Phase::gradients,
         "accumulation_scaled");
  expect("zero3/sft/checkpoint=nonreentrant/frozen=norms/dtype=bf16/fix=gather+redirect", Outcome::error,
         Phase::backward, "recompute_freed_frozen");
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
