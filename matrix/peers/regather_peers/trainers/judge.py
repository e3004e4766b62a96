"""The right gradients of what a trainer was given: unsharded, float64, by the formula; and how far the trainer is off.

Each rank has left its batch, its weights before the step and its full gradients. The judge runs in a process of its
own, in which no DeepSpeed has replaced anything of torch's.
"""

import os

import torch
import torch.nn.functional as F

from regather_peers.compare import difference
from regather_peers.losses import IGNORED, sequence_log_probabilities, token_log_probabilities
from regather_peers.model import named
from regather_peers.trainers import RANKS, TOLERANCE, setting

EPSILON = 0.2  # GRPO's default clip


def main(spec, models, folder):
    ranks = [torch.load(os.path.join(folder, f"rank{rank}.pt"), weights_only=False) for rank in range(RANKS)]
    judged = {"steps": 0, "relative_l2": 0.0, "worst": "", "local_relative_l2": 0.0, "missing": 0, "nonfinite": 0,
              "apart": 0.0}
    for steps in zip(*ranks):
        if any(step["gradients"] is None for step in steps):
            break
        judge_step(spec, models, steps, judged)
    wrong = not judged["relative_l2"] <= TOLERANCE
    unequal = not judged["apart"] <= TOLERANCE
    outcome = "nonfinite" if judged["nonfinite"] else "wrong_gradient" if wrong or unequal else "pass"
    return judged | {"outcome": outcome if judged["steps"] else "unchecked"}


def judge_step(spec, models, steps, judged):
    judged["steps"] += 1
    own = gradients(spec["trainer"], models, steps)
    right = {name: sum(rank[name] for rank in own) / RANKS for name in own[0]}
    local = 0.0
    for rank, step in enumerate(steps):
        for name, want in right.items():
            got = step["gradients"].get(name)
            if got is None:
                judged["missing"] += 1
                got = torch.zeros_like(want)
            apart = difference(got, want)
            error = apart["relative_l2"]  # of what is finite
            judged["nonfinite"] += apart["nonfinite"]
            if not error <= judged["relative_l2"]:
                judged.update(relative_l2=error, worst=f"{name} of step {judged['steps'] - 1} on rank {rank}")
            local = max(local, difference(got, own[rank][name])["relative_l2"])
            first = steps[0]["gradients"].get(name)
            if first is not None:
                judged["apart"] = max(judged["apart"], difference(got, first.double())["relative_l2"])
    judged["local_relative_l2"] = max(local, judged["local_relative_l2"])


def gradients(trainer, models, steps):
    """Of each rank: parameter -> gradient of its own loss, with its own weights: ranks that reduce nothing part."""
    reference = _load(models, "reference") if trainer in ("dpo", "kto") else None
    policies = []
    for step in steps:
        policies.append(_load(models, "policy"))
        with torch.no_grad():
            for name, parameter in named(policies[-1]).items():
                parameter.copy_(step["weights"][name])
    kl = _kl(policies, reference, steps) if trainer == "kto" else None
    for policy, step in zip(policies, steps):
        {"sft": _sft, "dpo": _dpo, "kto": _kto, "grpo": _grpo}[trainer](policy, reference, step, kl).backward()
    return [{name: p.grad for name, p in named(policy).items()} for policy in policies]


def _load(models, name):
    import transformers
    model = transformers.AutoModelForCausalLM.from_pretrained(os.path.join(models, name), dtype=torch.float64)
    model.config._attn_implementation = "eager"
    return model.train()


def _logits(model, ids, attention):
    return model(input_ids=ids, attention_mask=attention, use_cache=False).logits


def _labels(ids, mask):
    return ids.masked_fill(mask == 0, IGNORED)


def _sft(policy, _, step, __):
    batch = step["batch"]
    labels = batch["labels"]
    logits = _logits(policy, batch["input_ids"], batch["attention_mask"])
    summed = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=IGNORED,
                             reduction="sum")
    # Trainer counts the valid tokens of all ranks, and its mean over ranks is a mean over those.
    return summed * RANKS / step["items"] if step["items"] else summed / labels[:, 1:].ne(IGNORED).sum()


def _ratio(policy, reference, ids, attention, mask):
    labels = _labels(ids, mask)
    with torch.no_grad():
        theirs = sequence_log_probabilities(_logits(reference, ids, attention), labels)
    return sequence_log_probabilities(_logits(policy, ids, attention), labels) - theirs


def _dpo(policy, reference, step, _):
    batch = step["batch"]
    ratio = _ratio(policy, reference, batch["input_ids"], batch["attention_mask"], batch["completion_mask"])
    pairs = ratio.shape[0] // 2
    return -F.logsigmoid(setting.BETA * (ratio[:pairs] - ratio[pairs:])).mean()


def _either(batch, *names):
    """Names of a batch's members differ between TRL's releases."""
    return next(batch[name] for name in names if name in batch)


def _kl(policies, reference, steps):
    """Of mismatched completions, over all ranks."""
    means = []
    with torch.no_grad():
        for policy, step in zip(policies, steps):
            batch = step["batch"]
            means.append(_ratio(policy, reference, _either(batch, "KL_input_ids", "KL_completion_input_ids"),
                                _either(batch, "KL_attention_mask", "KL_completion_attention_mask"),
                                batch["KL_completion_mask"]).mean())
    return torch.stack(means).mean().clamp(min=0)


def _kto(policy, reference, step, kl):
    batch = step["batch"]
    ratio = _ratio(policy, reference, _either(batch, "input_ids", "completion_input_ids"),
                   _either(batch, "attention_mask", "completion_attention_mask"), batch["completion_mask"])
    sign = torch.as_tensor(batch["label"]).double() * 2 - 1
    return (1 - torch.sigmoid(setting.BETA * (ratio - kl) * sign)).mean()


def _grpo(policy, _, step, __):
    batch = step["batch"]
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    attention = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    length = batch["completion_ids"].shape[1]
    own = token_log_probabilities(_logits(policy, ids, attention), ids)[:, -length:]
    old = batch.get("old_per_token_logps")
    ratio = (own - (own.detach() if old is None else old.double())).exp()
    advantage = batch["advantages"].double()
    advantage = advantage.unsqueeze(1) if advantage.dim() == 1 else advantage
    gain = torch.minimum(ratio * advantage, ratio.clamp(1 - EPSILON, 1 + EPSILON) * advantage)
    mask = batch["completion_mask"].double()
    return -((gain * mask).sum(1) / mask.sum(1).clamp(min=1)).mean()
