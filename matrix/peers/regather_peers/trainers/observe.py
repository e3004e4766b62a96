"""What a trainer does with the head, seen by hooks on torch, DeepSpeed and TRL, never by the trainer's name.

Every computation that takes the policy's head weight is an event: whether it is the head's own call as a module,
whether the wrapper's forward is in progress, whether TRL redirected it there, whether a GatheredParameters scope has
made the head whole, and whether it is whole. So is every call of the decoder: a loss may fail before it comes to the head.
"""

import contextlib
import functools

import torch
from torch.overrides import TorchFunctionMode

COMPUTES = {"linear", "matmul", "__matmul__", "__rmatmul__", "mm", "addmm", "t", "transpose", "float", "to", "einsum",
            "__getitem__", "narrow", "split", "chunk"}


class Watch:
    """Of one rank. Nothing is recorded but from begin(), when a loss starts, to end(), after its backward."""

    def __init__(self):
        self.events = []
        self.head = self.wrapper = self.reference_head = None
        self._running = []      # wrappers whose forward is in progress, outermost first
        self._redirections = 0
        self._gathered = []     # of each scope in progress: the parameters that it made whole
        self._modules = 0       # the head's own calls in progress
        self._inside = False    # of a function that has been recorded: what it computes is not a second event
        self._mode = None
        self.phase = "forward"

    def install(self):
        """Once in a process, before a trainer is made."""
        self._function_apply()
        self._autograd_backward()
        self._wrap(torch.nn.parallel.DistributedDataParallel, "forward", self._forward_of)
        from torch.distributed.tensor import DTensor
        full = DTensor.full_tensor
        watch = self

        def full_tensor(tensor, *args, **kwargs):
            watch.record("full_tensor", (tensor,))
            return full(tensor, *args, **kwargs)

        DTensor.full_tensor = full_tensor
        from trl.models import utils
        if hasattr(utils, "_ForwardRedirection"):
            self._wrap(utils._ForwardRedirection, "__call__", self._redirected)

    def install_deepspeed(self):
        import deepspeed
        self._wrap(deepspeed.DeepSpeedEngine, "forward", self._forward_of)
        scope, watch = deepspeed.zero.GatheredParameters, self
        enter, leave = scope.__enter__, scope.__exit__

        def entering(gathering, *args):
            params = getattr(gathering, "params", None) or []
            watch._gathered.append([p for p in params if p.numel() == 0])
            return enter(gathering, *args)

        def leaving(gathering, *args):
            watch._gathered.pop()
            return leave(gathering, *args)

        scope.__enter__, scope.__exit__ = entering, leaving

    def of(self, wrapper, decoder, head, reference_head=None):
        """The policy: called when the trainer has wrapped it. The reference's head counts where it is gathered for a
        loss that takes both."""
        if self.head is head and self.wrapper is wrapper:
            return
        self.head, self.wrapper, self.reference_head = head, wrapper, reference_head
        decoder.register_forward_pre_hook(self._decoder_called, prepend=True)
        head.register_forward_pre_hook(lambda *_: self._count(1), prepend=True)
        head.register_forward_hook(lambda *_: self._count(-1), always_call=True)
        if hasattr(wrapper, "reshard"):  # FSDP2's root is its own wrapper, and hooks are how it is one
            wrapper.register_forward_pre_hook(lambda *_: self._running.append(wrapper), prepend=True)
            wrapper.register_forward_hook(lambda *_: self._leave_root(), always_call=True)

    def begin(self):
        self.end()
        self.phase = "forward"
        self._mode = _Uses(self)
        self._mode.__enter__()

    def end(self):
        if self._mode is not None:
            self._mode.__exit__(None, None, None)
        self._mode, self._inside = None, False

    def weight(self):
        return _weight(self.head)

    def record(self, name, arguments):
        """True where it is an event."""
        if self._inside or self.head is None:
            return False
        weight = self.weight()
        return any(argument is weight for argument in arguments) and self._event(name)

    def _event(self, name):
        if self._mode is None:
            return False
        weight = self.weight()
        self.events.append({
            "by": name, "phase": self.phase, "module": self._modules > 0, "grad": torch.is_grad_enabled(),
            "wrapper": any(running is self.wrapper for running in self._running),
            "redirected": self._redirections > 0,
            "gathered": any(p is weight or p is _weight(self.reference_head)
                            for scope in self._gathered for p in scope),
            "whole": weight.numel() > 0 and not hasattr(weight, "full_tensor")})
        return True

    def _decoder_called(self, *_):
        self._event("decoder")

    def _count(self, by):
        self._modules += by

    def _leave_root(self):
        self._running.pop()

    def _function_apply(self):
        """A fused loss is an autograd function: its apply gets the weight."""
        watch, base = self, torch.autograd.Function
        apply = base.__dict__["apply"].__func__

        def recorded(cls, *args, **kwargs):
            if not watch.record(cls.__name__, args):
                return apply(cls, *args, **kwargs)
            watch._inside = True
            try:
                return apply(cls, *args, **kwargs)
            finally:
                watch._inside = False

        base.apply = classmethod(recorded)

    def _autograd_backward(self):
        """torch leaves a mode when it calls backward under it; what recomputes there takes the weight again."""
        watch, original = self, torch.autograd._engine_run_backward

        @functools.wraps(original)
        def backward(*args, **kwargs):
            watch.phase = "backward"
            if watch._mode is None:
                return original(*args, **kwargs)
            with _Uses(watch):
                return original(*args, **kwargs)

        torch.autograd._engine_run_backward = backward

    @staticmethod
    def _wrap(owner, name, around):
        original = getattr(owner, name)

        @functools.wraps(original)
        def wrapped(self, *args, **kwargs):
            with around(self):
                return original(self, *args, **kwargs)

        setattr(owner, name, wrapped)

    @contextlib.contextmanager
    def _forward_of(self, wrapper):
        self._running.append(wrapper)
        try:
            yield
        finally:
            self._running.pop()

    @contextlib.contextmanager
    def _redirected(self, _):
        self._redirections += 1
        try:
            yield
        finally:
            self._redirections -= 1


