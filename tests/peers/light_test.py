"""What of the Python stack needs no package: ids, support, result lines, mechanisms, the group of processes."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import types
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "matrix" / "peers"))

from regather_peers import mechanism, result, runtime, support, worker  # noqa: E402
from regather_peers.blackbox import BlackBox  # noqa: E402
from regather_peers.case import UsageError, parse_id  # noqa: E402

VERSIONS = {"torch": "2.11.0", "transformers": "5.24.0", "safetensors": "0.8.0", "deepspeed": "0.19.2",
            "trl": "1.6.0", "peft": "0.21.2", "liger_kernel": "0.8.5"}


class Ids(unittest.TestCase):
    def test_axes_and_fixes(self):
        case = parse_id("zero3/dpo/frozen=lora/world=4/accumulate=manual2/fix=gather+redirect")
        self.assertEqual((case.backend, case.loss, case.kernel, case.frozen), ("zero3", "dpo", "fused", "lora"))
        self.assertEqual((case.ranks, case.micro_batches, case.zero_stage), (4, 2, 3))
        self.assertEqual(case.fixes, ("gather", "redirect"))

    def test_what_does_not_parse(self):
        for text in ("ddp/sft", "ddp/sft/frozen/fix=none", "ddp/sft/frozen=lora/frozen=head/fix=none",
                     "ddp/sft/fix=gather+gather"):
            with self.assertRaises(UsageError, msg=text):
                parse_id(text)


class Support(unittest.TestCase):
    def reason(self, text, **versions):
        return support.unsupported(parse_id(text), VERSIONS | versions)

    def test_supported(self):
        for text in ("ddp/sft/fix=redirect", "zero3/kto/fix=gather+kl_backbone+redirect", "fsdp2/sft/dtype=bf16/fix=none"):
            self.assertIsNone(self.reason(text), text)

    def test_reasons(self):
        for text, part in (("ddp/sft/dtype=fp16/fix=none", "fp16"), ("zero2/sft/dtype=fp16/fix=none", "refuses fp16"),
                           ("ddp/dpo/kernel=chunked/fix=none", "sft alone"), ("ddp/sft/fix=sync", "sync"),
                           ("fsdp2/sft/fix=unheard_of", "unheard_of"), ("fsdp2/sft/new_axis=3/fix=none", "new_axis=3"),
                           ("zero3/sft/frozen=quantised/fix=none", "quantised")):
            self.assertIn(part, self.reason(text) or "", text)

    def test_a_version_is_the_fix(self):
        case = "zero3/sft/fix=gather+recompute_hold+redirect"
        self.assertIn("0.19.2", self.reason(case))
        self.assertIsNone(self.reason(case, deepspeed="0.19.8"))

    def test_the_chunked_loss_ends_with_a_release_of_trl(self):
        case = "zero3/sft/kernel=chunked/fix=gather+redirect"
        self.assertIsNone(self.reason(case, trl="1.14.2"))
        self.assertIn("1.15.0", self.reason(case, trl="1.15.0"))

    def test_only_the_packages_of_the_case_are_asked_for(self):
        self.assertIn("deepspeed", self.reason("zero1/sft/fix=none", deepspeed=None))
        self.assertIsNone(self.reason("ddp/sft/fix=none", deepspeed=None, trl=None))


def rank(departures=(), compared=3, error=1e-7, got=2.0):
    return {"departures": list(departures), "loss": {"got": got, "want": 2.0}, "counters": {"update_share": error},
            "gradients": {"compared": compared, "relative_l2": error, "missing": 1, "unexpected": 0, "nonfinite": 0}}


class GivenFiles(unittest.TestCase):
    def test_what_a_killed_worker_left_is_taken_away_and_a_living_ones_is_not(self):
        with tempfile.TemporaryDirectory() as parent:
            program = f"""if True:
                import os, signal, sys
                sys.path.insert(0, {str(ROOT / "matrix" / "peers")!r})
                from regather_peers.runtime import OwnFolder
                print(OwnFolder({parent!r}).name, flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
            """
            left = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False).stdout.strip()
            self.assertTrue(os.path.isdir(left))
            living = runtime.OwnFolder(parent)
            self.assertFalse(os.path.exists(left))
            other = runtime.OwnFolder(parent)
            self.assertTrue(os.path.isdir(living.name))
            living.cleanup()
            other.cleanup()
            self.assertEqual(os.listdir(parent), [])


class Merging(unittest.TestCase):
    def test_earliest_departure_wins(self):
        late = result.departure("error", "forward", 1, 0, "RuntimeError", "late")
        early = result.departure("wrong_gradient", "gradients", 0, 1, "gradient", "early")
        merged = result.merge([rank([late]), rank([early])])
        self.assertEqual((merged["outcome"], merged["signature"]["text"]), ("wrong_gradient", "early"))
        self.assertEqual(merged["also"], [late])

    def test_sums_and_worst(self):
        merged = result.merge([rank(error=1e-7), rank(error=1e-3, got=2.5)])
        self.assertEqual((merged["gradients"]["compared"], merged["gradients"]["missing"]), (6, 2))
        self.assertEqual((merged["gradients"]["relative_l2"], merged["loss"]["got"]), (1e-3, 2.5))
        self.assertEqual((merged["outcome"], merged["counters"]), ("pass", {"update_share": 1e-3}))

    def test_a_rank_without_a_word_proves_nothing(self):
        self.assertEqual(result.merge([rank(), None])["outcome"], "unchecked")
        self.assertEqual(result.merge([rank(), rank(compared=0)])["outcome"], "unchecked")

    def test_members_are_those_of_the_runtime(self):
        golden = json.loads((ROOT / "tests/case/golden/lines.jsonl").read_text().splitlines()[0])
        case = parse_id(golden["id"])
        made = json.loads(result.line(case, {"device": "cpu", "attempt": 2}, "python:x", golden))
        self.assertEqual(list(made), list(golden))
        self.assertEqual(made | {"stack": "reference"}, golden | {"axes": case.axes})
        departure = result.departure("error", "forward", 1, 0, "RuntimeError", "late")
        self.assertEqual(list(departure["signature"]), list(golden["signature"]))

    def test_not_finite_is_null(self):
        case = parse_id("ddp/sft/fix=none")
        made = result.line(case, {"device": "cpu", "attempt": 1}, "python:x", {"outcome": "nonfinite", "loss": {
            "got": float("nan"), "want": float("inf")}})
        self.assertEqual(json.loads(made)["loss"], {"got": None, "want": None})


class Mechanisms(unittest.TestCase):
    def of(self, outcome, phase, text="", kind="RuntimeError", evidence=(), backend="zero3"):
        return mechanism.of(result.departure(outcome, phase, 0, 0, kind, text), backend, set(evidence))

    def test_table(self):
        empty = "The size of tensor a (0) must match the size of tensor b (32) at non-singleton dimension 1"
        read = "size mismatch, got input (16), mat (16x32), vec (0)"
        for expected, seen in {
                "head_read_partitioned": self.of("error", "forward", read, evidence=["head_partitioned"]),
                "head_grad_on_partitioned": self.of("error", "backward", empty,
                                                    evidence=["head_partitioned", "head_read_directly"]),
                "recompute_freed_trainable": self.of("error", "backward", empty, evidence=[
                    "head_partitioned", "trainable_parameter_recomputed_empty"]),
                "head_double_touch": self.of("error", "backward", empty,
                                             evidence=["head_partitioned", "root_called_again"]),
                "recompute_freed_frozen": self.of("error", "backward", "", "torch.utils.checkpoint.CheckpointError",
                                                  ["frozen_parameter_recomputed_empty"]),
                "recompute_changed": self.of("error", "backward", "", "torch.utils.checkpoint.CheckpointError"),
                "reducer_unarmed": self.of("wrong_gradient", "gradients", evidence=["mean_over_ranks_is_right"]),
                "unit_bypassed": self.of("wrong_gradient", "gradients", evidence=["unit_without_forward"], backend="fsdp2"),
                "accumulation_scaled": self.of("wrong_gradient", "gradients",
                                               evidence=["gradients_scaled_by_accumulation"]),
                "no_grad_input": self.of("wrong_gradient", "gradients",
                                         evidence=["checkpoint_without_graph", "missing_gradients"])}.items():
            self.assertEqual(seen, expected)

    def test_text_without_evidence_proves_nothing(self):
        self.assertIsNone(self.of("error", "forward", "size mismatch, got input (16), mat (16x32), vec (0)"))
        self.assertIsNone(self.of("wrong_gradient", "gradients"))


def fake_rank(connection, rank, world, store, box, device, deadline, stack_file):
    """Does what the job says on the rank that it names; answers at once elsewhere."""
    import faulthandler
    faulthandler.register(signal.SIGUSR1, stack_file)
    with connection.makefile("rw", encoding="utf-8") as lines:
        for line in lines:
            job = json.loads(line)
            box.enter(rank, 1, "backward")
            dirty = False
            departures = []
            if job["rank"] == rank:
                if job["do"] == "crash":
                    os.kill(os.getpid(), signal.SIGSEGV)
                if job["do"] == "hang":
                    time.sleep(60)
                if job["do"] == "fail":
                    dirty = True
                    departures = [result.departure("error", "forward", 0, rank, "RuntimeError", "it failed")]
            elif job["do"] in ("fail", "crash"):
                time.sleep(60)  # in a collective that the other rank never enters
            answer = {"dirty": dirty, "milliseconds": 1.0, "result": {
                "departures": departures, "gradients": {"compared": 0 if departures else 1, "relative_l2": 0.0,
                                                        "missing": 0, "unexpected": 0, "nonfinite": 0},
                "loss": None, "counters": {}, "peak_bytes": None}}
            lines.write(json.dumps(answer) + "\n")
            lines.flush()
    os._exit(0)


class TheBlackBox(unittest.TestCase):
    def test_a_larger_one_keeps_its_size(self):
        """The runner's box goes on behind what is filled here, and is read to its end."""
        with tempfile.NamedTemporaryFile() as file:
            file.truncate(1 << 20)
            BlackBox(file.name).begin("ddp/sft/fix=none")
            self.assertEqual(os.path.getsize(file.name), 1 << 20)


class Groups(unittest.TestCase):
    """The worker's handling of groups, with ranks that do as they are told."""

    def setUp(self):
        from regather_peers import group
        fake = types.ModuleType("regather_peers.rank")
        fake.serve = fake_rank
        import regather_peers
        regather_peers.rank = sys.modules["regather_peers.rank"] = fake
        self.addCleanup(sys.modules.pop, "regather_peers.rank")
        self.addCleanup(delattr, regather_peers, "rank")
        self.grace, group.GRACE = group.GRACE, 0.3
        self.addCleanup(setattr, group, "GRACE", self.grace)
        self.worker = worker.Worker(BlackBox())
        self.addCleanup(self.worker.close)
        self.case = parse_id("ddp/sft/fix=none")
        self.jobs = []
        original = group.Group.run

        def run(this, job):
            return original(this, self.jobs.pop(0) if self.jobs else {"do": "pass", "rank": 0})

        group.Group.run = run
        self.addCleanup(setattr, group.Group, "run", original)

    def run_case(self, *jobs, timeout=60.0):
        self.jobs = list(jobs)
        return self.worker.run(self.case, {"timeout": timeout, "device": "cpu", "record": False}, "file")

    def test_one_group_runs_many_cases(self):
        self.assertEqual(self.run_case()["outcome"], "pass")
        group = self.worker.group
        self.assertEqual(self.run_case()["outcome"], "pass")
        self.assertIs(self.worker.group, group)
        self.assertEqual(group.cases, 2)

    def test_crash(self):
        died = self.run_case({"do": "crash", "rank": 1})
        signature = died["signature"]
        self.assertEqual((died["outcome"], signature["rank"], signature["step"], signature["phase"]),
                         ("crash", 1, 1, "backward"))
        self.assertEqual(signature["type"], "signal 11 (SIGSEGV)")
        self.assertIsNone(self.worker.group)
        self.assertEqual(self.run_case()["outcome"], "pass")

    def test_hang(self):
        hung = self.run_case({"do": "hang", "rank": 1}, timeout=2.0)
        signature = hung["signature"]
        self.assertEqual((hung["outcome"], signature["rank"], signature["phase"]), ("hang", 1, "backward"))
        self.assertIn("fake_rank", signature["text"])
        self.assertEqual(self.run_case(timeout=2.0)["outcome"], "pass")

    def test_a_rank_that_waits_for_one_that_failed_is_no_hang(self):
        failed = self.run_case({"do": "fail", "rank": 0})
        self.assertEqual((failed["outcome"], failed["signature"]["text"], failed["also"]), ("error", "it failed", []))

    def test_a_failure_in_a_used_group_is_run_again_alone(self):
        self.run_case()
        again = self.run_case({"do": "fail", "rank": 0}, {"do": "pass", "rank": 0})
        self.assertEqual(again["outcome"], "pass")
        self.assertEqual((again["counters"]["reran_alone"], again["counters"]["changed_alone"]), (1, 1))

    def test_a_failure_in_a_fresh_group_stands(self):
        failed = self.run_case({"do": "fail", "rank": 0}, {"do": "pass", "rank": 0})
        self.assertEqual(failed["outcome"], "error")
        self.assertNotIn("reran_alone", failed["counters"])


class Clock(unittest.TestCase):
    def test_a_pause_does_not_count(self):
        from regather_peers import group
        times = iter((0.0, 0.4, 100.4, 100.8))
        monotonic, group.time.monotonic = group.time.monotonic, lambda: next(times)
        self.addCleanup(setattr, group.time, "monotonic", monotonic)
        clock = group.PatientClock()
        self.assertAlmostEqual(clock.now(), 0.4)
        self.assertAlmostEqual(clock.now(), 1.4)
        self.assertAlmostEqual(clock.now(), 1.8)


class Requests(unittest.TestCase):
    def test_defaults_and_unknown_members(self):
        request = worker.parse_request('{"id": "ddp/sft/fix=none", "seed": 3, "colour": "red"}')
        self.assertEqual((request["seed"], request["attempt"], request["device"]), (3, 1, "cpu"))
        self.assertNotIn("colour", request)

    def test_what_is_no_request(self):
        for line in ("", "[]", "{}", '{"id": 3}', '{"id": "x", "timeout": "long"}'):
            with self.assertRaises(UsageError, msg=line):
                worker.parse_request(line)


if __name__ == "__main__":
    unittest.main()
