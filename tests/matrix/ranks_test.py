#!/usr/bin/env python3
"""Ranks that a launcher has started: the same outcomes and gradients as ranks that are threads.

usage: ranks_test.py REGATHER [TEST...]

Processes are started here with torchrun's variables, and once by Open MPI's mpirun.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = os.path.abspath(sys.argv.pop(1))
LAUNCHERS = re.compile(r"^(RANK|WORLD_SIZE|LOCAL_RANK|MASTER_|SLURM_|OMPI_|PMIX_|TORCHELASTIC_)")
CLEAN = {name: value for name, value in os.environ.items() if not LAUNCHERS.match(name)}


def ids(world):
    """Of every backend and loss: what fails in forward and in backward, what is silently wrong, what passes."""
    at = "" if world == 2 else f"/world={world}"
    found = [f"{backend}/{loss}{at}/fix={fix}" for backend in ("ddp", "zero1", "zero2", "fsdp2")
             for loss, fix in (("sft", "none"), ("sft", "redirect"), ("dpo", "redirect"), ("kto", "redirect"))]
    return found + [f"zero3/sft{at}/fix=none", f"zero3/sft{at}/fix=gather", f"zero3/kto{at}/fix=gather+redirect",
                    f"zero3/kto{at}/fix=gather+kl_backbone+recompute_hold+redirect",
                    f"zero3/grpo/checkpoint=nonreentrant/frozen=norms{at}/fix=gather+redirect",
                    f"zero3/grpo/checkpoint=nonreentrant/frozen=norms{at}/fix=gather+recompute_hold+redirect",
                    f"fsdp2/sft/frozen=lora{at}/fix=none"]


def command(cases, out, *more):
    return [PROGRAM, "matrix", "run", *(part for case in cases for part in ("--case", case)), "--out", str(out), *more]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def document(out):
    return {case["id"]: case for case in json.loads((out / "results.json").read_text())["cases"]}


class Hosts:
    """Two network namespaces with a cable between them: neither reaches the other by 127.0.0.1 or by a name."""

    def __init__(self):
        mark = f"regather{os.getpid()}"
        self.names = [mark + "a", mark + "b"]
        self.addresses = ["10.213.7.1", "10.213.7.2"]
        for name in self.names:
            self.ip("netns", "add", name)
        self.ip("link", "add", "cable", "netns", self.names[0], "type", "veth", "peer", "name", "cable", "netns", self.names[1])
        for name, address in zip(self.names, self.addresses):
            self.ip("-n", name, "address", "add", address + "/24", "dev", "cable")
            self.ip("-n", name, "link", "set", "cable", "up")
            self.ip("-n", name, "link", "set", "lo", "up")

    def on(self, host):
        return ["ip", "netns", "exec", self.names[host]]

    def cut(self):
        self.ip("-n", self.names[1], "link", "set", "cable", "down")

    def remove(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], check=False)

    @staticmethod
    def ip(*arguments):
        subprocess.run(["ip", *arguments], check=True)


def may_make_hosts():
    return shutil.which("ip") is not None and subprocess.run(["unshare", "-n", "true"], check=False).returncode == 0


class Ranks(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ranks-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def start(self, size, cases, out, *more, address="127.0.0.1", on=lambda rank: []):
        environment = CLEAN | {"WORLD_SIZE": str(size), "MASTER_ADDR": address, "MASTER_PORT": str(free_port())}
        return [subprocess.Popen([*on(rank), *command(cases, out, *more)], stderr=subprocess.PIPE, text=True,
                                 env=environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(size)]

    def end(self, processes):
        """Exit codes and what was said, by rank."""
        said = [process.communicate(timeout=240)[1] for process in processes]
        return [process.returncode for process in processes], said

    def threads(self, cases):
        out = self.folder / "threads"
        subprocess.run(command(cases, out, "--launcher", "threads"), env=CLEAN, stderr=subprocess.DEVNULL, check=False)
        return document(out)

    def compare(self, threads, ranks, world):
        self.assertEqual(threads.keys(), ranks.keys())
        for which, here in threads.items():
            there = ranks[which]
            self.assertEqual(here["outcome"], there["outcome"], which)
            for key in ("mechanism", "phase", "step", "rank", "type"):
                self.assertEqual((here["signature"] or {}).get(key), (there["signature"] or {}).get(key), f"{which}: {key}")
            if here["outcome"] == "error":
                self.assertEqual(here["signature"]["text"], there["signature"]["text"], which)
            a, b = here["gradients"], there["gradients"]
            self.assertEqual((a["compared"], a["missing"]), (b["compared"], b["missing"]), which)
            # Sums of two numbers are the same in either order; of more, gloo's order is its own.
            tolerance = 0 if world == 2 else 1e-6
            self.assertLessEqual(abs(a["relative_l2"] - b["relative_l2"]), tolerance * max(1, a["relative_l2"]), which)
            if world == 2:  # else rounding decides which rank's loss is the furthest
                self.assertEqual(here["loss"], there["loss"], which)

    def same_as_threads(self, size):
        cases = ids(size)
        codes, said = self.end(self.start(size, cases, self.folder / "ranks"))
        self.assertEqual(set(codes), {0}, said)
        self.assertEqual(said[1:], [""] * (size - 1), "the other ranks say nothing")
        outcomes = {case["outcome"] for case in document(self.folder / "ranks").values()}
        self.assertGreaterEqual(outcomes, {"pass", "error", "wrong_gradient"})
        self.compare(self.threads(cases), document(self.folder / "ranks"), size)

    def test_2(self):
        self.same_as_threads(2)

    def test_4(self):
        self.same_as_threads(4)

    def test_8(self):
        self.same_as_threads(8)

    def test_mpirun(self):
        mpirun = shutil.which("mpirun")
        if mpirun is None:
            self.skipTest("no mpirun: apt-get install openmpi-bin")
        cases = ids(4)
        ran = subprocess.run([mpirun, "--allow-run-as-root", "--oversubscribe", "-n", "4",
                              *command(cases, self.folder / "ranks", "--launcher", "torchrun")],
                             env=CLEAN, capture_output=True, text=True, timeout=240, check=False)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.compare(self.threads(cases), document(self.folder / "ranks"), 4)

    def test_fewer_and_more_ranks_than_a_case_needs(self):
        cases = ["ddp/sft/fix=redirect", "zero3/sft/world=4/fix=gather+redirect", "ddp/sft/world=8/fix=redirect"]
        codes, said = self.end(self.start(4, cases, self.folder / "ranks"))
        self.assertEqual(set(codes), {5}, said)
        found = document(self.folder / "ranks")
        self.assertEqual([found[c]["outcome"] for c in cases], ["pass", "pass", "notrun"])
        self.assertEqual(found[cases[2]]["reason"], "needs 8 ranks, 4 were started")

    def test_a_killed_worker_leaves_no_trace(self):
        cases = ids(2) * 1
        out = self.folder / "ranks"
        processes = self.start(2, cases, out, "--timeout", "16")
        # The second rank's worker, once cases have ended.
        self.wait_for_lines(out, 3)
        (worker,) = [int(p) for p in pathlib.Path(f"/proc/{processes[1].pid}/task/{processes[1].pid}/children")
                     .read_text().split()]
        os.kill(worker, signal.SIGKILL)
        codes, said = self.end(processes)
        self.assertEqual(set(codes), {0}, said)
        self.compare(self.threads(cases), document(out), 2)

    @unittest.skipUnless(may_make_hosts(), "needs iproute2 and the right to make network namespaces")
    def test_two_hosts(self):
        """Two ranks on each of two hosts; once more with the cable cut, and on from there."""
        hosts = Hosts()
        self.addCleanup(hosts.remove)
        cases = ids(4)
        out = self.folder / "ranks"
        there = {"address": hosts.addresses[0], "on": lambda rank: hosts.on(rank // 2)}
        processes = self.start(4, cases, out, "--timeout", "8", **there)
        self.wait_for_lines(out, 2)
        hosts.cut()
        codes, said = self.end(processes)
        self.assertEqual(codes, [5, 5, 5, 5], said)
        self.assertRegex(said[0], "rank [23] is gone")
        self.assertRegex(said[2], "out of reach|no way from this host")
        hosts.remove()
        hosts = Hosts()
        codes, said = self.end(self.start(4, cases, out, "--resume", **there))
        self.assertEqual(set(codes), {0}, said)
        self.compare(self.threads(cases), document(out), 4)

    def test_a_stuck_rank_is_freed(self):
        """Rank 1 never comes back from the first case's second backward; the second case fails in its first forward."""
        cases = ["ddp/sft/fix=redirect", "zero3/sft/fix=none"]
        out = self.folder / "ranks"
        codes, said = self.end(self.start(2, cases, out, "--fault", "hang_rank", "--timeout", "10"))
        self.assertEqual(set(codes), {1}, said)
        hang, after = document(out).values()
        signature = hang["signature"]
        self.assertEqual((hang["outcome"], signature["rank"], signature["step"], signature["phase"]),
                         ("hang", 1, 1, "backward"), hang)
        self.assertIn("in regather::train::run_rank", signature["text"])
        self.assertEqual(after["signature"]["mechanism"], "head_read_partitioned", after)
        self.compare({cases[1]: self.threads(cases[1:])[cases[1]]}, {cases[1]: after}, 2)

    def test_torchrun(self):
        """torchrun itself, where torch's Python is installed: its agent serves the store."""
        torchrun = os.environ.get("REGATHER_TORCHRUN") or shutil.which("torchrun")
        if torchrun is None:
            self.skipTest("no torchrun: pip install torch, or name one in REGATHER_TORCHRUN")
        cases = ids(4)
        ran = subprocess.run([torchrun, "--no-python", "--nproc-per-node", "4", "--master-port", str(free_port()),
                              *command(cases, self.folder / "ranks", "--launcher", "torchrun")],
                             env=CLEAN, capture_output=True, text=True, timeout=240, check=False)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.compare(self.threads(cases), document(self.folder / "ranks"), 4)

    def test_a_lost_rank_ends_the_run_and_it_goes_on(self):
        cases = ids(4)
        out = self.folder / "ranks"
        processes = self.start(4, cases, out, "--timeout", "8")
        self.wait_for_lines(out, 2)
        processes[3].kill()
        codes, said = self.end(processes)
        self.assertEqual(codes, [5, 5, 5, -signal.SIGKILL], said)
        self.assertIn("rank 3 is gone", said[0])
        lines = len((out / "cases.jsonl").read_text().splitlines())
        self.assertGreaterEqual(lines, 2)
        codes, said = self.end(self.start(4, cases, out, "--resume"))
        self.assertEqual(set(codes), {0}, said)
        self.assertEqual(len((out / "cases.jsonl").read_text().splitlines()), len(cases))
        self.compare(self.threads(cases), document(out), 4)

    def wait_for_lines(self, out, count):
        until = time.monotonic() + 60
        while time.monotonic() < until:
            if (out / "cases.jsonl").exists() and (out / "cases.jsonl").read_text().count("\n") >= count:
                return
            time.sleep(0.01)
        self.fail(f"no {count} lines in time")

    def test_variables_that_do_not_fit_are_a_usage_error(self):
        for variables, named in (({"RANK": "2", "WORLD_SIZE": "2", "MASTER_ADDR": "x", "MASTER_PORT": "1"}, "RANK='2'"),
                                 ({"RANK": "0"}, "WORLD_SIZE=''"),
                                 ({"RANK": "0", "WORLD_SIZE": "2"}, "MASTER_ADDR is not set"), ({}, "no launcher")):
            ran = subprocess.run(command(ids(2), self.folder / "ranks", "--launcher", "torchrun"), env=CLEAN | variables,
                                 capture_output=True, text=True, check=False)
            self.assertEqual(ran.returncode, 2, ran.stderr)
            self.assertIn(named, ran.stderr)


if __name__ == "__main__":
    unittest.main()
