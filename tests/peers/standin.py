#!/usr/bin/env python3
"""Stands in for the C++ worker's export: random weights and batches, right gradients from transformers in float64.

As a program it answers export requests as regather-worker does (matrix/runner/protocol.h). The numbers are its own; the kinds
of batch (uneven lengths, a sequence without a token, ratios beyond the clip, a clamp that is active) are the runtime's.
"""

import contextlib
import json
import pathlib
import sys
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "matrix" / "peers"))

import safetensors.torch  # noqa: E402
import torch  # noqa: E402
from transformers.models.qwen2 import modeling_qwen2  # noqa: E402

from regather_peers import losses, model  # noqa: E402
from regather_peers.backends.base import adamw  # noqa: E402
from regather_peers.case import parse_id  # noqa: E402

SEQUENCES, LENGTH, PROMPT = 4, 12, 3
OPTIMIZER = {"lr": 5e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-3, "weight_decay": 0.01}


class Widened:
    """modeling_qwen2 sees this as `torch`: its islands of float32 become float64, the rotary tables excepted."""

    float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


@contextlib.contextmanager
def widened():
    modeling_qwen2.torch = Widened()
    try:
        yield
    finally:
        modeling_qwen2.torch = torch


def generator(*key):
    return torch.Generator().manual_seed(zlib.crc32(repr(key).encode()))


class Meta:
    def __init__(self, case):
        self.model = {"vocab": 256, "hidden": 32, "intermediate": 64, "layers": 2, "heads": 2, "kv_heads": 2,
                      "rms_eps": 1e-6, "rope_theta": 10000.0, "padding_token": -1, "tied": case.head == "tied",
                      "head_bias": case.head_bias == "yes", "lora_rank": 4 if case.frozen == "lora" else 0,
                      "lora_alpha": 8.0}


def weights(meta, seed):
    empty = model.build(meta, _shapes(meta), torch.float32)
    values = {}
    for name, parameter in model.named(empty).items():
        noise = torch.randn(parameter.shape, generator=generator(seed, name))
        values[name] = 1 + 0.1 * noise if "norm" in name else 0.02 * noise
    return values


class _Zeros(dict):
    """Any name's weight as zeros: to learn names and shapes from a model."""

    def __init__(self, parameters):
        super().__init__({name: torch.zeros_like(p) for name, p in parameters.items()})


def _shapes(meta):
    load, model._load = model._load, lambda root, _: None
    try:
        return _Zeros(model.named(model.build(meta, {}, torch.float32)))
    finally:
        model._load = load


