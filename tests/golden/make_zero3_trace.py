#!/usr/bin/env python3
"""Writes tests/data/golden/zero3-trace.txt: which parameters DeepSpeed's ZeRO-3 has gathered, submodule by submodule,
while it records an order, gathers ahead by it and finds it wrong. Two ranks on a CPU, over gloo; rank 0 writes.

The model is second(norm(first(x))): first.weight 15 elements, first.bias 5, norm.weight 5, second.weight 10.

    == NAME: persistence_threshold prefetch_bucket_size max_live_parameters max_reuse_distance norm_is_frozen
    PASS Fr STATES; Ff STATES; ... -> STATES; gathers N, ahead N, releases N, stale N[; fails]

F and B are a fetch before a submodule's forward and backward, r f n s the submodules (root, first, norm, second); STATES
are those of the four parameters right after it (. partitioned, i in flight, a available), after the arrow at the end of
the pass. Numbers are of parameters in this pass, stale of recorded orders found wrong. PASS is one of

    T  forward, backward, step                 A  no step
    E  forward without grad                    S  without norm
    W  norm twice                              X  the forward throws after norm
    Y  ... after first                         Z  norm's backward throws
    D  reads second's weight and multiplies, instead of calling second
    L  reads norm's weight once more after second
    G  gathers second's weight for a scope after first
    H  ... after norm
    C  all under a non-reentrant checkpoint    R  under a reentrant one
    U  non-reentrant, determinism_check="none"

usage: make_zero3_trace.py [FILE]   (default: tests/data/golden/zero3-trace.txt beside this script; requirements.txt)
"""

import importlib.metadata
import logging
import os
import pathlib
import sys

BIG = 10**9
DEFAULT = 50_000_000
SCENARIOS = [
    ("defaults", 0, DEFAULT, BIG, BIG, 0, "TTT"),
    ("persistent", 5, DEFAULT, BIG, BIG, 0, "TTT"),
    ("all persistent", 10**15, DEFAULT, BIG, BIG, 0, "TTT"),
    ("small bucket", 0, 12, BIG, BIG, 0, "TTT"),
    ("small bucket, no reuse", 0, 12, BIG, 0, 0, "TTT"),
    ("few live", 0, 100, 20, 0, 0, "TTT"),
    ("bucket and live", 0, 20, 30, 0, 0, "TTT"),
    ("nothing ahead", 0, 0, BIG, BIG, 0, "TTT"),
    ("nothing ahead, no reuse", 0, 0, BIG, 0, 0, "TTT"),
    ("evaluation is recorded", 0, 12, BIG, 0, 0, "ETTTT"),
    ("evaluation second", 0, DEFAULT, BIG, BIG, 0, "TETTT"),
    ("evaluation second, small", 0, 12, BIG, 0, 0, "TETTT"),
    ("evaluation between steps", 0, 12, BIG, 0, 0, "TTETT"),
    ("evaluation between steps, persistent", 5, DEFAULT, BIG, BIG, 0, "TTETT"),
    ("shorter path", 0, 12, BIG, 0, 0, "TTSTTT"),
    ("shorter path, persistent", 5, DEFAULT, BIG, BIG, 0, "TTSTTT"),
    ("longer path", 0, 12, BIG, 0, 0, "TTWTTT"),
    ("longer path stays", 0, DEFAULT, BIG, BIG, 0, "TTWWWTTT"),
    ("longer path stays, some reuse", 0, 10, BIG, 30, 0, "TTWWWTTT"),
    ("forward throws", 0, 12, BIG, 0, 0, "TTXTTT"),
    ("forward throws early", 0, 12, BIG, 0, 0, "TTYTTT"),
    ("forward throws, persistent", 5, DEFAULT, BIG, BIG, 0, "TTXTTT"),
    ("forward throws while recording", 0, 12, BIG, 0, 0, "XTTTTT"),
    ("backward throws", 0, 12, BIG, 0, 0, "TTZ"),
    ("two micro-batches", 0, 12, BIG, 0, 0, "ATATAT"),
    ("two micro-batches, persistent", 5, DEFAULT, BIG, BIG, 0, "ATATAT"),
    ("direct read", 0, DEFAULT, BIG, BIG, 0, "DDD"),
    ("direct read, small", 0, 12, BIG, 0, 0, "DDD"),
    ("evaluation, then direct read", 0, DEFAULT, BIG, BIG, 0, "ED"),
    ("evaluation, then direct read, nothing ahead", 0, 0, BIG, BIG, 0, "EDD"),
    ("direct read, evaluation between", 0, DEFAULT, BIG, BIG, 0, "DDEDD"),
    ("training, then direct read", 0, 12, BIG, BIG, 0, "TTD"),
    ("late read", 0, 0, BIG, 0, 0, "TTL"),
    ("late read, all ahead", 0, DEFAULT, BIG, BIG, 0, "TTLT"),
    ("checkpoint", 0, DEFAULT, BIG, BIG, 0, "CCC"),
    ("checkpoint, small", 0, 12, BIG, 0, 0, "CCC"),
    ("checkpoint, nothing ahead, no reuse", 0, 0, BIG, 0, 0, "CCC"),
    ("reentrant checkpoint, small", 0, 12, BIG, 0, 1, "RRR"),
    ("frozen norm under a checkpoint", 10**5, DEFAULT, BIG, BIG, 1, "C"),
    ("frozen norm under a checkpoint, unchecked at first", 0, DEFAULT, BIG, BIG, 1, "UCCC"),
    ("frozen norm, unchecked at first, persistent", 5, DEFAULT, BIG, BIG, 1, "UCC"),
    ("frozen norm, unchecked at first, small", 0, 12, BIG, 0, 1, "UCC"),
    ("frozen norm, unchecked at first, nothing ahead", 0, 0, BIG, BIG, 1, "UCC"),
    ("frozen norm, unchecked at first, no reuse", 0, 0, BIG, 0, 1, "UC"),
    ("frozen norm, an evaluation is recorded", 0, DEFAULT, BIG, BIG, 1, "EUC"),
    ("scope round what is in flight", 0, 12, BIG, BIG, 0, "TTG"),
    ("scope round what is awaited", 0, 12, BIG, BIG, 0, "TTH"),
]


