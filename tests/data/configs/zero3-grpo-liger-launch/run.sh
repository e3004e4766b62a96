set -euo pipefail
export NCCL_DEBUG=WARN
GPUS=8
DS=ds_z3.json
accelerate launch --num_processes $GPUS --num_machines 1 --mixed_precision bf16 \
  examples/grpo.py --model_name_or_path Qwen/Qwen2.5-7B-Instruct \
  --deepspeed "$DS" --bf16 --use_liger_kernel --num_generations 8 \
  --gradient_checkpointing_kwargs '{"use_reentrant": false}' 2>&1 | tee train.log
