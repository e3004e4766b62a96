#!/usr/bin/env python3
"""A run that is disturbed in every way ends in the same document as a calm one, times aside.

usage: chaos_test.py REGATHER WORKER [--cases N] [--seeds 1,2] [--launchers threads,processes]

The cases are shared out to the launchers; of each share one crashes by itself (crash_rank). The disturbed run starts on
a disk that fills up, and goes on with --resume while a seeded hand kills workers, ranks and the runner (SIGKILL,
SIGINT), stops ranks (SIGSTOP: a hang) and sends SIGSEGV. Exit 0 where all of that has happened, the documents are
equal, nothing is lost and no process is left.
"""

import argparse
import collections
import copy
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from marked import Processes

HERE = pathlib.Path(__file__).resolve().parent
TIMEOUT = 6  # seconds for a case: a stopped rank is a hang after these
DISK = 16 << 10  # bytes of the disk that fills up
SKIPPED = 77  # to CTest
LONG_ENOUGH = 10  # seconds of pauses before cases, so that a run does not end before it is disturbed


def without_times(document):
    document = copy.deepcopy(document)
    document.pop("seconds")
    for case in document["cases"]:
        case.pop("milliseconds")
    return document


def differences(calm, disturbed):
    """What is not the same in two documents, times aside: a line each."""
    calm, disturbed = without_times(calm), without_times(disturbed)
    found = [f"{key}: {calm[key]} is now {disturbed.get(key)}" for key in calm if key != "cases"
             and calm[key] != disturbed.get(key)]
    before = {case["id"]: case for case in calm["cases"]}
    after = {case["id"]: case for case in disturbed["cases"]}
    found += [f"{lost}: lost" for lost in before.keys() - after.keys()]
    found += [f"{new}: from nowhere" for new in after.keys() - before.keys()]
    for which in before.keys() & after.keys():
        for key in before[which].keys() | after[which].keys():
            was, now = before[which].get(key), after[which].get(key)
            if was != now:
                found.append(f"{which}: {key} {json.dumps(was)[:600]} is now {json.dumps(now)[:600]}")
    return found


class DifferencesAreFound(unittest.TestCase):
    calm = {"plan": {"hash": "x"}, "totals": {"pass": 2}, "seconds": 1.0,
            "cases": [{"id": "a", "outcome": "pass", "attempt": 1, "milliseconds": 1.0},
                      {"id": "b", "outcome": "pass", "attempt": 1, "milliseconds": 2.0}]}

    def changed(self, change):
        other = copy.deepcopy(self.calm)
        change(other)
        return differences(self.calm, other)

    def test_times_are_no_difference(self):
        self.assertEqual(self.changed(lambda d: (d.update(seconds=9), d["cases"][0].update(milliseconds=7.0))), [])

    def test_everything_else_is(self):
        for change in (lambda d: d["cases"].pop(), lambda d: d["cases"][1].update(outcome="crash"),
                       lambda d: d["cases"][1].update(attempt=2), lambda d: d["cases"][1].update(attempts=["pass", "pass"]),
                       lambda d: d["totals"].update({"pass": 1}), lambda d: d["cases"].append({**d["cases"][0], "id": "c"})):
            self.assertEqual(len(self.changed(change)), 1)


class Hand:
    """Disturbs a run."""

    SIGNALS = {"kill worker": signal.SIGKILL, "crash worker": signal.SIGSEGV, "kill rank": signal.SIGKILL,
               "stop rank": signal.SIGSTOP, "kill runner": signal.SIGKILL, "interrupt runner": signal.SIGINT}

    def __init__(self, seed, processes, done):
        self.random = random.Random(seed)
        self.processes = processes
        self.done = done  # what it did, counted

    def targets(self, kind, runner):
        those = self.processes.all()
        # The proxy is python3; a worker's ranks, where they are processes, are named after their numbers.
        ranks = [p for p, name in those if name.startswith("rank ")]
        workers = [p for p, name in those if name == "regather-worker"]
        return {"kill worker": [p for p, name in those if name.startswith("python3")] + workers,
                "crash worker": workers, "kill rank": ranks, "stop rank": ranks or workers}.get(kind, [runner.pid])

    def strike(self, runner, kind):
        """As soon as there is something to strike, unless the run ends first."""
        while runner.poll() is None:
            if found := self.targets(kind, runner):
                try:
                    os.kill(self.random.choice(found), self.SIGNALS[kind])
                except ProcessLookupError:
                    continue
                self.done[kind] += 1
                return
            time.sleep(0.002)

    def disturb(self, runner, kinds):
        """Until the run has ended. The last is what ends it, if anything does."""
        for kind in kinds:
            time.sleep(self.random.uniform(0.1, 0.5))
            self.strike(runner, kind)
        return runner.communicate()[1]


def mount(*arguments):
    subprocess.run(["mount", *arguments], check=True)


