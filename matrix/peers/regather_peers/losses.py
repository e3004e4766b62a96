"""The loss of one batch as a case computes it: Liger's fused losses, TRL's chunked one, or the formula on logits.

The order of calls is the runtime's (src/train/step_loss.cpp): policy, then KTO's KL term, then the reference, then the
loss. TRL 1.6 takes KTO's KL term first; on FSDP2 that call would leave the root whole, and hide that a loss on the
unwrapped model otherwise meets sharded parameters.
"""

import contextlib

import torch
import torch.nn.functional as F

from regather_peers import model as models

IGNORED = -100
FUSED_ROWS, CHUNKED_ROWS = 16, 8
BETA_PREFERENCE, BETA_GRPO, EPSILON = 0.1, 0.04, 0.2


class Parts:
    """What a rank computes a loss with. `scope(head)` surrounds each direct use of a head and gives weight and bias."""

    def __init__(self, root, scope, kl_logits, reference=None, reference_scope=None, mean_over_ranks=None):
        self.root = root
        self.scope = scope
        self.kl_logits = kl_logits
        self.reference = reference
        self.reference_scope = reference_scope
        self.mean_over_ranks = mean_over_ranks

    @contextlib.contextmanager
    def on_reference(self):
        """(root, scope) of the reference, without grad: a model of its own, or the policy with its adapters off."""
        with torch.no_grad():
            if self.reference is not None:
                yield self.reference, self.reference_scope
            else:
                with self.root.disable_adapter():
                    yield self.root, self.scope


def compute(parts, case, batch):
    """The loss on the model's submodules: kernels fused and chunked."""
    hidden = models.backbone(parts.root, batch["input_ids"])
    head = models.head(parts.root)
    if case.kernel == "chunked":
        from trl.trainer.sft_trainer import _chunked_cross_entropy_loss
        # Where transformers knows of a ZeRO-3 configuration (the fix gather, fixes.py) it gathers what is not whole by
        # itself, in the recompute too.
        with parts.scope(head) as (weight, bias):
            return _chunked_cross_entropy_loss(hidden, weight, CHUNKED_ROWS, labels=batch["labels"],
                                               lm_head_bias=bias)[0]
    return {"sft": _sft, "grpo": _grpo, "dpo": _dpo, "kto": _kto}[case.loss](parts, batch, hidden, head)


def _sft(parts, batch, hidden, head):
    rows = hidden[:, :-1].reshape(-1, hidden.shape[-1])
    with parts.scope(head) as (weight, bias):
        return FusedLinearCrossEntropy.apply(rows, weight, bias, batch["labels"][:, 1:].reshape(-1))


class FusedLinearCrossEntropy(torch.autograd.Function):
    """Stands in for Liger's Triton kernel, which does not run on a CPU: logits a chunk at a time, gradients of hidden
    states, weight and bias computed in forward and stashed, backward only scales them."""

    @staticmethod
    def forward(ctx, hidden, weight, bias, targets):
        wants = ctx.needs_input_grad
        valid = targets.ne(IGNORED).sum().clamp(min=1)
        total = hidden.new_zeros((), dtype=torch.float32)
        by_hidden, by_weight, by_bias = [], None, None
        for start in range(0, hidden.shape[0], FUSED_ROWS):
            x, target = hidden[start:start + FUSED_ROWS], targets[start:start + FUSED_ROWS]
            logits = x @ weight.t()
            if bias is not None:
                logits = logits + bias
            log_p = F.log_softmax(logits.float(), dim=-1)
            mask = target.ne(IGNORED)
            index = target.clamp(min=0).unsqueeze(1)
            total += -(log_p.gather(1, index).squeeze(1) * mask).sum() / valid
            slope = log_p.exp()
            slope.scatter_add_(1, index, torch.full_like(index, -1, dtype=slope.dtype))
            slope = (slope * (mask / valid).unsqueeze(1)).to(x.dtype)
            if wants[0]:
                by_hidden.append(slope @ weight)
            if wants[1]:
                by_weight = slope.t() @ x if by_weight is None else by_weight.addmm_(slope.t(), x)
            if bias is not None and wants[2]:
                by_bias = slope.sum(0) if by_bias is None else by_bias.add_(slope.sum(0))
        ctx.save_for_backward(torch.cat(by_hidden) if by_hidden else None, by_weight, by_bias)
        return total

    @staticmethod
    def backward(ctx, gradient):
        return *(None if stash is None else stash * gradient.to(stash.dtype) for stash in ctx.saved_tensors), None


def _grpo(parts, batch, hidden, head):
    from liger_kernel.chunked_loss import LigerFusedLinearGRPOLoss
    loss = LigerFusedLinearGRPOLoss(beta=BETA_GRPO, epsilon_low=EPSILON, epsilon_high=EPSILON, loss_type="grpo",
                                    compiled=False, use_ref_model=True)
    labels = batch["labels"][:, 1:]
    with parts.scope(head) as (weight, bias):
        return loss(hidden[:, :-1], weight, labels.clamp(min=0), labels.ne(IGNORED).long(),
                    batch["advantages"].float(), bias,
                    ref_per_token_logps=batch["reference_log_probabilities"].float(),
                    old_per_token_logps=batch["old_log_probabilities"].float())[0]


