#!/usr/bin/env python3
"""Writes the golden values that tests/loss compares the losses with: a file tests/data/golden/loss-NAME.safetensors for
each of sft, grpo, dpo and kto.

    hidden [B, T, H], weight [V, H], bias [V], labels [B, T]     what the policy has
    reference_hidden, reference_weight, reference_bias           dpo, kto
    advantages [B], old_log_probabilities, reference_log_probabilities [B, T - 1]          grpo
    desirable [B] (0 or 1), kl [1]                                                         kto
    SOURCE/HEAD/loss [1], SOURCE/HEAD/grad/{hidden,weight,bias}

float32 throughout. SOURCE is "trl", the trainer's own loss on logits (for sft the chunked cross entropy), and "liger",
the fused loss, uncompiled (not for sft: that kernel needs a GPU). HEAD is "plain" or "bias". The last sequence of each
batch has no valid token.

usage: make_losses.py [FOLDER]   (default: tests/data/golden beside this script; versions: requirements.txt)
"""

import collections
import importlib.metadata
import pathlib
import sys
import types

import liger_kernel.chunked_loss as liger
import safetensors.torch
import torch
from trl.experimental.kto.kto_trainer import KTOTrainer
from trl.trainer import sft_trainer
from trl.trainer.dpo_trainer import DPOTrainer
from trl.trainer.grpo_trainer import GRPOTrainer
from trl.trainer.utils import selective_log_softmax

IGNORED = -100
SEQUENCES, LENGTH, WIDTH, VOCAB, PROMPT = 4, 10, 8, 24, 3
BETA_PREFERENCE, BETA_GRPO, EPSILON = 0.1, 0.04, 0.2


def check_versions():
    pinned = dict(line.split("==") for line in pathlib.Path(__file__).with_name("requirements.txt").read_text().split()
                  if "==" in line)
    for package in ("liger-kernel", "safetensors", "torch", "trl"):
        found = importlib.metadata.version(package).split("+")[0]
        if found != pinned[package]:
            sys.exit(f"{package} {found}: expected {pinned[package]} (see requirements.txt)")


def problem(seed):
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, generator=generator)

    tensors = {"hidden": normal(SEQUENCES, LENGTH, WIDTH), "weight": normal(VOCAB, WIDTH), "bias": normal(VOCAB)}
    for name in ("hidden", "weight", "bias"):
        tensors[f"reference_{name}"] = tensors[name] + 0.3 * normal(*tensors[name].shape)
    labels = torch.randint(0, VOCAB, (SEQUENCES, LENGTH), generator=generator)
    labels[:, :PROMPT] = IGNORED
    for row, end in enumerate((LENGTH, LENGTH - 3, LENGTH - 1, PROMPT)):
        labels[row, end:] = IGNORED
    tensors["labels"] = labels

    targets = labels[:, 1:].clamp(min=0)
    own = selective_log_softmax((tensors["hidden"] @ tensors["weight"].T)[:, :-1], targets)
    # Ratios on both sides of the clip and inside it, advantages of both signs.
    shift = torch.tensor([-0.5, 0.5, 0.05]).repeat(SEQUENCES * LENGTH)[: own.numel()].view_as(own)
    tensors["old_log_probabilities"] = own + shift + 0.02 * normal(*own.shape)
    tensors["reference_log_probabilities"] = own + 0.4 * normal(*own.shape)
    tensors["advantages"] = torch.tensor([1.2, -0.7, 0.4, -1.5])
    tensors["desirable"] = torch.tensor([1, 0, 0, 1])
    tensors["kl"] = torch.tensor([0.25])
    return tensors


class Recorder:
    """What a trainer's loss asks of the trainer besides its settings."""

    def __init__(self, **settings):
        self.model = types.SimpleNamespace(training=True)
        self.accelerator = types.SimpleNamespace(device=torch.device("cpu"), gather=lambda x: x,
                                                 gather_for_metrics=lambda x: x, num_processes=1,
                                                 unwrap_model=lambda x: x)
        self._metrics = collections.defaultdict(lambda: collections.defaultdict(list))
        self._total_train_tokens = 0
        self.aux_loss_enabled = False
        self.precompute_ref_logps = False
        self.__dict__.update(settings)


class Headed(torch.nn.Module):
    """A model whose forward gives the logits of hidden states that are there already."""

    is_gradient_checkpointing = False

    def __init__(self, hidden, weight, bias):
        super().__init__()
        self.logits = hidden @ weight.T if bias is None else hidden @ weight.T + bias

    def forward(self, **_):
        return types.SimpleNamespace(logits=self.logits)


def policy(p):
    return Headed(p["hidden"], p["weight"], p["bias"])


def reference(p):
    return Headed(p["reference_hidden"], p["reference_weight"], p["reference_bias"])


def ids_and_mask(labels):
    return labels.clamp(min=0), (labels != IGNORED).long()


def trl_sft(p):
    return sft_trainer._chunked_cross_entropy_loss(p["hidden"], p["weight"], chunk_size=7, labels=p["labels"],
                                                   lm_head_bias=p["bias"])[0]


