#!/usr/bin/env python3
"""Ours and every peer that runs, all losses and shapes, against the bare products, in one process a shape.

    compare.py --op .../libregather_op.so --out kernels/results/h200.json [--shapes 0.5B,7B,8B] [--seconds S] [--warm]

Peers that are not installed, or fail, are rows with an error; those on CuTe want CUTE_DSL_LIBS set. `--warm` only calls each subject once, so that what it
compiles is in its caches. `--seconds`: of each shape; subjects that do not fit any more are rows with an error.
"""
import argparse
import gc
import importlib.metadata
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import time

import torch

import losses
import protocol
import subjects

ROWS = 8192
MOST_TRIAL_CALLS = 400


def clean():
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


def plan(data, loss):
    """What there is to measure of a loss, as functions that make it: a peer may fail where it is imported."""
    ours = {"sft": [(512, False), (1433, False), (512, True)], "grpo": [(512, False)]}.get(loss, [(0, False)])
    for mebibytes, wide in ours:
        yield "regather", lambda m=mebibytes, w=wide: subjects.of_ours(data, loss, m, w)
    yield "torch eager", lambda: subjects.of_torch(data, loss)
    yield "torch.compile", lambda: subjects.of_torch(data, loss, compiled=True)
    peers = subjects.sft_peers(data) if loss == "sft" else subjects.preference_peers(data, loss)
    for name, make in peers.items():
        yield name, lambda n=name, m=make: subjects.Subject(
            loss, n, False, subjects.with_gradients(m(), data.hidden, data.weight))


def numeric(value):
    """JSON has no NaN."""
    return value if math.isfinite(value) else "nan"


def measured(subject, bare, right, rounds):
    row = {"setting": subject.setting}
    clean()
    results = subject.work()
    if right is not None:
        row["hidden_error"] = numeric(losses.error(results[1], right[1]))
        row["weight_error"] = numeric(losses.error(results[2], right[2]))
        row["loss_error"] = numeric(abs(results[0].item() - right[0]) / abs(right[0]))
    row["weight_gradient"] = str(results[2].dtype).removeprefix("torch.")
    outputs = sum(r.numel() * r.element_size() for r in results)
    del results
    clean()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    subject.work()
    torch.cuda.synchronize()
    row["mib_beside_gradients"] = (torch.cuda.max_memory_allocated() - before - outputs) / 2**20
    if subject.ours:
        for _ in range(MOST_TRIAL_CALLS):
            if torch.ops.regather._products_settled(bare.hidden):
                break
            subject.work()
    base = bare.four if subject.loss.endswith("+ref") else bare.three
    return row | protocol.alternate(base, subject.work, rounds)


def one_shape(arguments, shape, sink):
    deadline = time.time() + arguments.seconds
    todo = [(ROWS, loss) for loss in ("sft", "grpo", "dpo", "kto", "dpo+ref", "kto+ref")]
    todo += [(4096, "sft"), (16384, "sft")]
    data = bare = None
    for rows, loss in todo:
        if data is None or len(data.hidden) != rows:
            data = bare = None
            clean()
            data = losses.Data(shape, rows)
            if rows == ROWS:
                data.add_parameters()
                data.add_reference_model()
            bare = None if arguments.warm else protocol.Bare(data.hidden, data.weight, data.targets)
        right = None
        if rows == ROWS and not arguments.warm:
            right = losses.exact(data.hidden, data.weight, data.targets, subjects.formula(data, loss))
        for name, make in plan(data, loss):
            # Flatness in the number of rows is ours to show.
            if rows != ROWS and name != "regather":
                continue
            row = {"run": 1, "shape": shape, "rows": rows, "loss": loss, "subject": name, "ours": name == "regather"}
            try:
                torch._dynamo.reset()
                if time.time() > deadline:
                    raise TimeoutError("no time left")
                subject = make()
                row["subject"] = subject.name
                if arguments.warm:
                    subject.work()
                else:
                    row |= measured(subject, bare, right, 5 if subject.ours else 3)
            except Exception as failure:  # a peer's failure is a result
                row["error"] = f"{type(failure).__name__}: {str(failure).strip()[:300]}"
            subject = None
            clean()
            sink.write(json.dumps(row) + "\n")
            sink.flush()
            print(*(f"{v:.4g}" if isinstance(v, float) else v for v in row.values()), flush=True)


def versions():
    found = {"torch": torch.__version__, "cuda": torch.version.cuda}
    for name in ("triton", "liger-kernel", "cut-cross-entropy", "quack-kernels", "nvidia-cutlass-dsl"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def write(path, rows):
    """A row a line."""
    head = {"schema": 1, "device": torch.cuda.get_device_name(), "versions": versions()}
    text = json.dumps(head)[:-1] + ',\n "rows": [\n  ' + ",\n  ".join(map(json.dumps, rows)) + "\n]}\n"
    pathlib.Path(path).write_text(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--op", required=True)
    parser.add_argument("--out")
    parser.add_argument("--shapes", default="0.5B,7B,8B")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--warm", action="store_true")
    parser.add_argument("--lines", help=argparse.SUPPRESS)  # of the process of one shape
    arguments = parser.parse_args()
    if arguments.lines:
        torch.ops.load_library(arguments.op)
        with open(arguments.lines, "a") as sink:
            one_shape(arguments, arguments.shapes, sink)
        return 0
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for shape in arguments.shapes.split(","):
            lines = pathlib.Path(folder, shape)
            lines.touch()
            command = [sys.executable, __file__, "--op", arguments.op, "--shapes", shape, "--lines", str(lines),
                       "--seconds", str(arguments.seconds)] + (["--warm"] if arguments.warm else [])
            subprocess.run(command, check=False)
            rows += [json.loads(line) for line in lines.read_text().splitlines()]
            if arguments.out:
                write(arguments.out, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
