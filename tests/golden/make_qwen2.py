#!/usr/bin/env python3
"""Writes the Qwen2 checkpoints and golden values that tests/model compares the C++ model with.

Each variant is a folder tests/data/qwen2-NAME as transformers' save_pretrained writes it, and a file
tests/data/golden/NAME.safetensors with

    input_ids, labels            int64 [B, T], rows of uneven length padded on the right
    DTYPE/logits, DTYPE/loss     DTYPE is float32 or float64
    DTYPE/grad/PARAMETER         of every trainable parameter (tiny: float32 only)
    adapter/PARAMETER            float32, the values of the adapters (lora only)

and, as JSON under the metadata key "golden", "parameters": their names in transformers' order, "saved": what autograd
saves during one decoder layer's forward, in order, and "worst": the largest relative distance of a float32 gradient from
its float64 one.

float32 is transformers as it is, loss included. float64 is the same code with its hard-wired float32 islands (RMS norm,
softmax, loss) widened, the rotary tables excepted, which stay float32 rounded: the function that the reference computes.

usage: make_qwen2.py [FOLDER]   (default: tests/data beside this script; versions: requirements.txt)
"""

import copy
import json
import pathlib
import re
import shutil
import sys

import peft
import safetensors
import safetensors.torch
import torch
import transformers
from transformers.loss.loss_utils import fixed_cross_entropy
from transformers.models.qwen2 import modeling_qwen2

IGNORED = -100


def check_versions():
    pinned = dict(line.split("==") for line in pathlib.Path(__file__).with_name("requirements.txt").read_text().split()
                  if "==" in line)
    for module in (peft, safetensors, torch, transformers):
        found = module.__version__.split("+")[0]
        if found != pinned[module.__name__]:
            sys.exit(f"{module.__name__} {found}: expected {pinned[module.__name__]} (see requirements.txt)")


class Widened:
    """modeling_qwen2 sees this as `torch`: where it asks for torch.float32 it gets float64. The rotary tables ask for
    torch.float and are left alone."""

    float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


def build(seed, tied=False, head_bias=False, **sizes):
    """A model whose every parameter is away from its usual initial value, so that one left out shows."""
    defaults = dict(vocab_size=64, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
                    num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=tied,
                    bos_token_id=None, eos_token_id=None)
    config = transformers.Qwen2Config(**(defaults | sizes))
    config._attn_implementation = "eager"
    model = transformers.Qwen2ForCausalLM(config)
    if head_bias:
        model.lm_head = torch.nn.Linear(config.hidden_size, config.vocab_size, bias=True)
    fill(model, seed)
    return model.train()


