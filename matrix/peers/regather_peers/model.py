"""transformers' Qwen2 with the runtime's weights, and the axes that change the model before it is wrapped."""

import functools
import inspect
import re

import torch
import transformers
from transformers.modeling_layers import GradientCheckpointingLayer

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
ADAPTED = ["q_proj", "k_proj", "v_proj", "o_proj"]


def canonical(name):
    """The name of a parameter without what peft puts round it."""
    name = name.removeprefix("base_model.model.").replace(".base_layer.", ".")
    return re.sub(r"\.(lora_[AB])\.default\.", r".\1.", name)


def named(root):
    """Distinct parameters by their first name, tied ones once."""
    return {canonical(name): parameter for name, parameter in root.named_parameters()}


def causal_lm(root):
    """The Qwen2ForCausalLM inside a root that may be peft's."""
    return root.get_base_model() if hasattr(root, "get_base_model") else root


def backbone(root, input_ids):
    """Hidden states, as TRL's fused paths get them: the decoder is called, not the model."""
    return causal_lm(root).model(input_ids=input_ids, use_cache=False).last_hidden_state


def head(root):
    return causal_lm(root).get_output_embeddings()


def build(given, weights, dtype):
    """A model in training mode with every parameter requiring grad as loaded."""
    m = given.model
    config = transformers.Qwen2Config(
        vocab_size=m["vocab"], hidden_size=m["hidden"], intermediate_size=m["intermediate"],
        num_hidden_layers=m["layers"], num_attention_heads=m["heads"], num_key_value_heads=m["kv_heads"],
        rms_norm_eps=m["rms_eps"], tie_word_embeddings=m["tied"], use_cache=False, bos_token_id=None,
        eos_token_id=None, pad_token_id=m["padding_token"] if m["padding_token"] >= 0 else None,
        **_rope(m["rope_theta"]))
    config._attn_implementation = "eager"
    root = transformers.Qwen2ForCausalLM(config).to(dtype)
    if m["head_bias"]:
        root.lm_head = torch.nn.Linear(m["hidden"], m["vocab"], bias=True, dtype=dtype)
    if m["tied"]:
        root.tie_weights()
        if root.lm_head.weight is not root.model.embed_tokens.weight:
            raise RuntimeError("transformers did not tie the head")
    if m["lora_rank"]:
        import peft
        root = peft.get_peft_model(root, peft.LoraConfig(r=m["lora_rank"], lora_alpha=m["lora_alpha"],
                                                         lora_dropout=0.0, target_modules=ADAPTED))
    _load(root, weights)
    for parameter in root.parameters():
        parameter.requires_grad_(True)
    return root.train()


def _rope(theta):
    if "rope_theta" in inspect.signature(transformers.Qwen2Config.__init__).parameters:
        return {"rope_theta": theta}
    return {"rope_parameters": {"rope_type": "default", "rope_theta": theta}}


def _load(root, weights):
    parameters = named(root)
    if parameters.keys() != weights.keys():
        odd = sorted(parameters.keys() ^ weights.keys())
        raise RuntimeError(f"the exported weights and transformers' model differ in {', '.join(odd)}")
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(weights[name])


def trains(name, frozen):
    """norms: names with "norm" frozen; lora: all but the adapters frozen; a tied parameter is the embedding's."""
    return {"none": True, "norms": "norm" not in name, "lora": "lora_" in name, "head": "lm_head" not in name,
            "embedding": "embed_tokens" not in name}[frozen]


def freeze(root, frozen):
    for name, parameter in named(root).items():
        parameter.requires_grad_(trains(name, frozen))


def prepare(given, case):
    """The policy with the case's frozen set, checkpoints and input_grad."""
    root = build(given, given.initial(), stored_dtype(case))
    freeze(root, case.frozen)
    base = causal_lm(root)
    if case.checkpoint != "none":
        _add_checkpoints(base, case)
    if case.input_grad == "yes":
        if not getattr(base, "_require_grads_hooks", None):
            base.enable_input_require_grads()
    elif getattr(base, "_require_grads_hooks", None):
        base.disable_input_require_grads()  # transformers enables it with checkpointing
    return root


def stored_dtype(case):
    """FSDP2's mixed-precision policy shards float32 parameters and gathers them in the case's dtype."""
    return torch.float32 if case.backend == "fsdp2" else DTYPES[case.dtype]


def _add_checkpoints(base, case):
    reentrant = case.checkpoint == "reentrant"
    if case.checkpoint_at == "forward" or not _checkpoints_forward():
        base.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
        return
    for layer in base.model.layers:
        kind = type(layer)
        layer.__class__ = type(kind.__name__, (CheckpointsItsCall, kind), {"reentrant": reentrant})


class CheckpointsItsCall:
    """A decoder layer whose call is the checkpoint's function, hooks and all, as transformers before 5.23 has it. Not
    torch's checkpoint_wrapper: that module lends DeepSpeed the hooks of the layer inside it (ds_grads_remaining)."""

    def __call__(self, *args, **kwargs):
        call = functools.partial(super().__call__, **kwargs)
        return torch.utils.checkpoint.checkpoint(call, *args, use_reentrant=self.reentrant) if self.training else call(*args)


def _checkpoints_forward():
    """transformers 5.23 moved the checkpoint from the layer's call to its forward."""
    return "__call__" not in vars(GradientCheckpointingLayer)


def layers(root):
    return list(causal_lm(root).model.layers)
