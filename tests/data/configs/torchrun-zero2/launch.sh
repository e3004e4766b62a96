torchrun --nnodes 1 --nproc-per-node 4 train_lm.py --deepspeed ds_z2.json --bf16 True \
    --per_device_train_batch_size 4 --gradient_checkpointing True --output_dir out
