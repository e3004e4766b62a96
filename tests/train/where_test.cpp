// Where a failure showed: module, parameter, rank's last collective, as the result line tells it.
#include "train/where.h"

#include "tests/train/cases.h"

namespace regather::train {
namespace {

Where where_of(const char* id, bool locate = false) {
  RunOptions options;
  options.locate = locate;
  const CaseResult result = run(id, options);
  EXPECT_TRUE(result.signature) << id << " is " << name(result.outcome);
  return result.signature ? result.signature->where : Where{};
}

TEST(Where, OfAnErrorInForwardIsTheInnermostModuleAndWhatItRead) {
  const Where head = where_of("zero3/sft/fix=none");
  EXPECT_EQ(head.module, "lm_head") << "outside all modules: what the loss has read";
  EXPECT_EQ(head.parameter, "lm_head.weight");
  EXPECT_TRUE(head.collective.starts_with("all_gather #")) << head.collective;

  const Where embedding = where_of("fsdp2/sft/fix=none");
  EXPECT_EQ(embedding.module, "model.embed_tokens");
  EXPECT_EQ(embedding.parameter, "model.embed_tokens.weight");
}

TEST(Where, OfACheckpointErrorIsWhereTheForwardSavedTheTensor) {
  const Where freed = where_of("zero3/sft/checkpoint=nonreentrant/frozen=norms/fix=gather+redirect");
  EXPECT_EQ(freed.module, "model.layers.1.input_layernorm");
  EXPECT_EQ(freed.parameter, "model.layers.1.input_layernorm.weight");
}

TEST(Where, OfAnErrorInBackwardIsTheModuleThatMadeTheNode) {
  const char* id = "zero3/sft/fix=gather";
  EXPECT_EQ(where_of(id).module, "") << "not noted unless it is asked for";
  const Where head = where_of(id, /*locate=*/true);
  EXPECT_EQ(head.module, "lm_head");
  EXPECT_EQ(head.parameter, "lm_head.weight");
  // Nothing else changes, and the next case is not located.
  EXPECT_EQ(where_of(id).module, "");
  RunOptions locate;
  locate.locate = true;
  EXPECT_EQ(run("zero3/sft/checkpoint=nonreentrant/fix=gather+recompute_hold+redirect", locate).outcome, Outcome::pass);
}

TEST(Where, OfWrongGradientsIsTheParameterThatBackwardReachesFirst) {
  const Where all = where_of("ddp/sft/fix=none");
  EXPECT_EQ(all.parameter, "lm_head.weight");
  EXPECT_EQ(all.module, "lm_head");
  EXPECT_EQ(where_of("ddp/sft/frozen=head/fix=none").parameter, "model.norm.weight");
  EXPECT_EQ(where_of("ddp/sft/frozen=lora/fix=none").parameter, "model.layers.1.self_attn.o_proj.lora_B.weight");
}

TEST(Where, BackwardOrder) {
  EXPECT_EQ(nearest_to_loss({}), "");
  EXPECT_EQ(nearest_to_loss({"model.embed_tokens.weight", "model.layers.0.mlp.down_proj.weight",
                             "model.layers.1.input_layernorm.weight"}),
            "model.layers.1.input_layernorm.weight");
  EXPECT_EQ(nearest_to_loss({"model.layers.2.self_attn.q_proj.weight", "model.layers.10.input_layernorm.weight"}),
            "model.layers.10.input_layernorm.weight");
  EXPECT_EQ(
      nearest_to_loss({"model.layers.0.post_attention_layernorm.weight", "model.layers.0.self_attn.o_proj.weight"}),
      "model.layers.0.post_attention_layernorm.weight");
  EXPECT_EQ(nearest_to_loss({"lm_head.weight", "model.norm.weight"}), "lm_head.weight");
  EXPECT_EQ(owner_of("model.norm.weight"), "model.norm");
  EXPECT_EQ(owner_of("weight"), "");
}

}  // namespace
}  // namespace regather::train
