#include <gtest/gtest.h>

#include "base/error.h"
#include "repro/check/launch.h"
#include "repro/check/shell.h"

namespace regather::check {
namespace {

Launch launch(const std::string& script) {
  const auto words = find_launch("run.sh", script);
  if (!words) throw UsageError("no launch command");
  return parse_launch("run.sh", *words);
}

TEST(Launch, IsFoundInAScript) {
  const Launch l = launch(
      "#!/bin/bash\nset -e\nGPUS=4 # here\nexport DS=\"zero 3.json\"\nsource env.sh; cd /x\n"
      "CUDA_VISIBLE_DEVICES=0,1 nohup accelerate launch --num_processes ${GPUS} --use_deepspeed \\\n"
      "  --deepspeed_config_file \"$DS\" train.py --bf16 --loss_type 'sigmoid' --lr=$LR > log 2>&1\n");
  EXPECT_EQ(l.launcher, "accelerate");
  EXPECT_EQ(l.flags, Json::parse(R"({"num_processes":4,"use_deepspeed":true,"deepspeed_config_file":"zero 3.json"})"));
  EXPECT_EQ(l.script, "train.py");
  EXPECT_EQ(l.options["bf16"], true);
  EXPECT_EQ(l.options["loss_type"], "sigmoid");
  EXPECT_TRUE(is_unset(l.options["lr"]));
}

TEST(Launch, OfEveryLauncher) {
  EXPECT_EQ(launch("torchrun --nnodes=2 --nproc-per-node 8 a.py").flags,
            Json::parse(R"({"nnodes":2,"nproc_per_node":8})"));
  EXPECT_EQ(launch("python -m torch.distributed.run --standalone a.py").launcher, "torchrun");
  EXPECT_EQ(launch("/opt/env/bin/python3 -m accelerate.commands.launch --multi_gpu a.py").launcher, "accelerate");
  EXPECT_EQ(launch("deepspeed --num_gpus 8 --module pkg.train --deepspeed d.json").script, "pkg.train");
  EXPECT_EQ(launch("srun -N 2 --gres=gpu:8 torchrun --nnodes 2 a.py").flags["nnodes"], 2);
  const Launch trl = launch("trl dpo --accelerate_config zero3 --num_processes 2 --beta 0.1 --config a.yaml");
  EXPECT_EQ(trl.script, "dpo");
  EXPECT_EQ(trl.flags, Json::parse(R"({"accelerate_config":"zero3","num_processes":2})"));
  EXPECT_EQ(trl.files, std::vector<std::string>{"a.yaml"});
}

TEST(Launch, OptionsAreReadAsHfArgumentParserReadsThem) {
  const Launch l = launch(
      "torchrun a.py --no_remove_unused_columns --lora_target_modules q_proj v_proj --seed -1 "
      "--gradient_checkpointing_kwargs '{\"use_reentrant\": false}' --bf16 False");
  EXPECT_EQ(l.options,
            Json::parse(R"({"remove_unused_columns":false,"lora_target_modules":["q_proj","v_proj"],"seed":-1,
                                       "gradient_checkpointing_kwargs":{"use_reentrant":false},"bf16":false})"));
}

TEST(Launch, WhatIsNone) {
  EXPECT_FALSE(find_launch("a", "python train.py --deepspeed x.json\n"));
  EXPECT_FALSE(find_launch("a", "command: accelerate launch a.py\n"));
  EXPECT_FALSE(find_launch("a", "# accelerate launch a.py\n"));
  EXPECT_THROW(find_launch("a", "torchrun a.py\ntorchrun b.py\n"), UsageError);
  EXPECT_THROW(launch("accelerate launch --num_processes 2\n"), UsageError);
  EXPECT_THROW(launch("torchrun --nnodes"), UsageError);
  EXPECT_EQ(launch("accelerate launch --num_procesess 2 a.py").unknown, std::vector<std::string>{"--num_procesess"});
}

}  // namespace
}  // namespace regather::check
