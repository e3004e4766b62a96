"""What a trainer is given: a small Qwen2 on disk, a tokenizer of whole words, a data set in memory, its arguments.

The model is read from disk by the trainer itself, since that is where ZeRO-3 partitions it. The reference model has
other weights than the policy: with equal ones most errors of the reference would not show.
"""

import pathlib

VOCABULARY, HIDDEN = 256, 32
BATCH = 4        # of a rank
EXAMPLES = 32    # more than two steps take
BETA = 0.1
PAD, END = 0, 1


def write(folder):
    """policy/ and reference/ under the folder, each a model with its tokenizer."""
    import torch
    import transformers
    config = transformers.Qwen2Config(
        vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=False, use_cache=False,
        bos_token_id=None, eos_token_id=END, pad_token_id=PAD)
    for seed, name in enumerate(("policy", "reference")):
        torch.manual_seed(seed)
        model = transformers.Qwen2ForCausalLM(config)
        with torch.no_grad():
            for parameter in model.parameters():  # transformers' own start leaves biases zero and gradients tiny
                parameter.add_(0.1 * torch.randn_like(parameter))
        model.save_pretrained(pathlib.Path(folder) / name)
        tokenizer().save_pretrained(pathlib.Path(folder) / name)


def tokenizer():
    import tokenizers
    import transformers
    words = {"<pad>": PAD, "<end>": END, "<unknown>": 2} | {f"w{i}": i for i in range(3, VOCABULARY)}
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unknown>"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<end>",
                                                unk_token="<unknown>")


def data(trainer):
    import datasets
    return datasets.Dataset.from_list([_example(trainer, number) for number in range(EXAMPLES)])


def _example(trainer, number):
    def words(start, length):
        return "".join(f" w{3 + (start * 37 + i * 11 + number * 5) % (VOCABULARY - 3)}" for i in range(length))

    prompt = {"prompt": words(1, 3 + number % 3).strip()}
    if trainer == "grpo":
        return prompt
    if trainer == "dpo":
        return prompt | {"chosen": words(2, 4 + number % 4), "rejected": words(3, 7 - number % 3)}
    completion = prompt | {"completion": words(2, 4 + number % 5)}
    return completion | {"label": number % 3 != 0} if trainer == "kto" else completion


def reward(completions, **_):
    """Something that differs between the completions of a prompt."""
    return [float(sum(map(ord, text)) % 7) for text in completions]


def arguments(trainer, fused, backend, folder):
    """Of the trainer's configuration class. Clipping off: the gradient is compared, not what clipping leaves of it."""
    values = {"output_dir": str(pathlib.Path(folder) / "out"), "per_device_train_batch_size": BATCH, "max_steps": 2,
              "learning_rate": 1e-3, "lr_scheduler_type": "constant", "max_grad_norm": 0.0, "optim": "adamw_torch",
              "gradient_checkpointing": False, "bf16": False, "report_to": [], "save_strategy": "no",
              "logging_steps": 1, "disable_tqdm": True, "dataloader_pin_memory": False, "seed": 1,
              "model_init_kwargs": {"dtype": "float32"}, "use_cpu": backend == "ddp"}
    if fused == "liger":
        # Liger's other kernels are Triton's; the losses are plain torch.
        values.update(use_liger_kernel=True, liger_kernel_config=dict.fromkeys(
            ("rope", "rms_norm", "swiglu", "cross_entropy", "fused_linear_cross_entropy"), False))
    if trainer == "sft":
        values["loss_type"] = "chunked_nll" if fused == "chunked" else "nll"
    if trainer in ("dpo", "kto"):
        values["beta"] = BETA
    if trainer == "grpo":
        values.update(beta=0.0, loss_type="grpo", num_generations=4, max_completion_length=6)
    if backend.startswith("zero"):
        values["deepspeed"] = _zero(int(backend[4]))
    if backend == "fsdp2":
        values.update(fsdp="full_shard auto_wrap", fsdp_config={
            "version": 2, "reshard_after_forward": True, "transformer_layer_cls_to_wrap": ["Qwen2DecoderLayer"]})
    return values


def _zero(stage):
    zero = {"stage": stage, "reduce_bucket_size": 1_000_000, "allgather_bucket_size": 1_000_000}
    if stage == 3:
        # A small model is nothing but parameters below the default threshold: none would be partitioned.
        zero.update(stage3_param_persistence_threshold=0, stage3_prefetch_bucket_size=0,
                    stage3_max_live_parameters=1_000_000, stage3_max_reuse_distance=1_000_000)
    return {"zero_optimization": zero, "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
            "gradient_clipping": 0.0, "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False}


def make(trainer, fused, backend, models, folder):
    """The trainer, as a user makes it; `models` is where write() has put them."""
    import transformers
    import trl
    name = trainer.upper()
    config = getattr(trl, f"{name}Config")(**arguments(trainer, fused, backend, folder))
    policy, options = str(pathlib.Path(models) / "policy"), {}
    if trainer in ("dpo", "kto"):
        options["ref_model"] = transformers.AutoModelForCausalLM.from_pretrained(
            pathlib.Path(models) / "reference", dtype="float32")
    if trainer == "grpo":
        options["reward_funcs"] = reward
    return getattr(trl, f"{name}Trainer")(model=policy, args=config, train_dataset=data(trainer),
                                          processing_class=tokenizer(), **options)
