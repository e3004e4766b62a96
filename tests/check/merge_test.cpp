// Precedence and defaults, one at a time.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "repro/check/setting.h"

namespace regather::check {
namespace {

Setting merged(const std::vector<std::string>& texts) {
  std::vector<File> files;
  for (const std::string& text : texts) files.push_back(parse_file(fmt::format("f{}", files.size()), text));
  return merge(Sources(std::move(files)));
}

const std::string kSft = "packing: true\noutput_dir: x\n";
const std::string kZero3 = R"({"zero_optimization":{"stage":3}})";
std::string accelerate(const std::string& type, const std::string& more = {}) {
  return "compute_environment: LOCAL_MACHINE\ndistributed_type: " + type + "\nnum_processes: 4\n" + more;
}

bool found(const Setting& s, FindingKind kind, const std::string& part) {
  return std::ranges::any_of(
      s.findings, [&](const Finding& f) { return f.kind == kind && f.text.find(part) != std::string::npos; });
}
bool no_case(const Setting& s, const std::string& part) {
  return std::ranges::any_of(s.no_case, [&](const std::string& why) { return why.find(part) != std::string::npos; });
}

TEST(Merge, CommandLineOverrulesTheFile) {
  EXPECT_EQ(merged({kSft + "bf16: true\n", "torchrun sft.py --bf16 False --fp16"}).axes.dtype, DType::fp16);
  EXPECT_EQ(merged({kSft + "gradient_accumulation_steps: 4\n", "torchrun sft.py --gradient_accumulation_steps 1"})
                .axes.accumulate,
            Accumulate::one);
  EXPECT_EQ(merged({kSft, accelerate("MULTI_GPU"),
                    "accelerate launch --num_processes 2 --use_deepspeed --zero_stage 1 sft.py"})
                .axes.backend,
            Backend::zero1);
}

TEST(Merge, Checkpoint) {
  EXPECT_EQ(merged({kSft}).axes.checkpoint, Checkpoint::nonreentrant) << "TRL's default";
  EXPECT_EQ(merged({"output_dir: x\nlearning_rate: 1.0\n"}).axes.checkpoint, Checkpoint::none)
      << "transformers' default";
  EXPECT_EQ(merged({kSft + "gradient_checkpointing_kwargs: {use_reentrant: true}\n"}).axes.checkpoint,
            Checkpoint::reentrant);
  EXPECT_EQ(merged({kSft + "gradient_checkpointing_kwargs: {preserve_rng_state: false}\n"}).axes.checkpoint,
            Checkpoint::reentrant)
      << "torch's default where options are given";
  EXPECT_EQ(merged({kSft + "gradient_checkpointing_kwargs: {every_n_layers: 2}\n"}).axes.checkpoint,
            Checkpoint::nonreentrant);
  EXPECT_EQ(merged({kSft + "activation_checkpointing: false\n"}).axes.checkpoint, Checkpoint::none);
  EXPECT_EQ(merged({kSft, "transformers==5.20.0\ntorch==2.11.0\n"}).axes.checkpoint_at, CheckpointAt::call);
  const Setting own =
      merged({kSft + "gradient_checkpointing: false\n",
              accelerate("FSDP", "fsdp_config: {fsdp_version: 2, fsdp_activation_checkpointing: true}\n")});
  EXPECT_EQ(own.axes.checkpoint, Checkpoint::nonreentrant);
  EXPECT_EQ(own.axes.checkpoint_at, CheckpointAt::call);
  EXPECT_FALSE(found(own, FindingKind::refused, "activation checkpointing"));
}

TEST(Merge, Precision) {
  EXPECT_EQ(merged({kSft}).axes.dtype, DType::bf16) << "TRL's default";
  EXPECT_EQ(merged({kSft + "bf16: false\n"}).axes.dtype, DType::fp32);
  EXPECT_EQ(merged({kSft + "bf16: false\n", accelerate("MULTI_GPU", "mixed_precision: bf16\n")}).axes.dtype,
            DType::bf16)
      << "accelerate's counts where the trainer has neither";
  EXPECT_EQ(merged({accelerate("MULTI_GPU", "mixed_precision: no\n")}).axes.dtype, DType::fp32) << "a YAML false";
  EXPECT_EQ(merged({R"({"zero_optimization":{"stage":2},"bf16":{"enabled":true}})"}).axes.dtype, DType::bf16);
  EXPECT_TRUE(no_case(merged({accelerate("MULTI_GPU", "mixed_precision: fp8\n")}), "fp8"));
  EXPECT_THROW(merged({accelerate("MULTI_GPU", "mixed_precision: bf61\n")}), UsageError);
}

TEST(Merge, Sharding) {
  EXPECT_EQ(merged({accelerate("DEEPSPEED")}).axes.backend, Backend::zero2) << "the plugin's default stage";
  EXPECT_EQ(merged({accelerate("FSDP")}).axes.backend, Backend::fsdp1) << "the plugin's default version";
  EXPECT_EQ(merged({kSft + "fsdp: true\n"}).axes.backend, Backend::fsdp2) << "transformers' default version";
  EXPECT_EQ(merged({accelerate("\"NO\"")}).axes.backend, Backend::single);
  EXPECT_EQ(merged({accelerate("MULTI_GPU")}).axes.world, 4);
  EXPECT_EQ(merged({kSft, "torchrun --nnodes 2 --nproc_per_node 8 sft.py"}).axes.world, 8) << "sixteen stand as eight";
  EXPECT_EQ(merged({kSft, "torchrun --nproc_per_node gpu sft.py"}).axes.world, 2) << "not said";
  EXPECT_EQ(merged({kSft, "deepspeed --num_gpus 4 sft.py --deepspeed z.json", kZero3}).axes.backend, Backend::zero3);
  EXPECT_EQ(merged({kSft, "deepspeed --num_gpus 4 sft.py"}).axes.backend, Backend::ddp)
      << "the launcher alone shards nothing";
  EXPECT_TRUE(no_case(merged({R"({"train_micro_batch_size_per_gpu":1,"zero_optimization":{}})"}), "stage 0"));
  EXPECT_TRUE(no_case(merged({kSft + "deepspeed: z.json\n"}), "pass that file too"));
  EXPECT_TRUE(no_case(merged({accelerate("XLA")}), "neither"));
  EXPECT_THROW(merged({R"({"zero_optimization":{"stage":4}})"}), UsageError);
  EXPECT_EQ(merged({kSft + "fsdp: true\n", "torch==2.10.0\n"}).axes.fully_shard, FullyShard::v2_10);
}

TEST(Merge, Persistence) {
  const auto of = [](const std::string& threshold) {
    return merged({R"({"zero_optimization":{"stage":3,"stage3_param_persistence_threshold":)" + threshold + "}}"})
        .axes.persistence;
  };
  EXPECT_EQ(merged({kZero3}).axes.persistence, Persistence::upstream);
  EXPECT_EQ(of("\"auto\""), Persistence::upstream);
  EXPECT_EQ(of("0"), Persistence::zero);
  EXPECT_EQ(of("1e10"), Persistence::huge);
  EXPECT_EQ(of("\"1e10\""), Persistence::huge);
  EXPECT_THROW(of("\"lots\""), UsageError);
}

TEST(Merge, TrainerAndLoss) {
  EXPECT_EQ(merged({kSft}).trainer, "sft");
  EXPECT_EQ(merged({"output_dir: x\nloss_type: ipo\n"}).trainer, "dpo");
  EXPECT_EQ(merged({"output_dir: x\nnum_generations: 4\n"}).trainer, "grpo");
  EXPECT_EQ(merged({"output_dir: x\nbeta: 0.1\n", "torchrun run_kto.py"}).trainer, "kto");
  EXPECT_EQ(merged({"output_dir: x\nlearning_rate: 1.0\n"}).trainer, "transformers");
  EXPECT_TRUE(no_case(merged({"output_dir: x\nbeta: 0.1\n"}), "more than one trainer"));
  EXPECT_EQ(merged({kSft + "loss_type: chunked_nll\n"}).fused, "chunked");
  EXPECT_TRUE(
      found(merged({kSft + "loss_type: chunked_nll\nuse_liger_kernel: true\n"}), FindingKind::refused, "chunked_nll"));
}

TEST(Merge, AdaptersAndHead) {
  const std::string adapter = R"({"peft_type":"LORA","r":8,"target_modules":["q_proj","k_proj","v_proj","o_proj"]})";
  EXPECT_EQ(merged({kSft, adapter}).axes.frozen, Frozen::lora);
  EXPECT_EQ(merged({"output_dir: x\nloss_type: ipo\n", adapter}).axes.reference, Reference::shared);
  EXPECT_EQ(merged({kSft + "use_peft: true\nload_in_4bit: true\n"}).axes.frozen, Frozen::quantised);
  EXPECT_TRUE(no_case(merged({kSft, R"({"peft_type":"PROMPT_TUNING","r":8})"}), "PROMPT_TUNING"));
  EXPECT_TRUE(no_case(merged({kSft + "use_peft: true\nlora_modules_to_save: [lm_head]\n"}), "trainable head"));
  EXPECT_TRUE(found(merged({kSft + "lora_r: 8\n"}), FindingKind::ignored, "use_peft"));
  const auto head = [](const std::string& json) { return merged({kSft, json}).axes.head; };
  EXPECT_EQ(head(R"({"architectures":["A"],"tie_word_embeddings":true})"), Head::tied);
  EXPECT_EQ(head(R"({"architectures":["A"],"model_type":"llama"})"), Head::untied);
  EXPECT_EQ(head(R"({"architectures":["A"],"model_type":"gemma3"})"), Head::tied) << "the class's default";
  EXPECT_EQ(head(R"({"architectures":["A"],"text_config":{"tie_word_embeddings":true}})"), Head::tied);
}

TEST(Merge, EveryContradictionIsNamed) {
  using enum FindingKind;
  const std::string trained = "per_device_train_batch_size: 2\nmax_grad_norm: 1.0\nlearning_rate: 1.0e-5\n" + kSft;
  const auto zero = [](const std::string& more) { return R"({"zero_optimization":{"stage":2},)" + more + "}"; };
  EXPECT_TRUE(
      found(merged({trained, zero(R"("train_micro_batch_size_per_gpu":4)")}), contradiction, "train_micro_batch"));
  EXPECT_TRUE(found(merged({trained, zero(R"("gradient_clipping":0.5)")}), contradiction, "gradient_clipping"));
  EXPECT_TRUE(found(merged({trained, zero(R"("optimizer":{"type":"AdamW","params":{"lr":2e-5}})")}), contradiction,
                    "params.lr"));
  EXPECT_TRUE(found(merged({trained, zero(R"("fp16":{"enabled":true})")}), contradiction, "fp16.enabled"));
  EXPECT_FALSE(found(merged({trained, zero(R"("gradient_clipping":1,"optimizer":{"params":{"lr":"auto"}})")}),
                     contradiction, ""));
  EXPECT_TRUE(found(
      merged({zero(R"("train_batch_size":10,"train_micro_batch_size_per_gpu":4,"gradient_accumulation_steps":1)")}),
      contradiction, "train_batch_size"));
  EXPECT_TRUE(found(
      merged({accelerate("DEEPSPEED", "deepspeed_config: {zero_stage: 2, deepspeed_config_file: z.json}\n"), kZero3}),
      contradiction, "ZeRO stage 3"));
  EXPECT_TRUE(found(
      merged({accelerate("DEEPSPEED", "deepspeed_config: {deepspeed_config_file: z.json}\nmixed_precision: bf16\n"),
              kZero3}),
      refused, "deepspeed_config_file"));
  EXPECT_TRUE(
      found(merged({accelerate("DEEPSPEED", "deepspeed_config: {zero_stage: 2, gradient_accumulation_steps: 2}\n"),
                    trained + "gradient_accumulation_steps: 8\n"}),
            contradiction, "gradient_accumulation_steps"));
  EXPECT_TRUE(
      found(merged({kZero3, R"({"zero_optimization":{"stage":2}})"}), contradiction, "more than one DeepSpeed"));
  EXPECT_TRUE(
      found(merged({R"({"zero_optimization":{"stage":2,"stage3_max_live_parameters":1}})"}), ignored, "below ZeRO"));
  EXPECT_TRUE(found(merged({R"({"zero_optimization":{"stage":2,"no_such_option_here":1}})"}), refused,
                    "DeepSpeed knows no such key"));
  EXPECT_TRUE(found(merged({kSft, "accelerate launch --num_procesess 2 sft.py"}), refused, "no flag"));
}

}  // namespace
}  // namespace regather::check
