"""One rank of a group: answers one job a line on its socket, and runs a case as src/train/rank_run.cpp does: build,
then forward, backward, compare, step, compare, for each optimizer step."""

import contextlib
import faulthandler
import gc
import json
import math
import os
import re
import signal
import time
import traceback
import warnings

import torch
import torch.distributed as dist

from regather_peers import backends, collectives, fixes, losses, mechanism
from regather_peers import model as models
from regather_peers.case import parse_id
from regather_peers.compare import difference, digest, update_share
from regather_peers.given import Given
from regather_peers.result import departure

# What gloo and NCCL say when another rank has gone: whoever left says why.
PEER_LEFT = re.compile(r"Connection (closed|reset) by peer|Socket closed|Broken pipe|remote process exited")
TIMED_OUT = re.compile(r"Timed out waiting|Wait timeout|Watchdog caught collective operation timeout")
WITHOUT_GRAPH = "None of the inputs have requires_grad=True"


def serve(connection, rank, world, store, box, device, deadline, stack_file):
    """The whole life of a rank process; `connection` is a stream socket of JSON lines."""
    faulthandler.enable(stack_file)
    faulthandler.register(signal.SIGUSR1, stack_file, all_threads=True)
    gc.freeze()  # what was imported is never garbage: a collection after each case looks at the case alone
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), LOCAL_WORLD_SIZE=str(world),
                      MASTER_ADDR="127.0.0.1", MASTER_PORT="1")
    where = torch.device(device)
    if device == "cuda":
        where = _take_gpu(rank)
    collectives.begin(device, rank, world, store, deadline)
    with connection.makefile("rw", encoding="utf-8") as lines:
        for line in lines:
            job = json.loads(line)
            run = RankRun(parse_id(job["id"]), job["file"], rank, box, where, bool(job.get("record")))
            answer = run.run()
            run = None
            gc.collect()
            lines.write(json.dumps(answer) + "\n")
            lines.flush()
    os._exit(0)  # graphs and engines have no order of destruction to rely on


def loss_scale(batch, loss):
    """What the rounding of a loss follows: the size of the terms that it is a mean of (grpo's have both signs)."""
    return max(abs(loss), batch["advantages"].abs().mean().item()) if "advantages" in batch else abs(loss)


def _take_gpu(rank):
    """Ranks share a GPU when there are fewer than ranks: NCCL takes them for ranks of different hosts then."""
    count = torch.cuda.device_count()
    if rank >= count:
        os.environ.update(NCCL_HOSTID=f"regather-{rank}", NCCL_SOCKET_IFNAME="lo", NCCL_IB_DISABLE="1")
    where = torch.device("cuda", rank % count)
    torch.cuda.set_device(where)
    return where