class Chaos:
    def __init__(self, program, worker, folder):
        self.program, self.folder = program, folder
        self.processes = Processes()
        self.environment = os.environ | {"REGATHER_WORKER": str(HERE / "chaos_worker.py"), "CHAOS_WORKER": worker,
                                         "PYTHONDONTWRITEBYTECODE": "1"} | self.processes.environment
        self.done = collections.Counter()
        self.faults = []

    def start(self, ids, launcher, out, crash, resume=False, pause=0.0):
        command = [self.program, "matrix", "run", *(part for i in ids for part in ("--case", i)), "--out", str(out),
                   "--launcher", launcher, "--timeout", str(TIMEOUT), *(["--resume"] if resume else [])]
        environment = self.environment | {"CHAOS_CRASH": crash, "CHAOS_PAUSE": str(pause)}
        return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def calm(self, ids, launcher, out, crash):
        run = self.start(ids, launcher, out, crash)
        said = run.communicate()[1]
        self.check(run.returncode == 1, f"the calm run ends with {run.returncode}, expected 1 for the crash: {said[-500:]}")
        self.nothing_left("the calm run")
        return json.loads((out / "results.json").read_text())

    def disturbed(self, ids, launcher, out, crash, seed):
        """On a disk of its own, which is full at first. Mounting needs root."""
        out.mkdir(parents=True)
        mount("-t", "tmpfs", "-o", f"size={DISK}", "chaos", str(out))
        try:
            return self.on_disk(ids, launcher, out, crash, seed)
        finally:
            subprocess.run(["umount", str(out)], check=True)

    def on_disk(self, ids, launcher, out, crash, seed):
        run = self.start(ids, launcher, out, crash)
        said = run.communicate()[1]
        self.check(run.returncode == 3 and "--resume" in said, f"a full disk: exit {run.returncode}: {said[-500:]}")
        self.check(not (out / "results.json").exists(), "a full disk: there is a document")
        self.nothing_left("the run on a full disk")
        self.done["full disk"] += 1
        mount("-o", "remount,size=64m", str(out))

        hand = Hand(seed, self.processes, self.done)
        rounds = 1 + len(ids) // 100
        for kinds in self.plan(hand.random, launcher, rounds):
            run = self.start(ids, launcher, out, crash, resume=True, pause=LONG_ENOUGH * rounds / len(ids))
            said = hand.disturb(run, kinds)
            self.nothing_left("a disturbed run")
            wanted = {"kill runner": (-signal.SIGKILL,), "interrupt runner": (130,)}.get(kinds[-1], (0, 1))
            self.check(run.returncode in wanted, f"{kinds}: the run ends with {run.returncode}: {said[-1000:]}")
        return json.loads((out / "results.json").read_text())

    @staticmethod
    def plan(choice, launcher, rounds):
        """What happens to each run in turn. One stop at most: a case that is stopped twice cannot be told from one that
        hangs by itself. A case is forgiven five kills."""
        ranks = ["kill rank"] if launcher == "processes" else []
        runs = []
        for _ in range(rounds):
            runs += [["kill worker", "crash worker", *ranks], ["kill worker", *ranks, "kill worker"],
                     ["crash worker", *ranks, "kill worker"], ["kill worker", *ranks, "stop rank", "crash worker"]]
        for number, kinds in enumerate(runs):
            choice.shuffle(kinds)
            kinds.append(("kill runner", "interrupt runner")[number % 2])
        runs[-1].pop()
        return runs

    def round(self, ids, launcher, seed):
        # The one that crashes must get as far as its second step: one with fixes.
        crash = next(i for i in ids if not i.endswith("fix=none"))
        out = self.folder / f"{launcher}-{seed}"
        calm = self.calm(ids, launcher, out / "calm", crash)
        (by_itself,) = [case for case in calm["cases"] if case["outcome"] == "crash"]
        self.check(by_itself["id"] == crash and "SIGSEGV" in by_itself["signature"]["type"], f"{by_itself}")
        disturbed = self.disturbed(ids, launcher, out / "disturbed", crash, seed)
        if disturbed is None:
            return
        for difference in differences(calm, disturbed):
            self.check(False, difference)

    def nothing_left(self, of):
        left = self.processes.left()
        self.check(not left, f"{of} leaves processes: {left}")

    def check(self, holds, what):
        if not holds:
            self.faults.append(what)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("worker")
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--launchers", default="threads,processes")
    options = parser.parse_args()
    checked = unittest.TextTestRunner(verbosity=0).run(unittest.defaultTestLoader.loadTestsFromTestCase(DifferencesAreFound))
    if not checked.wasSuccessful():
        return 1
    if os.geteuid() != 0:
        print("skipped: the disk that fills up is a mount of its own, which needs root")
        return SKIPPED
    listed = subprocess.run([options.program, "matrix", "list", "card"], capture_output=True, text=True, check=True).stdout
    for seed in map(int, options.seeds.split(",")):
        ids = random.Random(seed).sample(listed.split(), options.cases)
        with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
            chaos = Chaos(os.path.abspath(options.program), os.path.abspath(options.worker), pathlib.Path(folder))
            launchers = options.launchers.split(",")
            for number, launcher in enumerate(launchers):
                chaos.round(ids[number::len(launchers)], launcher, seed)
            for kind in Hand.SIGNALS:
                chaos.check(chaos.done[kind] > 0, f"nothing came of: {kind}")
        done = ", ".join(f"{count} x {kind}" for kind, count in sorted(chaos.done.items()))
        print(f"seed {seed}: {len(ids)} cases; {done}; {len(chaos.faults)} fault(s)")
        for fault in chaos.faults:
            print("  " + fault)
        if chaos.faults:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