def batch(case, seed, rank, index, policy, reference):
    g = generator(seed, "batch", rank, index)
    ids = torch.randint(0, 256, (SEQUENCES, LENGTH), generator=g)
    labels = ids.clone()
    labels[:, :PROMPT] = losses.IGNORED
    for row in range(SEQUENCES):
        end = LENGTH - (0, 2, 3, 5)[(row + rank + index) % 4]
        ids[row, end:], labels[row, end:] = 0, losses.IGNORED
    if case.loss == "dpo":
        ids[SEQUENCES // 2:, :PROMPT] = ids[:SEQUENCES // 2, :PROMPT]
    if case.loss != "sft" and rank == 1 and index == 1:
        ids[-1, PROMPT:], labels[-1] = 0, losses.IGNORED
    made = {"input_ids": ids, "labels": labels}
    with torch.no_grad(), widened():
        if case.loss == "grpo":
            own = losses.token_log_probabilities(losses.logits_of(policy, ids), labels)
            mask = labels[:, 1:].ne(losses.IGNORED)
            shift = torch.tensor([-0.4, 0.4, 0.0]).repeat(SEQUENCES * LENGTH)[:own.numel()].view_as(own)
            made["advantages"] = torch.tensor([1.2, -0.7, 0.9, -1.4], dtype=torch.float64)
            made["old_log_probabilities"] = (own + shift) * mask
            made["reference_log_probabilities"] = (own + 0.3 * torch.randn(own.shape, generator=g)) * mask
        if case.loss == "kto":
            other = torch.where(labels.ne(losses.IGNORED), torch.randint(0, 256, ids.shape, generator=g), ids)
            made["desirable"] = torch.arange(rank, rank + SEQUENCES).remainder(2).eq(0)
            made["mismatched_ids"] = other
            made["mismatched_labels"] = torch.where(labels.ne(losses.IGNORED), other, labels)
    return made


def kl_of(batches, policy, reference):
    with torch.no_grad():
        ratios = [(losses.sequence_log_probabilities(losses.logits_of(policy, b["mismatched_ids"]), b["mismatched_labels"])
                   - reference(b["mismatched_ids"], b["mismatched_labels"])).mean() for b in batches]
    return torch.stack(ratios).mean().clamp(min=0)


def export(case, seed, path):
    meta = Meta(case)
    initial = weights(meta, seed)
    other = {name: value + 0.02 * torch.randn(value.shape, generator=generator(seed, "reference", name))
             for name, value in initial.items()}
    policy = model.build(meta, initial, torch.float64)
    frozen_policy = model.build(meta, initial, torch.float64)
    model.freeze(policy, case.frozen)
    separate = model.build(meta, other, torch.float64) if case.own_reference else None
    trainable = {name: p for name, p in model.named(policy).items() if p.requires_grad}
    optimizer = adamw(trainable.values(), OPTIMIZER)

    def reference_logits(ids):
        with torch.no_grad(), contextlib.nullcontext() if separate else policy.disable_adapter():
            return losses.logits_of(separate or policy, ids)

    tensors = {f"initial/{name}": value for name, value in initial.items()}
    if separate:
        tensors |= {f"reference_model/{name}": value for name, value in other.items()}
    world, micro_batches = case.ranks, case.micro_batches
    for step in range(case.optimizer_steps):
        optimizer.zero_grad()
        for micro in range(micro_batches):
            batches = [batch(case, seed, rank, step * micro_batches + micro, frozen_policy, separate)
                       for rank in range(world)]
            right = []
            with widened():
                kl = kl_of(batches, policy, lambda ids, labels: losses.sequence_log_probabilities(
                    reference_logits(ids), labels)) if case.loss == "kto" else None
                for given in batches:
                    loss = losses.from_logits(case.loss, losses.logits_of(policy, given["input_ids"]), given,
                                              lambda given=given: reference_logits(given["input_ids"]), kl)
                    (loss / (world * micro_batches)).backward()
                    right.append(loss.item())
            tensors[f"step{step}/micro{micro}/losses"] = torch.tensor(right, dtype=torch.float64)
            for rank, given in enumerate(batches):
                tensors |= {f"step{step}/micro{micro}/rank{rank}/{name}": value for name, value in given.items()}
        tensors |= {f"step{step}/gradient/{name}": p.grad.clone() for name, p in trainable.items()}
        before = {name: p.detach().clone() for name, p in model.named(policy).items()}
        optimizer.step()
        tensors |= {f"step{step}/update/{name}": p.detach() - before[name] for name, p in model.named(policy).items()}
    bf16 = case.dtype == "bf16"
    metadata = {"format": 1, "case": case.id, "model": meta.model, "optimizer": OPTIMIZER, "steps": case.optimizer_steps,
                "micro_batches": micro_batches, "world": world, "trainable": list(trainable),
                "tolerance": 8 * 3 ** 0.5 / 256 if bf16 else 1e-5,
                "rounding": 2.0 ** (-9 if bf16 and case.backend != "fsdp2" else -24)}
    safetensors.torch.save_file({name: t.detach().clone().contiguous() for name, t in tensors.items()}, path,
                                {"regather": json.dumps(metadata)})


def main():
    torch.set_num_threads(1)
    for line in sys.stdin:
        request = json.loads(line)
        export(parse_id(request["export"]), request["seed"], request["to"])
        print(json.dumps({"exported": request["to"]}), flush=True)


if __name__ == "__main__":
    main()