def _dpo(parts, batch, hidden, head):
    from liger_kernel.chunked_loss import LigerFusedLinearDPOLoss
    loss = LigerFusedLinearDPOLoss(beta=BETA_PREFERENCE, compiled=False, use_ref_model=True)
    theirs, their_head, their_scope = _reference(parts, batch)
    with parts.scope(head) as (weight, bias), their_scope(their_head) as (their_weight, their_bias):
        return loss(weight, hidden[:, :-1].contiguous(), batch["labels"][:, 1:], bias, theirs[:, :-1].contiguous(),
                    their_weight, their_bias)[0]


def _kto(parts, batch, hidden, head):
    from liger_kernel.chunked_loss import LigerFusedLinearKTOLoss
    loss = LigerFusedLinearKTOLoss(beta=BETA_PREFERENCE, compiled=False, use_ref_model=True)
    kl = kl_term(parts, batch)
    theirs, their_head, their_scope = _reference(parts, batch)
    with parts.scope(head) as (weight, bias), their_scope(their_head) as (their_weight, their_bias):
        return loss(hidden[:, :-1].contiguous(), weight, batch["labels"][:, 1:], bias, batch["desirable"],
                    theirs[:, :-1].contiguous(), their_weight, their_bias, kl)[0]


def _reference(parts, batch):
    with parts.on_reference() as (root, scope):
        return models.backbone(root, batch["input_ids"]), models.head(root), scope


def kl_term(parts, batch):
    """Mean log-ratio of mismatched completions over all ranks, not below zero, without gradient."""
    ids, labels = batch["mismatched_ids"], batch["mismatched_labels"]
    with torch.no_grad():
        policy = sequence_log_probabilities(parts.kl_logits(parts.root, ids, parts.scope), labels)
    with parts.on_reference() as (root, scope):
        reference = sequence_log_probabilities(parts.kl_logits(root, ids, scope), labels)
    return parts.mean_over_ranks((policy - reference).mean()).clamp(min=0)


def token_log_probabilities(logits, labels):
    targets = labels[:, 1:]
    mask = targets.ne(IGNORED)
    log_p = F.log_softmax(logits[:, :-1].to(torch.promote_types(logits.dtype, torch.float32)), dim=-1)
    return log_p.gather(-1, targets.clamp(min=0).unsqueeze(-1)).squeeze(-1) * mask


def sequence_log_probabilities(logits, labels):
    return token_log_probabilities(logits, labels).sum(-1)


def from_logits(loss, logits, batch, reference_logits, kl):
    """From the formula. `reference_logits` is called, without grad, where the loss has a reference."""
    labels = batch["labels"]
    if loss == "sft":
        return F.cross_entropy(logits[:, :-1].reshape(-1, logits.shape[-1]).to(
            torch.promote_types(logits.dtype, torch.float32)), labels[:, 1:].reshape(-1), ignore_index=IGNORED)
    own = token_log_probabilities(logits, labels)
    if loss == "grpo":
        mask = labels[:, 1:].ne(IGNORED).to(own.dtype)
        advantage = batch["advantages"].to(own.dtype).unsqueeze(1)
        ratio = (own - batch["old_log_probabilities"].to(own.dtype)).exp()
        gain = torch.minimum(ratio * advantage, ratio.clamp(1 - EPSILON, 1 + EPSILON) * advantage)
        distance = batch["reference_log_probabilities"].to(own.dtype) - own
        tokens = BETA_GRPO * (distance.exp() - distance - 1) - gain
        return ((tokens * mask).sum(1) / mask.sum(1).clamp(min=1)).mean()
    ratio = own.sum(-1) - sequence_log_probabilities(reference_logits(), labels)
    if loss == "dpo":
        pairs = ratio.shape[0] // 2
        return -F.logsigmoid(BETA_PREFERENCE * (ratio[:pairs] - ratio[pairs:])).mean()
    sign = batch["desirable"].to(own.dtype) * 2 - 1
    return (1 - torch.sigmoid(BETA_PREFERENCE * (ratio - kl) * sign)).mean()


def eager(parts, case, batch, call):
    """The formula on the logits of `call(input_ids)`: the wrapper, or the unwrapped model."""
    logits = call(batch["input_ids"])
    kl = kl_term(parts, batch) if case.loss == "kto" else None

    def reference_logits():
        with parts.on_reference() as (root, _):
            return (call if root is parts.root else lambda ids: logits_of(root, ids))(batch["input_ids"])

    return from_logits(case.loss, logits, batch, reference_logits, kl)


def logits_of(module, input_ids):
    return module(input_ids=input_ids, use_cache=False).logits
