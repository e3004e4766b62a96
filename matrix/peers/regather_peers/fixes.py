"""The fixes of a case: upstream's own helpers, or what a fixed trainer does. The one place that looks at them."""

import contextlib

import torch

from regather_peers import model as models


def head_scope(case, backend):
    """What surrounds a direct use of a head's weight and bias, and what it reads as such."""
    @contextlib.contextmanager
    def scope(head):
        with contextlib.ExitStack() as stack:
            if "gather" in case.fixes:
                stack.enter_context(_gathered(case, backend, head))
            if "unshard_head" in case.fixes and hasattr(head, "unshard"):
                head.unshard()
            elif case.unit == "head_full_tensor":
                yield tuple(None if p is None else _full(p, head) for p in (head.weight, head.bias))
                return
            yield head.weight, head.bias

    return scope


def _trl_helper(case):
    """TRL's own gather where it does anything, which is ZeRO-3; None where the installed release has none."""
    if "gather" not in case.fixes or case.zero_stage != 3:
        return None
    from regather_peers.trl_gather import HELPER
    return HELPER


def _gathered(case, backend, head):
    """Weight and bias whole for the fused call: by TRL's helper; without one the same by hand."""
    helper = _trl_helper(case)
    if helper:
        return helper(head.weight, head.bias)
    partitioned = [p for p in (head.weight, head.bias) if p is not None and not backend.is_whole(p)]
    return backend.gathered(partitioned) if partitioned else contextlib.nullcontext()


def _full(parameter, head):
    """Not a fix, though many take it for one."""
    if not hasattr(parameter, "full_tensor"):
        return parameter
    policy = head._get_fsdp_state()._mp_policy
    return parameter.full_tensor().to(policy.param_dtype or parameter.dtype)


def kl_logits(case, call):
    """How KTO's extra forward gets its logits: `call(root, ids)` calls the model, kl_backbone its decoder alone."""
    if "kl_backbone" not in case.fixes:
        return lambda root, ids, scope: call(root, ids)

    def backbone(root, ids, scope):
        hidden = models.backbone(root, ids)
        with scope(models.head(root)) as (weight, bias):
            return torch.nn.functional.linear(hidden, weight, bias)

    return backbone


def entry(case, backend):
    """redirect: the loss runs inside the wrapper's forward, by TRL's own forward redirection."""
    if "redirect" not in case.fixes:
        return lambda loss: loss()
    from trl.models.utils import _ForwardRedirection
    return lambda loss: _ForwardRedirection()(backend.wrapper, backend.root, loss)


@contextlib.contextmanager
def known_to_transformers(case):
    """What TRL's helper asks before it gathers: whether transformers holds a ZeRO-3 configuration."""
    if not _trl_helper(case):
        yield
        return
    from transformers.integrations.deepspeed import HfDeepSpeedConfig, unset_hf_deepspeed_config
    kept = HfDeepSpeedConfig({"zero_optimization": {"stage": 3}})
    try:
        yield kept
    finally:
        unset_hf_deepspeed_config()
