#include <gtest/gtest.h>

#include "base/error.h"
#include "repro/check/file.h"
#include "repro/check/options.h"

namespace regather::check {
namespace {

Kind kind(const std::string& text) { return parse_file("a name that says nothing", text).kind; }

TEST(File, IsToldByItsContent) {
  EXPECT_EQ(kind(R"({"zero_optimization":{"stage":2}})"), Kind::deepspeed);
  EXPECT_EQ(kind("zero_optimization: {stage: 2}\n"), Kind::deepspeed);
  EXPECT_EQ(kind(R"({"train_batch_size":8,"fp16":{"enabled":true}})"), Kind::deepspeed);
  EXPECT_EQ(kind("distributed_type: FSDP\nmixed_precision: bf16\n"), Kind::accelerate);
  EXPECT_EQ(kind("learning_rate: 1e-5\noutput_dir: x\n"), Kind::training);
  EXPECT_EQ(kind(R"({"output_dir":"x","deepspeed":{"zero_optimization":{"stage":3}}})"), Kind::training);
  EXPECT_EQ(kind(R"({"fsdp_version":2,"fsdp_transformer_layer_cls_to_wrap":["X"]})"), Kind::fsdp);
  EXPECT_EQ(kind(R"({"version":2,"activation_checkpointing":true,"auto_wrap_policy":"x"})"), Kind::fsdp);
  EXPECT_EQ(kind(R"({"peft_type":"LORA","r":8})"), Kind::adapter);
  EXPECT_EQ(kind(R"({"model_type":"qwen2","hidden_size":32,"architectures":["A"]})"), Kind::model);
  EXPECT_EQ(kind("accelerate launch train.py\n"), Kind::launch);
  EXPECT_EQ(kind("# made by pip\ntrl==1.9.0\ntorch==2.11.0+cu128\n-e git+x\n"), Kind::packages);
}

TEST(File, PackagesAreNamedAsPythonDoes) {
  const File file =
      parse_file("a", "liger-kernel==0.8.5\nTRL[peft]==1.9.0 ; python_version>'3'\ntorch==2.11.0+cu128\n");
  EXPECT_EQ(file.root, Json::parse(R"({"liger_kernel":"0.8.5","trl":"1.9.0","torch":"2.11.0+cu128"})"));
}

TEST(File, WhatIsNoneSaysWhatWasExpected) {
  for (const char* text : {"{\"foo\":1}", "foo: 1\n", "just words\n", "[1, 2]", "- a\n- b\n", "{\"a\":"}) {
    try {
      parse_file("x.json", text);
      ADD_FAILURE() << text;
    } catch (const UsageError& e) {
      EXPECT_NE(std::string(e.what()).find("'x.json'"), std::string::npos) << e.what();
    }
  }
}

TEST(Options, DefaultsHaveTheirSource) {
  const auto on = default_of({"DPOConfig", "TrainingArguments"}, "gradient_checkpointing");
  ASSERT_TRUE(on);
  EXPECT_EQ(on->value, true);
  EXPECT_EQ(on->source, "DPOConfig's default (trl 1.6.0 and 1.16.0, trl/trainer/dpo_config.py)");
  const auto steps = default_of({"DPOConfig", "TrainingArguments"}, "gradient_accumulation_steps");
  ASSERT_TRUE(steps);
  EXPECT_EQ(steps->value, 1);
  EXPECT_NE(steps->source.find("transformers 5.24.0"), std::string::npos);
  EXPECT_FALSE(default_of({"DPOConfig"}, "no_such_option"));
}

TEST(Options, Misspellings) {
  EXPECT_EQ(looks_like(training_names(), "gradient_acumulation_steps"), "gradient_accumulation_steps");
  EXPECT_EQ(looks_like(training_names(), "use_liger_kernal"), "use_liger_kernel");
  EXPECT_EQ(looks_like(training_names(), "laerning_rate"), "learning_rate") << "neighbours that changed places";
  EXPECT_EQ(looks_like(training_names(), "my_own_option"), std::nullopt);
  EXPECT_EQ(looks_like(training_names(), "bf"), std::nullopt) << "too short to tell";
}

}  // namespace
}  // namespace regather::check