class RankRun:
    def __init__(self, case, file, rank, box, device, record):
        self.case, self.rank, self.box, self.device, self.record = case, rank, box, device, record
        self.file = file
        self.step, self.phase = 0, "build"
        self.departures = []
        self.evidence = set()
        self.loss = None
        self.counters = {}
        self.summary = {"compared": 0, "worst": "", "relative_l2": 0.0, "cosine": 1.0, "tolerance": 0.0, "share": 0.0,
                        "max_abs": 0.0, "at": [], "got": 0.0, "want": 0.0, "missing": 0, "unexpected": 0,
                        "nonfinite": 0}
        self.backend = self.reference = self.reference_engine = None
        self.hook_calls, self.hooked_twice = {}, set()
        self.recomputed = set()
        self.wrapper_depth = 0
        self.peer_left = False

    def enter(self, step, phase):
        self.step, self.phase = step, phase
        self.box.enter(self.rank, step, phase)

    def depart(self, outcome, kind, text):
        made = departure(outcome, self.phase, self.step, self.rank, kind, text)
        made["signature"]["mechanism"] = mechanism.of(made, self.case.backend, self.evidence)
        self.departures.append(made)

    def run(self):
        begin = time.monotonic()
        with warnings.catch_warnings(record=True) as self.warned, contextlib.ExitStack() as stack:
            warnings.simplefilter("always")
            try:
                self.enter(0, "build")
                self.build(stack)
                for step in range(self.case.optimizer_steps):
                    self.train_step(step)
            except Exception as error:  # noqa: BLE001: whatever the packages raise is the case's outcome
                self.fail(error)
            self.close()
        result = {"departures": self.departures, "gradients": self.summary, "loss": self.loss,
                  "counters": self.counters, "peak_bytes": None}
        # An error leaves hooks, streams and parameters wherever they were.
        dirty = any(d["outcome"] in ("error", "hang", "oom") for d in self.departures) or self.peer_left
        return {"result": result, "dirty": dirty, "milliseconds": (time.monotonic() - begin) * 1e3}

    def fail(self, error):
        text = re.sub(r"0x[0-9a-fA-F]+", "0x…", str(error))
        kind = type(error).__qualname__
        if type(error).__module__ != "builtins":
            kind = f"{type(error).__module__}.{kind}"
        if os.environ.get("REGATHER_PEERS_TRACEBACK"):
            traceback.print_exc()
        if PEER_LEFT.search(text):
            self.peer_left = True
            return
        outcome = "hang" if TIMED_OUT.search(text) else "oom" if isinstance(error, (
            MemoryError, torch.cuda.OutOfMemoryError)) else "error"
        self.look_at(text)
        self.depart(outcome, kind, text)

    def look_at(self, text):
        """Evidence at the time of an error."""
        self.look_at_warnings()
        if self.backend is None:
            return
        if any(p.numel() == 0 for p in models.head(self.backend.root).parameters()):
            self.evidence.add("head_partitioned")
        if self.reference is not None and any(p.numel() == 0 for p in models.head(self.reference).parameters()):
            self.evidence.add("head_partitioned")
        for name, p in models.named(self.backend.root).items():
            if p.requires_grad and p.numel() == 0 and id(p) in self.recomputed and name not in self.hook_calls:
                self.evidence.add("trainable_parameter_recomputed_empty")
        saved = re.findall(r"saved metadata: \{'shape': torch.Size\((\[\d+\])\)", text)
        empty = re.findall(r"recomputed metadata: \{'shape': torch.Size\(\[0\]\)", text)
        frozen = {str(list(getattr(p, "ds_shape", p.shape))) for p in self.backend.root.parameters()
                  if not p.requires_grad}
        if saved and len(empty) == len(saved) and set(saved) <= frozen:
            self.evidence.add("frozen_parameter_recomputed_empty")

    def look_at_warnings(self):
        if any(WITHOUT_GRAPH in str(w.message) for w in self.warned):
            self.evidence.add("checkpoint_without_graph")

    def build(self, stack):
        case = self.case
        if case.zero_stage:
            from regather_peers.backends.zero import prepare_package
            prepare_package()
        if case.early_stop == "off":
            stack.enter_context(torch.utils.checkpoint.set_checkpoint_early_stop(False))
        self.given = Given(self.file)
        self.summary["tolerance"] = self.given.tolerance
        self.before = self.given.initial()
        root = models.prepare(self.given, case)
        for name, parameter in models.named(root).items():
            if parameter.requires_grad:
                parameter.register_hook(self.counting_hook(name))
        self.backend = backends.make(case, root, self.given, self.device)
        if case.own_reference:
            self.reference = models.build(self.given, self.given.reference_model(), models.DTYPES[case.dtype])
            self.reference.to(self.device).eval()
            self.reference_engine = backends.shard_reference(case, self.reference, self.device)
        stack.enter_context(fixes.known_to_transformers(case))
        self.watch_root(root)
        self.watch_recomputes(root)
        scope = self.noted(fixes.head_scope(case, self.backend))
        self.parts = losses.Parts(root, scope, fixes.kl_logits(case, self.call), self.reference, scope,
                                  self.mean_over_ranks)
        self.enter_loss = fixes.entry(case, self.backend)

    def noted(self, scope):
        """The scope of a head's direct use, which leaves evidence that there was one."""
        @contextlib.contextmanager
        def around(head):
            self.evidence.add("head_read_directly")
            with scope(head) as parameters:
                yield parameters

        return around

    def watch_recomputes(self, root):
        """Which parameters a recompute in backward has used."""
        def used(module, *_):
            if self.phase == "backward":
                self.recomputed.update(id(p) for p in module.parameters(recurse=False))

        for layer in models.layers(root):
            for module in layer.modules():
                module.register_forward_hook(used)

    def counting_hook(self, name):
        def count(_):
            self.hook_calls[name] = self.hook_calls.get(name, 0) + 1
            if self.hook_calls[name] > 1:
                self.hooked_twice.add(name)
        return count

    def watch_root(self, root):
        """Whether the model is called while a call of it is in progress."""
        def begin(*_):
            self.wrapper_depth += 1
            if self.wrapper_depth > 1:
                self.evidence.add("root_called_again")

        def end(*_):
            self.wrapper_depth -= 1

        root.register_forward_pre_hook(begin)
        root.register_forward_hook(end, always_call=True)

    def call(self, root, input_ids):
        """A whole model's logits: through the wrapper when the case's own call is the wrapper's."""
        through = self.case.call == "engine" and root is self.backend.root and self.wrapper_depth == 0
        return losses.logits_of(self.backend.wrapper if through else root, input_ids)

    def mean_over_ranks(self, value):
        total = value.detach().clone()
        dist.all_reduce(total)
        return total / dist.get_world_size()

    def forward(self, batch):
        case = self.case
        if case.kernel == "eager":
            root = self.backend.root
            return self.enter_loss(lambda: losses.eager(self.parts, case, batch, lambda ids: self.call(root, ids)))
        if case.call == "direct":
            return self.enter_loss(lambda: losses.compute(self.parts, case, batch))
        return self.inside_forward(batch)

    def inside_forward(self, batch):
        """call=engine: the model's own forward computes the loss, as TRL's patched forwards do when they are given
        labels; without them it is what it was."""
        root = self.backend.root
        original = root.forward

        def forward(*args, labels=None, **kwargs):
            if labels is None:
                return original(*args, **kwargs)
            return losses.compute(self.parts, self.case, batch)

        root.forward = forward
        try:
            return self.backend.wrapper(input_ids=batch["input_ids"], labels=batch["labels"])
        finally:
            root.forward = original

    def train_step(self, step):
        self.enter(step, "forward")
        self.backend.zero_gradients()
        self.hooked_twice.clear()
        for micro in range(self.case.micro_batches):
            last = micro + 1 == self.case.micro_batches
            with self.backend.micro_step(last):
                self.enter(step, "forward")
                batch = {name: t.to(self.device) for name, t in self.given.batch(step, micro, self.rank).items()}
                want = self.given.losses(step, micro)[self.rank]
                loss = self.forward(batch)
                self.check_loss(want, loss_scale(batch, want), loss)
                self.enter(step, "backward")
                self.hook_calls.clear()
                self.recomputed.clear()
                self.backend.backward(loss, last)
        self.enter(step, "gradients")
        self.check_gradients(step)
        self.enter(step, "step")
        self.backend.step()
        self.check_update(step)
        self.check_invariants(step)

    def check_loss(self, want, scale, loss):
        pair = {"got": loss.detach().double().item(), "want": want}
        far = abs(pair["got"] - want)
        if self.loss is None or not far <= abs(self.loss["got"] - self.loss["want"]):
            self.loss = pair
        if not math.isfinite(pair["got"]):
            self.depart("nonfinite", "loss", f"loss {pair['got']}, expected {want:.9g}")
        elif far > self.given.tolerance * scale:
            self.depart("invariant", "loss", f"loss {pair['got']:.9g}, expected {want:.9g}")

    def check_gradients(self, step):
        right = self.given.gradients(step)
        got = self.backend.full_gradients()
        worst, worst_name, missing, nonfinite = None, "", 0, 0
        for name in self.given.trainable:
            gradient = got.get(name)
            self.summary["compared"] += 1
            absent = gradient is None or not gradient.count_nonzero().item()
            missing += absent and bool(right[name].count_nonzero().item())
            apart = difference(torch.zeros_like(right[name]) if gradient is None else gradient, right[name])
            nonfinite += apart["nonfinite"]
            if worst is None or apart["relative_l2"] > worst["relative_l2"]:
                worst, worst_name = apart, name
        unexpected = sum(p.grad is not None for p in self.backend.root.parameters() if not p.requires_grad)
        self.note(worst, worst_name, missing, unexpected, nonfinite)
        self.compare_with_runtime(step, got)
        wrong = nonfinite > 0 or unexpected > 0 or not worst["relative_l2"] <= self.given.tolerance
        hashes, anywhere = self.agree(digest(got.values()), wrong)
        if anywhere:
            self.look_at_gradients(got, right, missing)
        if nonfinite > 0:
            self.depart("nonfinite", "gradient", f"{nonfinite} entries of the gradients are not finite")
        elif unexpected > 0:
            self.depart("wrong_gradient", "gradient", f"{unexpected} frozen parameter(s) have a gradient")
        elif wrong:
            lost = f"; {missing} gradient(s) missing or zero" if missing else ""
            self.depart("wrong_gradient", "gradient",
                        f"{worst_name}: relative L2 error {worst['relative_l2']:.3g}{lost}")
        self.enter(step, "invariant")
        if len(set(hashes)) > 1:
            self.depart("invariant", "gradients across ranks", "the ranks hold different gradients")
        for name in sorted(self.hooked_twice):
            self.depart("invariant", "hook", f"the hook of {name} fired more than once in one backward")

    def note(self, worst, name, missing, unexpected, nonfinite):
        s = self.summary
        s["missing"] += missing
        s["unexpected"] += unexpected
        s["nonfinite"] += nonfinite
        if not s["worst"] or worst["relative_l2"] > s["relative_l2"]:
            s.update({key: worst[key] for key in ("relative_l2", "cosine", "max_abs", "at", "got", "want")}, worst=name,
                     share=worst["relative_l2"] / self.given.tolerance)

    def compare_with_runtime(self, step, got):
        """How far the runtime's gradients of the same rank lie from these, where it has run the case."""
        theirs = self.given.runtime_gradients(step, self.rank) if self.record else {}
        for name, gradient in theirs.items():
            mine = got.get(name)
            apart = difference(torch.zeros_like(gradient) if mine is None else mine, gradient)["relative_l2"]
            self.counters["runtime_relative_l2"] = max(apart, self.counters.get("runtime_relative_l2", 0.0))

    def agree(self, own_digest, wrong):
        """Every rank's digest, and whether any rank's gradients are wrong."""
        mine = torch.tensor([own_digest, int(wrong)], device=self.device)
        every = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(every, mine)
        return [int(e[0]) for e in every], any(int(e[1]) for e in every)

    def look_at_gradients(self, got, right, missing):
        """Evidence about wrong gradients; a collective."""
        self.look_at_warnings()
        if missing:
            self.evidence.add("missing_gradients")
        if self.backend.bypassed_units():
            self.evidence.add("unit_without_forward")
        if self.case.micro_batches > 1 and self.backend.counts_no_micro_batch():
            self.evidence.add("micro_batches_not_counted")
        names = self.given.trainable
        flat = torch.cat([(torch.zeros_like(right[n]) if got.get(n) is None else got[n].detach().double().cpu()).flatten()
                          for n in names])
        want = torch.cat([right[n].flatten() for n in names])

        def close(candidate):
            return (candidate - want).norm() <= 10 * self.given.tolerance * want.norm()

        mean = flat.to(self.device, copy=True)
        dist.all_reduce(mean)
        mean = mean.cpu() / dist.get_world_size()
        if close(mean) and not close(flat):
            self.evidence.add("mean_over_ranks_is_right")
        if self.case.micro_batches > 1 and close(flat / self.case.micro_batches):
            self.evidence.add("gradients_scaled_by_accumulation")

    def check_update(self, step):
        want = self.given.updates(step)
        after = {name: p.cpu() for name, p in self.backend.full_parameters().items()}
        worst, worst_name = 0.0, ""
        for name, parameter in after.items():
            share = update_share(self.before[name], parameter, want[name], self.given.tolerance, self.given.rounding)
            if not share <= worst:
                worst, worst_name = share, name
        self.before = after
        self.counters["update_share"] = max(self.counters.get("update_share", 0.0), worst)
        if not worst <= 1:
            self.depart("invariant", "update", f"{worst_name}: the step uses {worst:.3g} times its tolerance")

    def check_invariants(self, step):
        self.enter(step, "invariant")
        for part in (self.backend, self.reference_engine):
            for broken in part.broken_invariants() if part else ():
                self.depart("invariant", "lifecycle", broken)
        base = models.causal_lm(self.backend.root)
        if self.case.head == "tied" and base.lm_head.weight is not base.model.embed_tokens.weight:
            self.depart("invariant", "tie", "the head's weight is no longer the embedding's")

    def close(self):
        for part in (self.reference_engine, self.backend):
            if part is not None:
                with contextlib.suppress(Exception):  # after an error the group is replaced anyway
                    part.close()
        self.backend = self.reference = self.reference_engine = self.parts = self.enter_loss = None