def trl_grpo(p):
    ids, mask = ids_and_mask(p["labels"])

    def log_probabilities(model, *_, **__):
        return selective_log_softmax(model().logits[:, :-1], ids[:, 1:]), torch.zeros(SEQUENCES, LENGTH - 1)

    trainer = Recorder(top_entropy_quantile=1.0, off_policy_mask_threshold=None, importance_sampling_level="token",
                       beta=BETA_GRPO, loss_type="grpo", epsilon_low=EPSILON, epsilon_high=EPSILON, use_vllm=False,
                       args=types.SimpleNamespace(use_bias_correction_kl=False, delta=None),
                       current_gradient_accumulation_steps=1, _get_per_token_logps_and_entropies=log_probabilities)
    return GRPOTrainer._compute_loss(trainer, policy(p), {
        "prompt_ids": ids[:, :1], "prompt_mask": mask[:, :1], "completion_ids": ids[:, 1:],
        "completion_mask": mask[:, 1:], "advantages": p["advantages"],
        "old_per_token_logps": p["old_log_probabilities"], "ref_per_token_logps": p["reference_log_probabilities"]})


def trl_dpo(p):
    ids, mask = ids_and_mask(p["labels"])
    trainer = Recorder(ld_alpha=None, f_divergence_type="reverse_kl", loss_types=["sigmoid"], loss_weights=[1.0],
                       beta=BETA_PREFERENCE, label_smoothing=0.0, use_weighting=False, ref_model=reference(p),
                       args=types.SimpleNamespace(gradient_checkpointing_kwargs=None), precompute_ref_logps=False)
    trainer.model = policy(p)
    return DPOTrainer._compute_loss(trainer, trainer.model, {
        "input_ids": ids, "attention_mask": torch.ones_like(ids), "completion_mask": mask}, False)


def trl_kto(p):
    ids, mask = ids_and_mask(p["labels"])
    reference_model = reference(p)
    # The KL term is given: the policy's mismatched completions are likelier by that much.
    trainer = Recorder(ref_model=reference_model, calculate_KL=True, loss_type="kto", beta=BETA_PREFERENCE,
                       desirable_weight=1.0, undesirable_weight=1.0,
                       args=types.SimpleNamespace(gradient_checkpointing_kwargs=None),
                       _compute_kl_logps=lambda model, _: torch.zeros(1) if model is reference_model else p["kl"])
    trainer.model = policy(p)
    return KTOTrainer._compute_loss(trainer, trainer.model, {
        "completion_input_ids": ids, "completion_attention_mask": torch.ones_like(ids), "completion_mask": mask,
        "label": [bool(d) for d in p["desirable"]]}, False)


def liger_grpo(p):
    ids, mask = ids_and_mask(p["labels"])
    loss = liger.LigerFusedLinearGRPOLoss(beta=BETA_GRPO, epsilon_low=EPSILON, epsilon_high=EPSILON, loss_type="grpo",
                                          compiled=False, use_ref_model=True)
    return loss(p["hidden"][:, :-1], p["weight"], ids[:, 1:], mask[:, 1:], p["advantages"], p["bias"],
                ref_per_token_logps=p["reference_log_probabilities"],
                old_per_token_logps=p["old_log_probabilities"])[0]


def liger_dpo(p):
    loss = liger.LigerFusedLinearDPOLoss(beta=BETA_PREFERENCE, compiled=False, use_ref_model=True)
    return loss(p["weight"], p["hidden"][:, :-1], p["labels"][:, 1:], p["bias"], p["reference_hidden"][:, :-1],
                p["reference_weight"], p["reference_bias"])[0]


def liger_kto(p):
    loss = liger.LigerFusedLinearKTOLoss(beta=BETA_PREFERENCE, compiled=False, use_ref_model=True)
    return loss(p["hidden"][:, :-1], p["weight"], p["labels"][:, 1:], p["bias"], p["desirable"].bool(),
                p["reference_hidden"][:, :-1], p["reference_weight"], p["reference_bias"], p["kl"])[0]


LOSSES = {
    "sft": ((), {"trl": trl_sft}),
    "grpo": (("advantages", "old_log_probabilities", "reference_log_probabilities"),
             {"trl": trl_grpo, "liger": liger_grpo}),
    "dpo": (("reference_hidden", "reference_weight", "reference_bias"), {"trl": trl_dpo, "liger": liger_dpo}),
    "kto": (("reference_hidden", "reference_weight", "reference_bias", "desirable", "kl"),
            {"trl": trl_kto, "liger": liger_kto}),
}


def evaluate(function, tensors, with_bias):
    p = dict(tensors)
    leaves = ("hidden", "weight", "bias") if with_bias else ("hidden", "weight")
    for name in leaves:
        p[name] = tensors[name].clone().requires_grad_(True)
    if not with_bias:
        p["bias"] = p["reference_bias"] = None
    loss = function(p)
    loss.backward()
    return {"loss": loss.detach().reshape(1)} | {f"grad/{name}": p[name].grad for name in leaves}


def main():
    check_versions()
    torch.set_num_threads(1)
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent / "data" / "golden"
    for number, (name, (inputs, sources)) in enumerate(LOSSES.items()):
        tensors = problem(100 + number)
        kept = {key: tensors[key] for key in ("hidden", "weight", "bias", "labels", *inputs)}
        for head in ("plain", "bias"):
            results = {source: evaluate(function, tensors, head == "bias") for source, function in sources.items()}
            for source, values in results.items():
                kept |= {f"{source}/{head}/{key}": value for key, value in values.items()}
            for key, value in results["trl"].items():
                far = max(((other[key] - value).norm() / value.norm()).item() for other in results.values())
                assert far < 1e-5, (name, head, key, far)
                print(f"{name} {head} {key}: {value.norm().item():.6g}, the sources differ by {far:.1e}")
        path = folder / f"loss-{name}.safetensors"
        safetensors.torch.save_file({key: value.contiguous() for key, value in kept.items()}, path)


if __name__ == "__main__":
    main()
