"""One rank: makes the trainer, trains, and leaves behind what it saw and what the judge needs."""

import datetime
import functools
import json
import os
import re
import sys
import traceback

import torch
import torch.distributed as dist

from regather_peers import model as models
from regather_peers.trainers import RANKS, setting, shims
from regather_peers.trainers.observe import Watch, call_of

DEADLINE = 60  # seconds in a collective
PEER_LEFT = re.compile(r"Connection (closed|reset) by peer|Socket closed|Broken pipe|remote process exited")
TIMED_OUT = re.compile(r"Timed out waiting|Wait timeout")


def main(spec, rank, models_folder, folder):
    """Writes rank{N}.json, and rank{N}.pt with the steps."""
    run = Run(spec, rank, models_folder, folder)
    seen = run.run()
    torch.save(run.steps, os.path.join(folder, f"rank{rank}.pt"))
    with open(os.path.join(folder, f"rank{rank}.json"), "w", encoding="utf-8") as file:
        json.dump(seen, file)


class Run:
    def __init__(self, spec, rank, models_folder, folder):
        self.trainer_name, self.fused, self.backend = spec["trainer"], spec["fused"], spec["backend"]
        self.rank, self.models_folder, self.folder = rank, models_folder, folder
        self.phase, self.step = "build", 0
        self.steps = []
        self.watch = Watch()
        self.trainer = None

    def run(self):
        failure = None
        try:
            self.train()
        except BaseException as error:  # noqa: BLE001: whatever the packages raise is the outcome
            traceback.print_exc()
            failure = self.describe(error)
        self.watch.end()
        return {"failure": failure, **call_of(self.watch.events, self.trainer_name), "steps": len(self.steps),
                "events": self.watch.events}

    def describe(self, error):
        kind = type(error)
        text = re.sub(r"0x[0-9a-fA-F]+", "0x…", str(error)).replace(self.folder, "…")
        return {"phase": self.phase, "step": self.step, "text": text[:600],
                "type": ("" if kind.__module__ == "builtins" else f"{kind.__module__}.") + kind.__qualname__,
                "peer_left": bool(PEER_LEFT.search(text) or TIMED_OUT.search(text))}

    def train(self):
        torch.set_num_threads(1)
        os.environ.update(RANK=str(self.rank), LOCAL_RANK=str(self.rank), WORLD_SIZE=str(RANKS),
                          LOCAL_WORLD_SIZE=str(RANKS), MASTER_ADDR="127.0.0.1", MASTER_PORT="1")
        # A store of our own: no port, and accelerate and DeepSpeed take the group that they find.
        dist.init_process_group("gloo", store=dist.FileStore(os.path.join(self.folder, "store"), RANKS),
                                rank=self.rank, world_size=RANKS, timeout=datetime.timedelta(seconds=DEADLINE))
        shims.install(self.backend)
        self.watch.install()
        if self.backend.startswith("zero"):
            self.watch.install_deepspeed()
            self.observe_engine_step()
        self.trainer = setting.make(self.trainer_name, self.fused, self.backend, self.models_folder,
                                    self.folder)
        self.observe_loss()
        if not self.backend.startswith("zero"):
            self.observe_optimizer_step()
        self.trainer.train()

    def root(self):
        return self.trainer.accelerator.unwrap_model(self.trainer.model_wrapped)

    def observe_loss(self):
        original = self.trainer.compute_loss

        @functools.wraps(original)
        def compute_loss(model, inputs, *args, **kwargs):
            self.step, self.phase = len(self.steps), "observation"
            root = self.root()
            self.require_backend(model)
            reference = getattr(self.trainer, "ref_model", None)
            if reference is not None:
                reference = models.head(self.trainer.accelerator.unwrap_model(reference))
            self.watch.of(model, models.causal_lm(root).base_model, models.head(root), reference)
            items = kwargs.get("num_items_in_batch")
            self.steps.append({"batch": {name: _copy(value) for name, value in inputs.items()}, "gradients": None,
                               "items": None if items is None else float(items), "weights": self.whole(root)})
            self.phase = "forward"
            self.watch.begin()
            loss = original(model, inputs, *args, **kwargs)
            self.phase = "backward"
            return loss

        self.trainer.compute_loss = compute_loss

    def require_backend(self, wrapper):
        """accelerate falls back to plain DDP, or to nothing, without a word."""
        made = type(wrapper).__name__
        if hasattr(wrapper, "zero_optimization_stage"):
            made = f"zero{wrapper.zero_optimization_stage()}"
        elif hasattr(wrapper, "reshard"):
            made = "fsdp2"
        elif made == "DistributedDataParallel":
            made = "ddp"
        if made != self.backend:
            raise AssertionError(f"the trainer's wrapper is {made}, not {self.backend}")

    def observe_optimizer_step(self):
        import transformers
        run = self

        class BeforeStep(transformers.TrainerCallback):
            def on_pre_optimizer_step(self, *_, **__):
                run.take_gradients(lambda p: p.grad.full_tensor() if hasattr(p.grad, "full_tensor") else p.grad)

        self.trainer.add_callback(BeforeStep())

    def observe_engine_step(self):
        """accelerate's backward takes DeepSpeed's step as well: nothing of Trainer's comes between."""
        import deepspeed
        from deepspeed.utils import safe_get_full_grad
        original = deepspeed.DeepSpeedEngine.step

        @functools.wraps(original)
        def step(engine, *args, **kwargs):
            self.take_gradients(safe_get_full_grad)
            return original(engine, *args, **kwargs)

        deepspeed.DeepSpeedEngine.step = step

    def take_gradients(self, full):
        self.watch.end()
        self.phase = "gradients"
        found = {name: full(p) for name, p in models.named(self.root()).items() if p.requires_grad}
        self.steps[-1]["gradients"] = {name: None if g is None else g.detach().clone() for name, g in found.items()}
        self.phase = "step"

    def whole(self, root):
        """Every parameter, in collectives that change nothing of what a backend keeps of it."""
        from regather_peers.backends.zero import whole
        with torch.no_grad():
            return {name: p.full_tensor().clone() if hasattr(p, "full_tensor") else whole(p)
                    for name, p in models.named(root).items()}


def _copy(value):
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def live(spec, rank, models_folder, folder):
    """The whole life of a rank process, with a log of its own."""
    status = 1
    try:
        log = os.open(os.path.join(folder, f"rank{rank}.log"), os.O_WRONLY | os.O_CREAT)
        os.dup2(log, 1)
        os.dup2(log, 2)
        main(spec, rank, models_folder, folder)
        status = 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
