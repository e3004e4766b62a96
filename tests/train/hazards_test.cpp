// FSDP2's hazards as cases, each beside the fix that repairs it.
#include "tests/train/cases.h"

namespace regather::train {
namespace {

TEST(HeadUnit, IsMetShardedByAFusedLossUntilItIsUnsharded) {
  for (const std::string loss : {"sft", "grpo", "dpo", "kto"}) {
    expect("fsdp2/" + loss + "/unit=head/fix=redirect", Outcome::error, Phase::forward, "mixed_dtensor",
           "got mixed torch.Tensor and DTensor");
    expect_pass("fsdp2/" + loss + "/unit=head/fix=redirect+unshard_head");
  }
  expect_pass("fsdp2/sft/kernel=eager/call=engine/unit=head/fix=none");
  expect_pass("fsdp2/sft/head_bias=yes/accumulate=2/unit=head/fix=redirect+unshard_head");
  expect_pass("fsdp2/sft/dtype=bf16/unit=head/fix=redirect+unshard_head");
}

TEST(HeadUnit, FullTensorIsSilentlyWrongForTheHeadAlone) {
  const std::string id = "fsdp2/sft/unit=head_full_tensor/fix=redirect";
  expect(id, Outcome::wrong_gradient, Phase::gradients, "unit_bypassed");
  EXPECT_EQ(run(id).gradients->worst, "lm_head.weight");
  expect_pass("fsdp2/sft/frozen=head/unit=head_full_tensor/fix=redirect");
}

TEST(ParentCheckpoint, ASecondPassMeetsShardedParametersInItsRecomputeBeforeTorch211) {
  const std::string two = "fsdp2/dpo/checkpoint=nonreentrant/checkpoint_at=parent/passes=2";
  expect_pass(two + "/fix=redirect");
  expect(two + "/fully_shard=2.10/fix=redirect", Outcome::error, Phase::backward, "mixed_dtensor",
         "got mixed torch.Tensor and DTensor");
  expect_pass(two + "/fully_shard=2.10/fix=recompute_unshard+redirect");
  expect_pass("fsdp2/dpo/checkpoint=nonreentrant/checkpoint_at=parent/fully_shard=2.10/fix=redirect");
}

// Silent in torch 2.11: the earlier pass's recompute gets no hooks, so nobody reduces what goes through it.
TEST(ReentrantPasses, TheEarlierPassIsNotReducedUntilTheUnitIsArmedAgain) {
  const std::string two = "fsdp2/dpo/checkpoint=reentrant/checkpoint_at=call/passes=2";
  expect(two + "/fix=redirect", Outcome::wrong_gradient, Phase::gradients, "recompute_unhooked");
  expect_pass(two + "/fix=recompute_rearm+redirect");
}

TEST(RecomputeCast, ARecomputeThatSkipsTheInputCastMeetsTwoDtypes) {
  const std::string call = "fsdp2/sft/checkpoint=nonreentrant/dtype=bf16/checkpoint_at=call/layer_input=fp32";
  expect(call + "/fix=redirect", Outcome::error, Phase::backward, "recompute_dtype", "same dtype");
  expect_pass(call + "/fix=recompute_cast+redirect");
  expect_pass("fsdp2/sft/checkpoint=nonreentrant/dtype=bf16/layer_input=fp32/fix=redirect");
  expect_pass("fsdp2/sft/checkpoint=reentrant/dtype=bf16/checkpoint_at=call/layer_input=fp32/fix=redirect");
}

TEST(LayerInput, Float32MeetsBFloat16WhereNobodyCasts) {
  for (const char* id : {"ddp/sft/dtype=bf16/layer_input=fp32/fix=redirect",
                         "zero3/sft/dtype=bf16/layer_input=fp32/fix=gather+recompute_hold+redirect"}) {
    expect(id, Outcome::error, Phase::forward, "mixed_dtype", "must have the same dtype");
  }
  expect_pass("fsdp2/sft/dtype=bf16/layer_input=fp32/fix=redirect");
}

TEST(ForwardMethod, AMethodOfAnotherNameRunsWithoutTheRootsHooks) {
  for (const std::string loss : {"sft", "grpo", "dpo", "kto"}) {
    expect("fsdp2/" + loss + "/call=method/fix=none", Outcome::error, Phase::forward, "mixed_dtensor");
    expect_pass("fsdp2/" + loss + "/call=method/fix=forward_method");
  }
}

TEST(Passes, TwoForwardsBeforeOneBackward) {
  for (const char* id :
       {"ddp/dpo/passes=2/fix=redirect", "zero1/sft/passes=2/fix=redirect", "zero2/sft/passes=2/fix=redirect",
        "zero3/dpo/checkpoint=nonreentrant/passes=2/fix=gather+recompute_hold+redirect",
        "fsdp2/sft/passes=2/fix=redirect", "ddp/sft/kernel=eager/call=engine/passes=2/fix=none"}) {
    expect_pass(id);
  }
  // A reentrant checkpoint's backward is one of its own, so each pass brings every gradient once.
  expect("zero2/sft/checkpoint=reentrant/passes=2/fix=redirect", Outcome::error, Phase::backward, "reduced_twice");
  expect("ddp/sft/checkpoint=reentrant/passes=2/fix=redirect", Outcome::error, Phase::backward, "reduced_twice",
         "Expected to mark a variable ready only once");
  // With adapters alone the last pass brings every gradient before the first pass brings any: the reducer has finished,
  // and what comes then stays this rank's own, without an error.
  expect("ddp/sft/checkpoint=reentrant/frozen=lora/passes=2/fix=redirect", Outcome::wrong_gradient, Phase::gradients,
         "reduced_twice");
}

}  // namespace
}  // namespace regather::train
