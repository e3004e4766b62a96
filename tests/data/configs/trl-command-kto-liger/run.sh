trl kto --model_name_or_path Qwen/Qwen2.5-1.5B-Instruct --dataset_name trl-lib/kto-mix-14k \
    --accelerate_config multi_gpu --num_processes 4 --use_liger_kernel --bf16 --output_dir out