def fill(model, seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(1 + 0.2 * noise if "norm" in name else 0.1 * noise)


def batch(seed, vocab, rows=3, length=12):
    """Token ids and labels, and which positions are no padding. Token 0 occurs as a token too, so that a pad_token_id of
    0 takes a gradient away."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, vocab, (rows, length), generator=generator)
    ids[0, 3] = 0
    labels = ids.clone()
    real = torch.ones_like(ids)
    for row in range(rows):
        labels[row, : 2 + row] = IGNORED
        end = length - 3 * row
        ids[row, end:] = 0
        labels[row, end:] = IGNORED
        real[row, end:] = 0
    return ids, labels, real


def shifted_loss(logits, labels):
    """ForCausalLMLoss without its cast to float32."""
    shifted = torch.nn.functional.pad(labels, (0, 1), value=IGNORED)[..., 1:].contiguous().view(-1)
    return fixed_cross_entropy(logits.view(-1, logits.shape[-1]), shifted)


def evaluate(model, ids, labels, wide, mask=None):
    model.zero_grad(set_to_none=True)
    if wide:
        modeling_qwen2.torch = Widened()
        try:
            logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits
        finally:
            modeling_qwen2.torch = torch
        loss = shifted_loss(logits, labels)
    else:
        output = model(input_ids=ids, attention_mask=mask, labels=labels, use_cache=False)
        logits, loss = output.logits, output.loss
    loss.backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.requires_grad}
    return logits.detach(), loss.detach(), gradients


def distance(got, want):
    return ((got.double() - want.double()).norm() / want.double().norm()).item()


def saved_by_layer(model, ids):
    """What autograd saves in decoder layer 0's forward: a parameter's name, or dtype and shape."""
    decoder = model.base_model.model.model if isinstance(model, peft.PeftModel) else model.model
    layer = decoder.layers[0]
    names = {p.data_ptr(): our_name(name) for name, p in model.named_parameters()}
    saved = []

    def pack(tensor):
        kind = str(tensor.dtype).removeprefix("torch.")
        saved.append(names.get(tensor.data_ptr(), f"{kind} {list(tensor.shape)}"))
        return tensor

    inner = layer.forward

    def watched(*args, **kwargs):
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            return inner(*args, **kwargs)

    layer.forward = watched
    model(input_ids=ids, use_cache=False)
    del layer.forward
    return saved


def our_name(name):
    """peft's name of a parameter -> the name without its wrappers."""
    name = name.removeprefix("base_model.model.").replace(".base_layer.", ".")
    return re.sub(r"\.(lora_[AB])\.default\.", r".\1.", name)


def write_golden(path, model, ids, labels, real, extra=None, wide_gradients=True):
    tensors = dict(extra or {}, input_ids=ids, labels=labels)
    wide_model = copy.deepcopy(model).double()
    results = {"float32": evaluate(model, ids, labels, wide=False),
               "float64": evaluate(wide_model, ids, labels, wide=True)}
    for dtype, (logits, loss, gradients) in results.items():
        tensors[f"{dtype}/logits"], tensors[f"{dtype}/loss"] = logits, loss.reshape(1)
        for name, gradient in gradients.items():
            if dtype == "float32" or wide_gradients:
                tensors[f"{dtype}/grad/{our_name(name)}"] = gradient
    # Right padding changes nothing that the loss sees, so the C++ model needs no padding mask.
    padded = evaluate(model, ids, labels, wide=False, mask=real)
    for name, gradient in results["float32"][2].items():
        assert distance(padded[2][name], gradient) < 1e-5, (path.stem, name)
    worst = max(distance(results["float32"][2][name], wide) for name, wide in results["float64"][2].items())
    assert worst < 5e-6, (path.stem, worst)
    # One key: safetensors writes several in an order of its own, and the files should come out the same each time.
    metadata = {"golden": json.dumps({"parameters": [our_name(name) for name, _ in model.named_parameters()],
                                      "saved": saved_by_layer(model, ids), "worst": f"{worst:.3e}"})}
    safetensors.torch.save_file({k: v.contiguous() for k, v in tensors.items()}, path, metadata)
    print(f"{path.name}: {path.stat().st_size} bytes, float32 from float64 at most {worst:.2e}")


def main():
    check_versions()
    torch.set_num_threads(1)
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent / "data"
    golden = root / "golden"
    golden.mkdir(parents=True, exist_ok=True)

    variants = {
        "tiny": build(1, vocab_size=256, hidden_size=32, intermediate_size=64),
        "untied": build(2, rope_parameters={"rope_type": "default", "rope_theta": 1e6}),
        "tied": build(3, tied=True),
        "gqa": build(4, num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-5, pad_token_id=0),
        "head-bias": build(5, head_bias=True),
        "tied-head-bias": build(6, tied=True, head_bias=True),
    }
    # A replaced head is a tensor of its own until it is tied again.
    variants["tied-head-bias"].tie_weights()
    for name, model in variants.items():
        folder = root / f"qwen2-{name}"
        shutil.rmtree(folder, ignore_errors=True)
        model.save_pretrained(folder)
        # The card's sizes are the largest: their float64 gradients would be a fifth of all the data.
        write_golden(golden / f"{name}.safetensors", model, *batch(10 + len(name), model.config.vocab_size),
                     wide_gradients=name != "tiny")
    sharded = root / "qwen2-tiny-sharded"
    shutil.rmtree(sharded, ignore_errors=True)
    variants["tiny"].save_pretrained(sharded, max_shard_size="60KB")

    # Adapters on the grouped-query model; its folder is the base, the adapters' values go with the golden ones.
    base = copy.deepcopy(variants["gqa"])
    lora = peft.get_peft_model(base, peft.LoraConfig(r=3, lora_alpha=6, lora_dropout=0.0,
                                                     target_modules=["q_proj", "k_proj", "v_proj", "o_proj"]))
    generator = torch.Generator().manual_seed(7)
    adapters = {}
    with torch.no_grad():
        for name, parameter in lora.named_parameters():
            if parameter.requires_grad:
                parameter.copy_(0.1 * torch.randn(parameter.shape, generator=generator))
                adapters[f"adapter/{our_name(name)}"] = parameter.detach().clone()
    write_golden(golden / "lora.safetensors", lora.train(), *batch(20, base.config.vocab_size), adapters)


if __name__ == "__main__":
    main()
