"""Tracebacks as the packages print them: files, functions and code lines in the order of a real call."""
SITE = "/opt/conda/lib/python3.11/site-packages"

# name: (file below site-packages or absolute, line, function, code)
F = {
    "main": ("/workspace/train.py", 214, "<module>", "main()"),
    "train": ("/workspace/train.py", 187, "main", "trainer.train()"),
    "loop": ("/workspace/train.py", 143, "main", "loss.backward()"),
    "model_call": ("/workspace/train.py", 131, "main", "loss = model(**batch).loss"),
    "inner": ("transformers/trainer.py", 2674, "_inner_training_loop", "tr_loss_step = self.training_step(model, inputs, num_items_in_batch)"),
    "step": ("transformers/trainer.py", 4071, "training_step", "self.accelerator.backward(loss, **kwargs)"),
    "compute": ("transformers/trainer.py", 4020, "training_step", "loss = self.compute_loss(model, inputs, num_items_in_batch=num_items_in_batch)"),
    "backward": ("accelerate/accelerator.py", 2844, "backward", "self.deepspeed_engine_wrapped.backward(loss, sync_gradients=self.sync_gradients, **kwargs)"),
    "plain_backward": ("accelerate/accelerator.py", 2852, "backward", "loss.backward(**kwargs)"),
    "ds_wrap": ("accelerate/utils/deepspeed.py", 276, "backward", "self.engine.backward(loss, **kwargs)"),
    "ds_engine": ("deepspeed/runtime/engine.py", 2301, "backward", "self._do_optimizer_backward(loss, retain_graph)"),
    "ds_stage3": ("deepspeed/runtime/zero/stage3.py", 2286, "backward", "self.loss_scaler.backward(loss.float(), retain_graph=retain_graph)"),
    "ds_stage12": ("deepspeed/runtime/zero/stage_1_and_2.py", 2114, "backward", "self.loss_scaler.backward(loss.float(), retain_graph=retain_graph)"),
    "scaler": ("deepspeed/runtime/fp16/loss_scaler.py", 65, "backward", "scaled_loss.backward(retain_graph=retain_graph)"),
    "tensor_backward": ("torch/_tensor.py", 648, "backward", "torch.autograd.backward("),
    "autograd": ("torch/autograd/__init__.py", 354, "backward", "_engine_run_backward("),
    "engine": ("torch/autograd/graph.py", 829, "_engine_run_backward", "return Variable._execution_engine.run_backward(  # Calls into the C++ engine to run the backward pass"),
    "unpack": ("torch/utils/checkpoint.py", 1129, "unpack_hook", "frame.check_recomputed_tensors_match(gid)"),
    "check": ("torch/utils/checkpoint.py", 903, "check_recomputed_tensors_match", "raise CheckpointError("),
    "unpack_run": ("torch/utils/checkpoint.py", 1124, "unpack_hook", "_run_fn_with_dynamo_disabled(frame.recompute_fn, *args)"),
    "recompute_fn": ("torch/utils/checkpoint.py", 1523, "recompute_fn", "fn(*args, **kwargs)"),
    "module": ("torch/nn/modules/module.py", 1775, "_wrapped_call_impl", "return self._call_impl(*args, **kwargs)"),
    "linear": ("torch/nn/modules/linear.py", 134, "forward", "return F.linear(input, self.weight, self.bias)"),
    "embedding": ("torch/nn/functional.py", 2546, "embedding", "return torch.embedding(weight, input, padding_idx, scale_grad_by_freq, sparse)"),
    "qwen": ("transformers/models/qwen2/modeling_qwen2.py", 449, "forward", "outputs = self.model("),
    "ddp": ("torch/nn/parallel/distributed.py", 1637, "forward", "inputs, kwargs = self._pre_forward(*inputs, **kwargs)"),
    "fsdp1": ("torch/distributed/fsdp/fully_sharded_data_parallel.py", 864, "forward", "output = self._fsdp_wrapped_module(*args, **kwargs)"),
    "flat": ("torch/distributed/fsdp/_flat_param.py", 785, "_validate_tensors_to_flatten", "raise ValueError("),
    "fsdp2": ("torch/distributed/fsdp/_fully_shard/_fsdp_state.py", 236, "_pre_forward", "args, kwargs = self._fsdp_param_group.pre_forward(module, args, kwargs)"),
    "fsdp2_backward": ("torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py", 412, "post_backward", "fsdp_param.unsharded_accumulated_grad"),
    "fsdp2_init": ("torch/distributed/fsdp/_fully_shard/_fully_shard.py", 213, "fully_shard", "state._fsdp_param_group = FSDPParamGroup("),
    "dtensor": ("torch/distributed/tensor/_dispatch.py", 451, "unwrap_to_op_info", "self._try_replicate_spec_for_scalar_tensor("),
    "liger_flce": ("liger_kernel/ops/fused_linear_cross_entropy.py", 70, "fused_linear_cross_entropy_forward", "logits_chunk = _input_chunk @ weight.t()"),
    "liger_model": ("liger_kernel/transformers/model/qwen2.py", 114, "lce_forward", "loss = LigerForCausalLMLoss("),
    "liger_pref": ("liger_kernel/chunked_loss/fused_linear_preference.py", 386, "chunk_forward", "logits_chunk = input_chunk @ weight.t()"),
    "liger_unpaired": ("liger_kernel/chunked_loss/fused_linear_unpaired_preference.py", 297, "chunk_forward", "logits_chunk = input_chunk @ weight.t()"),
    "liger_ppo": ("liger_kernel/chunked_loss/fused_linear_ppo.py", 311, "forward", "V, H = weight.shape"),
    "dpo": ("trl/trainer/dpo_trainer.py", 1203, "_compute_loss_liger", "loss_output = self.liger_loss("),
    "kto": ("trl/experimental/kto/kto_trainer.py", 1114, "_compute_loss_liger", "loss_output = self.liger_loss("),
    "grpo": ("trl/trainer/grpo_trainer.py", 2011, "compute_liger_loss", "loss, metrics = self.liger_grpo_loss("),
    "sft": ("trl/trainer/sft_trainer.py", 1131, "compute_loss", "(loss, outputs) = super().compute_loss("),
    "chunked": ("trl/trainer/sft_trainer.py", 288, "_chunked_cross_entropy_loss", "logits = hidden_states @ lm_head.weight.t()"),
    "reward": ("trl/trainer/reward_trainer.py", 613, "compute_loss", "outputs = model(**inputs)"),
    "ppo": ("trl/trainer/ppo_trainer.py", 548, "train", "accelerator.backward(loss)"),
    "gkd": ("trl/experimental/gkd/gkd_trainer.py", 402, "training_step", "loss = super().training_step(model, inputs, num_items_in_batch)"),
    "orpo": ("trl/trainer/orpo_trainer.py", 811, "compute_loss", "loss, metrics = self.get_batch_loss_metrics(model, inputs, train_eval=\"train\")"),
    "precompute": ("trl/trainer/dpo_trainer.py", 702, "__init__", "self._precompute_ref_logps(self.train_dataset, \"train\")"),
    "lm_head": ("trl/trainer/grpo_trainer.py", 1380, "_get_per_token_logps", "logits = unwrapped.lm_head(last_hidden_state)"),
    "generate": ("trl/models/utils.py", 261, "unwrap_model_for_generation", "with deepspeed.zero.GatheredParameters(model.parameters()):"),
    "trace": ("deepspeed/runtime/zero/partitioned_param_coordinator.py", 213, "record_parameters", "step_id = self.__step_id_module_fetched_for[sub_module.ds_id].popleft()"),
    "fetch": ("deepspeed/runtime/zero/partitioned_param_coordinator.py", 338, "fetch_sub_module", "raise RuntimeError("),
    "offload": ("deepspeed/runtime/zero/parameter_offload.py", 530, "pre_sub_module_forward_function", "param_coordinator.trace_prologue(sub_module)"),
    "ipg": ("deepspeed/runtime/zero/stage3.py", 1339, "__add_grad_to_ipg_bucket", "assert self.get_param_id(param) not in self.params_in_ipg_bucket"),
    "ipg_numel": ("deepspeed/runtime/zero/stage3.py", 1401, "__avg_scatter_contiguous_grads", "grad_numel = bucket.params[0].grad.numel()"),
    "allgather": ("deepspeed/runtime/zero/partition_parameters.py", 1901, "_allgather_params_coalesced", "h = dist.all_gather_into_tensor("),
    "partition": ("deepspeed/runtime/zero/partition_parameters.py", 1116, "all_gather_coalesced", "assert param.ds_status == ZeroParamStatus.AVAILABLE, param.ds_summary()"),
    "init_z3": ("deepspeed/compile/init_z3.py", 61, "init_z3", "grad_buffer = optimizer._DeepSpeedZeroOptimizer_Stage3__param_id_to_grad_partition[p.ds_id]"),
    "schedule": ("deepspeed/runtime/lr_schedules.py", 688, "_update_optimizer", "for param_group, lr in zip(self.optimizer.param_groups, group_lrs, strict=True):"),
    "unsloth": ("unsloth/kernels/fast_lora.py", 371, "forward", "Q = matmul_lora(X, QW, QW_quant, QA, QB, QS)"),
    "unsloth_gc": ("unsloth_zoo/gradient_checkpointing.py", 213, "backward", "torch.autograd.backward(output, dY)"),
    "next": ("deepspeed/utils/z3_grads.py", 41, "_get_grad_fn_or_grad_acc", "return t.view_as(t).grad_fn.next_functions[0][0]"),
    "clip": ("torch/nn/utils/clip_grad.py", 103, "_get_total_norm", "norms.extend(torch._foreach_norm(device_tensors, norm_type))"),
    "verl": ("verl/workers/actor/dp_actor.py", 601, "update_policy", "loss.backward()"),
    "torchtune": ("/workspace/torchtune/recipes/full_dpo_distributed.py", 980, "train", "loss.backward()"),
    "torchtune_loss": ("/workspace/torchtune/torchtune/modules/loss/cross_entropy_loss.py", 121, "compute_cross_entropy", "logits = self.linear_projection(hidden_chunk)"),
    "swift": ("swift/trainers/rlhf_trainer/grpo_trainer.py", 1490, "training_step", "loss = super().training_step(model, inputs, num_items_in_batch)"),
    "nemo": ("nemo_automodel/recipes/llm/train_ft.py", 1122, "_run_train_optim_step", "local_loss.backward()"),
    "llamafactory": ("/workspace/LlamaFactory/src/llamafactory/train/sft/workflow.py", 129, "run_sft", "train_result = trainer.train(resume_from_checkpoint=training_args.resume_from_checkpoint)"),
    "collate": ("/workspace/data.py", 58, "__getitem__", "return self.samples[index]"),
    "user": ("/workspace/model.py", 77, "forward", "return torch.mv(self.table, query)"),
    "user_loss": ("/workspace/losses.py", 31, "masked_mean", "return (values * mask).sum() / mask.sum()"),
    "eval": ("/workspace/evaluate.py", 45, "main", "score = metric(predictions, references)"),
    "redis": ("/workspace/replay.py", 22, "sample", "return self.buffer.popleft()"),
    "from_pretrained": ("transformers/modeling_utils.py", 5048, "from_pretrained", ") = cls._load_pretrained_model("),
    "load_state": ("torch/nn/modules/module.py", 2593, "load_state_dict", "raise RuntimeError("),
}


