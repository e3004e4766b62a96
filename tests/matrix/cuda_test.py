#!/usr/bin/env python3
"""The matrix on CUDA, two ranks over gloo and over NCCL: each cell as on the CPU, and each fault of the kernels caught.

usage: cuda_test.py REGATHER [--jobs N] [--out DIR]

Needs a GPU; two ranks may share it. REGATHER has libregather_cuda.so beside it, and torch's libraries are where the
loader finds them. Exit 1 with what differs.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

KERNEL_FAULTS = ("lose_last_chunk", "count_pad", "leave_target", "scale_rows_twice", "keep_sum")
LOSSES = ("sft", "grpo", "dpo", "kto")


def repaired(backend, loss):
    if backend != "zero3":
        return "redirect"
    return "gather+kl_backbone+recompute_hold+redirect" if loss == "kto" else "gather+recompute_hold+redirect"


def bf16(backend, loss, fix=None):
    return f"{backend}/{loss}/dtype=bf16/fix={fix or repaired(backend, loss)}"


# Beside the card, whose cells are in float32: what takes the kernels for bfloat16, biases, tied and packed weights.
BESIDE = [bf16(b, l, f) for b in ("ddp", "zero1", "zero2", "zero3", "fsdp2") for l in LOSSES for f in ("none", None)]
BESIDE += [f"{b}/{l}/head_bias=yes/fix={repaired(b, l)}" for b in ("ddp", "zero3") for l in LOSSES]
BESIDE += ["zero3/dpo/head=tied/fix=gather", "zero3/sft/frozen=quantised/fix=" + repaired("zero3", "sft")]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def cases_of(out):
    return {case["id"]: case for case in map(json.loads, (out / "cases.jsonl").read_text().splitlines())}


def of_ids(ids):
    return [part for which in ids for part in ("--case", which)]


class Matrix:
    def __init__(self, program, folder, jobs):
        self.program, self.folder, self.jobs = program, folder, jobs

    def command(self, out, arguments):
        return [self.program, "matrix", "run", *arguments, "--out", str(out)]

    def on_cpu(self, name, arguments):
        out = self.folder / name
        subprocess.run(self.command(out, [*arguments, "--launcher", "threads"]), stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, check=False)
        return cases_of(out)

    def on_cuda(self, name, transport, arguments):
        out = self.folder / name
        environment = os.environ | {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                                    "MASTER_PORT": str(free_port())}
        command = self.command(out, [*arguments, "--launcher", "torchrun", "--device", "cuda", "--transport", transport])
        with open(f"{out}.log", "w") as log:
            ranks = [subprocess.Popen(command, stdout=log, stderr=log, env=environment | {"RANK": str(rank)})
                     for rank in range(2)]
            for rank in ranks:
                rank.wait()
        return cases_of(out)


def signature(case):
    found = case["signature"]
    return found and tuple(found[part] for part in ("mechanism", "phase", "step", "rank", "type"))


def differences(cpu, cuda):
    for which, right in cpu.items():
        case = cuda.get(which)
        if case is None:
            yield f"{which}: absent"
        elif (case["outcome"], signature(case)) != (right["outcome"], signature(right)):
            yield f"{which}: {right['outcome']} {signature(right)} on the CPU, {case['outcome']} {signature(case)}"
        elif case["outcome"] == "error" and case["signature"]["text"] != right["signature"]["text"]:
            yield f"{which}: '{right['signature']['text']}' on the CPU, '{case['signature']['text']}'"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2), help="pairs of ranks at a time")
    parser.add_argument("--out", type=pathlib.Path)
    arguments = parser.parse_args()
    folder = arguments.out or pathlib.Path(tempfile.mkdtemp(prefix="cuda-"))
    folder.mkdir(parents=True, exist_ok=True)
    matrix = Matrix(os.path.abspath(arguments.program), folder, arguments.jobs)
    known = json.loads(subprocess.check_output([matrix.program, "fault", "list", "--json"]))
    begin = time.monotonic()
    failures = []

    cpu = matrix.on_cpu("cpu", ["card"]) | matrix.on_cpu("cpu-beside", of_ids(BESIDE))
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        runs = {(t, name): pool.submit(matrix.on_cuda, f"{t}-{name}", t, what)
                for t in ("gloo", "nccl")
                for name, what in [("beside", of_ids(BESIDE))] + [(f"card-{k}", ["card", "--shard", f"{k}/4"])
                                                                  for k in range(1, 5)]}
        faults = {}
        for fault in known:
            if fault["name"] in KERNEL_FAULTS:
                # KTO's bounded utility keeps a counted pad within bfloat16's tolerance.
                ids = [i for i in fault["red"] if "world=" not in i]
                ids += [bf16(b, l) for b in ("ddp", "zero3") for l in LOSSES if (l, fault["name"]) != ("kto", "count_pad")]
                t = "nccl" if len(faults) % 2 else "gloo"
                faults[fault["name"]] = ids, pool.submit(matrix.on_cuda, "fault-" + fault["name"], t,
                                                         [*of_ids(ids), "--fault", fault["name"]])
        for t in ("gloo", "nccl"):
            cuda = {}
            for (transport, _), run in runs.items():
                cuda |= run.result() if transport == t else {}
            found = list(differences(cpu, cuda))
            failures += [f"{t}: {text}" for text in found]
            share = max((c["gradients"]["share"], i) for i, c in cuda.items() if c["outcome"] == "pass")
            print(f"{t}: {len(cuda)} cells, {len(found)} differ from the CPU's; passing ones use at most {share[0]:.3g} of their "
                  f"tolerance ({share[1]})", flush=True)
        for name, (ids, run) in faults.items():
            cases = run.result()
            green = [i for i in ids if i not in cases or cases[i]["outcome"] in ("pass", "crash", "hang")]
            failures += [f"{name}: not caught, or by a death: {i}" for i in green]
            print(f"{name}: {len(ids) - len(green)} of {len(ids)} red", flush=True)
    print("\n".join(failures[:40]))
    print(f"{len(failures)} failures, {time.monotonic() - begin:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
