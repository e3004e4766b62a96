#!/usr/bin/env python3
"""Ours, torch eager, torch.compile and Liger's chunked losses on the CPU, in one process.

    compare_cpu.py --op .../libregather_op.so --out kernels/results/cpu.json [--rounds 5] [--dtypes float32,bfloat16]

Head of Qwen2.5-0.5B, 256 tokens (two sequences of 128), two threads. Rounds go over all subjects of a loss, so that
what else the machine does falls on all; a row has the medians of wall and processor time, and how many times ours'
wall time of the same round, as a median. Memory: the peak beside inputs and gradients.
"""
import argparse
import ctypes
import gc
import json
import math
import pathlib
import platform
import statistics
import time

import torch

import losses

losses.DEVICE, losses.LENGTH = "cpu", 128
import subjects  # noqa: E402  reads LENGTH

ROWS = 256


def status(key):
    """MiB."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key)) / 1024


def peak_mib(work):
    """Of one call, beside the gradients that it returns."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # or what earlier calls have freed would be there already
    before = status("VmRSS")
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    results = work()
    return status("VmHWM") - before - sum(r.numel() * r.element_size() for r in results) / 2**20


def timed(work):
    gc.collect()
    wall, processor = time.perf_counter(), time.process_time()
    results = work()
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    del results
    return wall, processor


def plan(data, loss):
    yield lambda: subjects.of_ours(data, loss, 512)
    yield lambda: subjects.of_torch(data, loss)
    yield lambda: subjects.of_torch(data, loss, compiled=True)
    if loss != "sft":
        for name, make in subjects.preference_peers(data, loss).items():
            yield lambda n=name, m=make: subjects.Subject(
                loss, n, False, subjects.with_gradients(m(), data.hidden, data.weight))


def measured(data, loss, dtype, rounds):
    right = losses.exact(data.hidden, data.weight, data.targets, subjects.formula(data, loss))
    rows, works = [], []
    for make in plan(data, loss):
        subject = make()
        row = {"loss": loss, "dtype": dtype, "subject": subject.name}
        try:
            found = subject.work()
            for name, ours, exact in zip(("hidden_error", "weight_error"), found[1:], right[1:]):
                value = losses.error(ours, exact)
                row[name] = value if math.isfinite(value) else "nan"
            del found
            row["mib_beside_gradients"] = peak_mib(subject.work)
            works.append((row, subject.work, []))
        except Exception as failure:  # a peer's failure is a result
            row["error"] = f"{type(failure).__name__}: {str(failure).strip()[:300]}"
        rows.append(row)
    for _ in range(rounds):
        for _, work, times in works:
            times.append(timed(work))
    ours = [wall for wall, _ in works[0][2]]
    for row, _, times in works:
        row["seconds"] = statistics.median(wall for wall, _ in times)
        row["processor_seconds"] = statistics.median(processor for _, processor in times)
        row["times_ours"] = statistics.median(wall / mine for (wall, _), mine in zip(times, ours))
    return rows


def processor():
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    flags = next(line for line in lines if line.startswith("flags")).split()
    return {"model": next(line for line in lines if line.startswith("model name")).split(":")[1].strip(),
            "units": [unit for unit in ("avx2", "avx512f", "amx_bf16") if unit in flags]}


def write(path, rows):
    """A row a line."""
    head = {"schema": 1, "machine": platform.machine(), "processor": processor(), "threads": 2, "tokens": ROWS,
            "torch": torch.__version__}
    text = json.dumps(head)[:-1] + ',\n "rows": [\n  ' + ",\n  ".join(map(json.dumps, rows)) + "\n]}\n"
    pathlib.Path(path).write_text(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--op", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--losses", default="sft,grpo,dpo+ref,kto+ref")
    arguments = parser.parse_args()
    torch.ops.load_library(arguments.op)
    torch.set_num_threads(2)
    rows = []
    for dtype in arguments.dtypes.split(","):
        data = losses.Data("0.5B", ROWS, getattr(torch, dtype))
        data.add_parameters()
        data.add_reference_model()
        for loss in arguments.losses.split(","):
            torch._dynamo.reset()
            for row in measured(data, loss, dtype, arguments.rounds):
                rows.append(row)
                print(*(f"{v:.4g}" if isinstance(v, float) else v for v in row.values()), flush=True)
            write(arguments.out, rows)


if __name__ == "__main__":
    main()