def frame(name):
    file, line, function, code = F[name]
    if not file.startswith("/"):
        file = f"{SITE}/{file}"
    return [f'  File "{file}", line {line}, in {function}', f"    {code}"]


def traceback(names):
    return ["Traceback (most recent call last):"] + [line for name in names for line in frame(name)]


LIGER = {"dpo": ("dpo", "liger_pref"), "kto": ("kto", "liger_unpaired"), "grpo": ("grpo", "liger_ppo")}
ZERO_BACKWARD = {"zero3": ("backward", "ds_wrap", "ds_engine", "ds_stage3", "scaler"),
                 "zero2": ("backward", "ds_wrap", "ds_engine", "ds_stage12", "scaler")}


def call(text):
    """The frames that lead to a text's error."""
    trainer, stack, where = text.trainer, text.stack, text.where
    hugging_face = not {"torchtune", "verl", "nemo"} & set(text.has)
    names = ["main"]
    if "llamafactory" in text.has:
        names += ["llamafactory", "inner"]
    elif hugging_face and where not in ("init", "precompute"):
        names += ["train", "inner"]
    for project in ("torchtune", "verl", "nemo", "swift"):
        if project in text.has:
            names.append(project)
    if trainer in ("ppo", "gkd", "orpo", "reward"):
        names.append(trainer)
    backward = list(ZERO_BACKWARD.get(stack, ("plain_backward",))) + ["tensor_backward", "autograd", "engine"]
    if where == "recompute":
        tail = ["check"] if text.mechanism.startswith("recompute_") or text.mechanism == "ranks_diverged" else ["recompute_fn", "module", "linear"]
        if text.lines[0].startswith("RuntimeError: mat1"):
            tail = ["recompute_fn", "module", "linear"]
        if "Checkpoint" not in text.lines[0] and tail == ["check"]:
            tail = ["recompute_fn", "module"]
        names += ["step"] * hugging_face + backward + ["unpack" if tail == ["check"] else "unpack_run"] + tail
        if stack == "fsdp2" and tail[-1] == "linear":
            names += ["dtensor"]
    elif where in ("backward", "ipg"):
        names += ["step"] * hugging_face + backward
        if "unsloth" in text.has:
            names.append("unsloth_gc")
        if where == "ipg":
            names.append("ipg_numel" if "numel" in text.lines[0] else "ipg")
        if "next_functions" in text.lines[0]:
            names.append("next")
        if stack == "fsdp2":
            names.append("fsdp2_backward")
    elif where == "liger":
        names += ["compute"] + list(LIGER.get(trainer, ("sft", "module", "liger_model", "liger_flce")))
        if stack in ("fsdp1", "fsdp2"):
            names.insert(-1, stack)
    elif where == "chunked":
        names += ["compute", "sft", "chunked"] + ["dtensor"] * (stack == "fsdp2")
    elif where == "unsloth":
        names += ["compute", "fsdp1", "module", "unsloth"]
    elif where == "forward":
        names += ["compute", {"ddp": "ddp", "fsdp1": "fsdp1"}.get(stack, "module"), "qwen"]
        names += ["torchtune_loss"] if "torchtune" in text.has else []
        names += ["embedding", "dtensor"] if stack == "fsdp2" else []
    elif where == "trace":
        names += ["generate"] * ("generation" in text.has) + ["offload", "trace" if "deque" in text.lines[0] else "fetch"]
    elif where == "gather":
        names += ["compute", "offload", "fetch", "allgather"]
    elif where == "head":
        names += ["compute", "lm_head", "module", "linear"]
    elif where == "precompute":
        names += ["precompute", "module", "qwen", "embedding"]
    elif where == "init":
        names += {"fsdp1": ["fsdp1", "flat"], "fsdp2": ["fsdp2_init"]}.get(stack, ["partition"])
    elif where == "clip":
        names += ["clip", "dtensor"]
    elif where in ("init_z3", "schedule"):
        names.append(where)
    return names