def _weight(head):
    """Past DeepSpeed, which gathers a parameter that is read from its module."""
    return None if head is None else dict.get(head._parameters, "weight")


class _Uses(TorchFunctionMode):
    def __init__(self, watch):
        super().__init__()
        self._watch = watch

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "")
        if name in COMPUTES:
            self._watch.record(name, args)
        return func(*args, **(kwargs or {}))


def call_of(events, trainer):
    """What the events of one loss and its backward amount to, in the case's words: call, fixes, kernel. None where
    nothing was seen of them."""
    forward = [event for event in events if event["phase"] == "forward"]
    head = [event for event in forward if event["by"] != "decoder"]
    read = next((event for event in head if event["grad"] and not event["module"]), None)
    first = read or next((event for event in forward if event["grad"]), None)
    if first is None:
        return {"call": None, "fixes": None, "kernel": None}
    redirected = first["redirected"] and first["wrapper"]
    fixes = ["redirect"] if redirected else []
    if read is not None:
        # What a scope finds whole it does not gather: only one that made the head whole is the fix.
        fixes += ["gather"] if any(e["gathered"] for e in events if not e["module"] and e["by"] != "decoder") else []
    if trainer == "kto" and head and not any(event["module"] for event in head):
        fixes.append("kl_backbone")
    called = [event for event in head if event["grad"]]
    kernel = None if not called else "eager" if read is None else "recomputed" if any(
        e["phase"] == "backward" and e["by"] != "decoder" for e in events) else "fused"
    return {"call": "engine" if first["wrapper"] and not redirected else "direct", "fixes": sorted(fixes),
            "kernel": kernel, "read_by": read and read["by"], "whole": read and read["whole"]}
