"""What is measured: ours and the peers, each a function without arguments that gives (loss, dX, dW)."""
import importlib
from dataclasses import dataclass
from typing import Callable

import torch
import torch.nn.functional as F

import losses
from losses import LENGTH

MEBIBYTE = 1 << 20
LIMITS = {512: 512 * MEBIBYTE, 1433: 1433 * MEBIBYTE, 0: 0}


@dataclass
class Subject:
    loss: str      # sft, grpo, dpo, kto; '+ref' where the reference model's forward is part of it
    name: str
    ours: bool
    work: Callable
    setting: str = ""


def with_gradients(loss_of, hidden, weight):
    x, w = hidden.detach().requires_grad_(), weight.detach().requires_grad_()

    def work():
        loss = loss_of(x, w)
        return loss.detach(), *torch.autograd.grad(loss, (x, w))
    return work


def of_ours(data, loss, mebibytes, wide=False):
    op = torch.ops.regather
    flat, batched = data.targets, data.targets.view(-1, LENGTH)
    shape = lambda x: x.view(-1, LENGTH, data.width)
    options = {"workspace": LIMITS[mebibytes], "float_weight_gradient": wide}

    def given_reference():
        if not loss.endswith("+ref"):
            return data.reference
        return op.linear_log_probabilities(shape(data.reference_hidden), data.reference_weight, batched)

    def work(x, w):
        if loss == "sft":
            return op.linear_sft(x, w, flat, **options)[0]
        if loss == "grpo":
            return op.linear_grpo(shape(x), w, batched, data.advantages, data.old, data.reference, **options)[0]
        if loss.startswith("dpo"):
            return op.linear_dpo(shape(x), w, batched, given_reference(), **options)[0]
        return op.linear_kto(shape(x), w, batched, given_reference(), data.desirable, data.kl, **options)[0]
    def wide_work():  # beneath autograd, which would round it
        return op._linear_sft(data.hidden, data.weight, flat, **options)[:3]
    setting = f"{mebibytes} MiB" if mebibytes else "whole sequences"
    return Subject(loss, "regather", True, wide_work if wide else with_gradients(work, data.hidden, data.weight),
                   setting)


def formula(data, loss):
    """The loss in plain torch: from hidden states and weight; the reference model's part without gradient."""
    def reference_of(policy):
        if not loss.endswith("+ref"):
            return data.reference
        if policy.dtype == torch.float64:
            return losses.exact_log_probabilities(data.reference_hidden, data.reference_weight, data.targets)
        with torch.no_grad():
            return losses.log_probabilities(data.reference_hidden, data.reference_weight, data.targets)

    def of_policy(policy):
        if loss == "sft":
            return losses.sft(policy)
        if loss == "grpo":
            return losses.grpo(policy, data)
        return (losses.dpo(policy, reference_of(policy)) if loss.startswith("dpo") else
                losses.kto(policy, reference_of(policy), data))
    return of_policy


def of_torch(data, loss, compiled=False):
    def eager(x, w):
        if loss == "sft":
            return F.cross_entropy(F.linear(x, w).float(), data.targets)
        return formula(data, loss)(losses.log_probabilities(x, w, data.targets))
    function = torch.compile(eager, dynamic=False) if compiled else eager
    return Subject(loss, "torch.compile" if compiled else "torch eager", False,
                   with_gradients(function, data.hidden, data.weight))


def sft_peers(data):
    t = data.targets

    def liger():
        from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss
        loss = LigerFusedLinearCrossEntropyLoss()
        return lambda x, w: loss(w, x, t)

    def liger_large():
        from liger_kernel.ops import LigerFusedLinearCrossEntropyFunction as function
        return lambda x, w: function.apply(x, w, t, None, None, -100, 0.0, 0.0, "mean", None, False, torch.float32,
                                           False, False, False, None, None, 32)[0]

    def liger_sm90():
        function = importlib.import_module(
            "liger_kernel.ops.cutedsl.ops.fused_linear_cross_entropy_sm90").liger_fused_linear_cross_entropy_sm90
        return lambda x, w: function(x, w, t)

    def cce():
        from cut_cross_entropy import linear_cross_entropy
        return lambda x, w: linear_cross_entropy(x, w, t, impl="cce")

    def quack():
        from quack.linear_cross_entropy import chunked_linear_cross_entropy
        return lambda x, w: chunked_linear_cross_entropy(x, w, t)

    def quack_untuned():
        from quack.linear_cross_entropy import chunked_linear_cross_entropy
        return lambda x, w: chunked_linear_cross_entropy(x, w, t, use_scaled_exp=False, tuned=False)

    def quack_whole():
        from quack.linear_cross_entropy import linear_cross_entropy_func
        return lambda x, w: linear_cross_entropy_func(x, w, None, t, inplace_backward=True)
    return {"Liger": liger, "Liger, 32 chunks' memory, fp32": liger_large, "Liger sm90": liger_sm90,
            "cut-cross-entropy": cce, "quack chunked": quack, "quack chunked, untuned": quack_untuned,
            "quack whole": quack_whole}


def preference_peers(data, loss):
    from liger_kernel import chunked_loss
    t = data.targets.view(-1, LENGTH)
    shape = lambda x: x.view(-1, LENGTH, data.width)

    def grpo():
        function = chunked_loss.LigerFusedLinearGRPOLoss(beta=0.04, loss_type="grpo", chunk_size=1)
        return lambda x, w: function(shape(x), w, t, data.mask, data.advantages, ref_per_token_logps=data.reference,
                                     old_per_token_logps=data.old)[0]

    def dpo():
        function = chunked_loss.LigerFusedLinearDPOLoss(beta=0.1)
        return lambda x, w: function(w, shape(x), t, ref_input=shape(data.reference_hidden),
                                     ref_weight=data.reference_weight)[0]

    def kto():
        function = chunked_loss.LigerFusedLinearKTOLoss(beta=0.1, use_ref_model=True)
        return lambda x, w: function(shape(x), w, t, preference_labels=data.desirable,
                                     ref_input=shape(data.reference_hidden), ref_weight=data.reference_weight,
                                     kl=data.kl)[0]
    found = {"grpo": grpo, "dpo+ref": dpo, "kto+ref": kto}
    return {"Liger": found[loss]} if loss in found else {}