def run(rank, port, path):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port,
                      OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="", DS_ACCELERATOR="cpu")
    import deepspeed
    import deepspeed.comm.torch
    import torch
    from deepspeed.runtime.zero import partition_parameters
    from deepspeed.runtime.zero.partition_parameters import GatheredParameters, ZeroParamStatus
    from deepspeed.runtime.zero.partitioned_param_coordinator import PartitionedParameterCoordinator as Coordinator
    from torch.utils.checkpoint import checkpoint

    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # compiles for minutes
    deepspeed.init_distributed(dist_backend="gloo", auto_mpi_discovery=False)
    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    letters = {ZeroParamStatus.NOT_AVAILABLE: ".", ZeroParamStatus.INFLIGHT: "i", ZeroParamStatus.AVAILABLE: "a"}
    counts = {}
    fetches = []
    now = {}

    class Thrown(Exception):
        pass

    class Norm(torch.nn.Module):

        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(5))

        def forward(self, x):
            return self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)

    class Model(torch.nn.Module):

        def __init__(self):
            super().__init__()
            self.first = torch.nn.Linear(3, 5)
            self.norm = Norm()
            self.second = torch.nn.Linear(5, 2, bias=False)

        def forward(self, x):
            return BODIES[now["pass"]](self, x)

    class ThrowInBackward(torch.autograd.Function):

        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            raise Thrown

    def plain(m, x):
        return m.second(m.norm(m.first(x)))

    def throw_after(function):

        def body(m, x):
            function(m, x)
            raise Thrown

        return body

    def direct(m, x):
        hidden = m.norm(m.first(x))
        return hidden @ m.second.weight.t()

    def late(m, x):
        y = plain(m, x)
        return y + 0 * m.norm.weight.sum()

    def scope_after_first(m, x):
        y = m.first(x)
        with GatheredParameters([m.second.weight]):
            pass
        return m.second(m.norm(y))

    def scope_after_norm(m, x):
        y = m.norm(m.first(x))
        with GatheredParameters([m.second.weight]):
            pass
        return m.second(y)

    def checkpointed(**options):
        return lambda m, x: checkpoint(lambda x: plain(m, x), x, **options)

    BODIES = {
        "T": plain,
        "A": plain,
        "E": plain,
        "S": lambda m, x: m.second(m.first(x)),
        "W": lambda m, x: m.second(m.norm(m.norm(m.first(x)))),
        "X": throw_after(lambda m, x: m.norm(m.first(x))),
        "Y": throw_after(lambda m, x: m.first(x)),
        "Z": lambda m, x: m.second(ThrowInBackward.apply(m.norm(m.first(x)))),
        "D": direct,
        "L": late,
        "G": scope_after_first,
        "H": scope_after_norm,
        "C": checkpointed(use_reentrant=False),
        "R": checkpointed(use_reentrant=True),
        "U": checkpointed(use_reentrant=False, determinism_check="none"),
    }

    def states():
        return "".join(letters[p.ds_status] for p in now["model"].parameters())

    def count(kind, number):
        counts[kind] = counts.get(kind, 0) + number

    def partitioned(params):
        return sum(p.ds_status == ZeroParamStatus.NOT_AVAILABLE for p in params)

    def wrap(owner, name, before=None, after=None):
        original = getattr(owner, name)

        def wrapped(self, *args, **kwargs):
            if before:
                before(self, *args, **kwargs)
            result = original(self, *args, **kwargs)
            if after:
                after(self, *args, **kwargs)
            return result

        setattr(owner, name, wrapped)

    def before_fetch(self, module, forward):
        now["submodule"] = module

    def after_fetch(self, module, forward):
        fetches.append(f"{'F' if forward else 'B'}{module.letter} {states()}")

    def before_gather(self, params, forward, quantize=False):
        params = list(params)
        own = {id(p) for _, p in now["submodule"].named_parameters(recurse=False)}
        own |= {id(p) for _, p in now["submodule"].ds_external_parameters()}
        count("gathers", partitioned(params))
        if not all(id(p) in own for p in params):
            count("ahead", partitioned(params))

    def before_partition(self, params, *args, **kwargs):
        count("releases", sum(p.ds_status == ZeroParamStatus.AVAILABLE for p in params))

    private = "_PartitionedParameterCoordinator__"
    wrap(Coordinator, "fetch_sub_module", before_fetch, after_fetch)
    wrap(Coordinator, private + "all_gather_params_", before_gather)
    wrap(Coordinator, "_invalidate_trace", lambda self: count("stale", 1))
    wrap(partition_parameters.Init, "_all_gather", lambda self, params, **kwargs: count("gathers", partitioned(params)))
    wrap(partition_parameters.Init, "_partition", before_partition)

    def engine_for(persistence, bucket, live, reuse, frozen):
        torch.manual_seed(3)
        model = Model()
        model.norm.weight.requires_grad_(not frozen)
        zero = {
            "stage": 3,
            "stage3_param_persistence_threshold": persistence,
            "stage3_prefetch_bucket_size": bucket,
            "stage3_max_live_parameters": live,
            "stage3_max_reuse_distance": reuse,
        }
        config = {
            "train_micro_batch_size_per_gpu": 4,
            "zero_allow_untested_optimizer": True,
            "zero_force_ds_cpu_optimizer": False,
            "zero_optimization": zero,
        }
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)
        engine = deepspeed.initialize(model=model, optimizer=optimizer, config=config)[0]
        for name, module in model.named_modules():
            module.letter = name[:1] or "r"
        now["model"] = model
        return engine

    def run_pass(engine, kind, x):
        if kind == "E":
            with torch.no_grad():
                engine(x)
            return
        loss = engine(x).square().sum()
        engine.backward(loss)
        if kind != "A":
            engine.step()

    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(17 + rank))
    x_for_checkpoint = x.clone().requires_grad_()
    lines = []
    for name, *limits, passes in SCENARIOS:
        engine = engine_for(*limits)
        lines.append(f"== {name}: {' '.join(map(str, limits))}")
        for kind in passes:
            counts.clear()
            fetches.clear()
            now["pass"] = kind
            engine.set_gradient_accumulation_boundary(kind != "A")
            end = ""
            try:
                run_pass(engine, kind, x_for_checkpoint if kind in "CRU" else x)
            except (Thrown, AssertionError, RuntimeError) as error:
                end = "; fails"
                count("stale", "tracing error" in str(error))
            numbers = ", ".join(f"{k} {counts.get(k, 0)}" for k in ("gathers", "ahead", "releases", "stale"))
            lines.append(f"{kind} {'; '.join(fetches)} -> {states()}; {numbers}{end}")
    if rank == 0:
        path.write_text("\n".join(lines) + "\n")
    torch.distributed.barrier()
    os._exit(0)  # no orderly end of half-done engines


def main():
    import torch.multiprocessing

    if len(sys.argv) > 2:
        sys.exit(__doc__)
    here = pathlib.Path(__file__).resolve().parent
    pinned = dict(line.split("==") for line in (here / "requirements.txt").read_text().split() if "==" in line)
    for package in ("deepspeed", "torch"):
        found = importlib.metadata.version(package).split("+")[0]
        if found != pinned[package]:
            sys.exit(f"{package} {found}: expected {pinned[package]} (see requirements.txt)")
    path = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here.parent / "data/golden/zero3-trace.txt"
    torch.multiprocessing.spawn(run, args=(str(20000 + os.getpid() % 20000), path), nprocs=2)


if __name__ == "__main__":
    main()
