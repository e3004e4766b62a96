"""The worker on the real packages, with the stand-in for the runtime: needs an environment that has them.

    PYTHON tests/peers/packages_test.py       PYTHON: the environment's
"""

import importlib.util
import json
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = HERE.parents[1] / "matrix" / "peers"

# id -> outcome, phase, mechanism: a cell a kind.
CELLS = {
    "ddp/sft/fix=none": ("wrong_gradient", "gradients", "reducer_unarmed"),
    "ddp/sft/kernel=chunked/fix=redirect": ("pass", None, None),
    "ddp/dpo/frozen=lora/reference=shared/fix=redirect": ("pass", None, None),
    "ddp/kto/accumulate=2/fix=redirect": ("pass", None, None),
    "single/grpo/world=1/head_bias=yes/fix=none": ("pass", None, None),
    "fsdp2/sft/fix=none": ("error", "forward", "mixed_dtensor"),
    "fsdp2/kto/head=tied/checkpoint=nonreentrant/fix=redirect": ("pass", None, None),
    "zero1/grpo/accumulate=2/fix=none": ("wrong_gradient", "gradients", "accumulation_scaled"),
    "zero2/dpo/accumulate=2/fix=redirect": ("pass", None, None),
    "zero3/sft/fix=none": ("error", "forward", "head_read_partitioned"),
    "zero3/sft/fix=gather": ("error", "backward", "head_grad_on_partitioned"),
    "zero3/kto/fix=gather+redirect": ("error", "backward", "head_double_touch"),
    "zero3/kto/fix=gather+kl_backbone+redirect": ("pass", None, None),
    "zero3/sft/kernel=eager/call=engine/dtype=bf16/fix=none": ("pass", None, None),
}

# With TRL's gather made to do nothing: in these the head, or the reference's, is read partitioned …
HELD_BY_THE_GATHER = (
    "zero3/sft/fix=gather", "zero3/sft/frozen=head/fix=gather", "zero3/sft/kernel=chunked/frozen=head/fix=gather",
    "zero3/grpo/head=tied/fix=gather", "zero3/dpo/fix=gather+redirect", "zero3/dpo/head=tied/fix=gather",
    "zero3/kto/fix=gather+kl_backbone+redirect")
# … and in these DeepSpeed gathers a head that is read inside the engine's forward, or the model itself calls it.
HELD_WITHOUT = ("zero3/sft/fix=gather+redirect", "zero3/sft/kernel=chunked/fix=gather+redirect",
                "zero3/grpo/head_bias=yes/fix=gather+redirect", "zero3/sft/call=engine/fix=gather",
                "zero3/dpo/frozen=lora/reference=shared/fix=gather+redirect")
# Appended to a copy of TRL: whichever of the two names its release calls is the module's last.
NULL_GATHER = """

def maybe_gather_lm_head_ctx(*_):
    import contextlib
    return contextlib.nullcontext()


_maybe_gather_lm_head_ctx = maybe_gather_lm_head_ctx
"""


def ask(requests, **settings):
    """(exit status, result lines by id, standard error) of a worker given these requests."""
    environment = os.environ | {"REGATHER_STACK": f"python:{sys.prefix}"} | settings
    with tempfile.NamedTemporaryFile() as box:
        worker = subprocess.run([PACKAGE / "worker.sh", "--blackbox", box.name], env=environment, text=True,
                                input="".join(json.dumps(request) + "\n" for request in requests), capture_output=True)
    return worker.returncode, {r["id"]: r for r in map(json.loads, worker.stdout.splitlines())}, worker.stderr


def with_null_gather(folder):
    """Python's path with a copy of TRL in front whose gather does nothing."""
    copy = pathlib.Path(folder) / "trl"
    shutil.copytree(pathlib.Path(importlib.util.find_spec("trl").origin).parent, copy)
    for name in ("utils.py", "sft_trainer.py"):
        module = copy / "trainer" / name
        text = module.read_text()
        if "def maybe_gather_lm_head_ctx(" in text or "def _maybe_gather_lm_head_ctx(" in text:
            module.write_text(text + NULL_GATHER)
    return os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))


class Worker(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.program = pathlib.Path(cls.folder.name) / "worker"
        cls.program.write_text(f"#!/bin/sh\nexec '{sys.executable}' -W ignore '{HERE / 'standin.py'}'\n")
        cls.program.chmod(cls.program.stat().st_mode | stat.S_IXUSR)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_a_cell_of_each_kind(self):
        status, results, errors = ask([{"id": case, "timeout": 120} for case in CELLS], REGATHER_WORKER=str(self.program))
        self.assertEqual(status, 0, errors[-2000:])
        self.assertEqual({r["stack"] for r in results.values()}, {f"python:{sys.prefix}"})
        for case, (outcome, phase, mechanism) in CELLS.items():
            with self.subTest(case=case):
                result = results[case]
                signature = result["signature"] or {"phase": None, "mechanism": None}
                self.assertEqual((result["outcome"], signature["phase"], signature["mechanism"]),
                                 (outcome, phase, mechanism), result)
                if outcome == "pass":
                    self.assertGreater(result["gradients"]["compared"], 0)
                    self.assertLess(result["gradients"]["share"], 1)
                    self.assertLess(result["counters"]["update_share"], 1)

    @unittest.skipUnless("REGATHER_PROGRAM" in os.environ, "REGATHER_PROGRAM, the built regather, is not set")
    def test_fidelity_is_red_over_a_regression_in_trl_and_names_cell_and_mechanism(self):
        cases = ["zero3/dpo/fix=gather+redirect", "ddp/dpo/fix=redirect"]
        with tempfile.TemporaryDirectory() as folder:
            command = [os.environ["REGATHER_PROGRAM"], "fidelity", "--stack", f"python:{sys.prefix}", "--out",
                       f"{folder}/out", *(part for case in cases for part in ("--case", case))]
            sound = subprocess.run(command, capture_output=True, text=True, check=False)
            planted = subprocess.run(command, env=os.environ | {"PYTHONPATH": with_null_gather(folder)},
                                     capture_output=True, text=True, check=False)
        self.assertEqual(sound.returncode, 0, sound.stdout + sound.stderr)
        self.assertEqual(planted.returncode, 1, planted.stdout + planted.stderr)
        self.assertIn(f"{cases[0]} [local]\n    outcome: real error, runtime pass\n"
                      "    failure: real head_read_partitioned in forward of step 0", planted.stdout)
        self.assertNotIn(cases[1], planted.stdout)

    def test_a_regression_in_trl_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            requests = [{"id": case, "timeout": 120} for case in HELD_BY_THE_GATHER + HELD_WITHOUT]
            status, results, errors = ask(requests, REGATHER_WORKER=str(self.program),
                                          PYTHONPATH=with_null_gather(folder))
        self.assertEqual(status, 0, errors[-2000:])
        for case in HELD_BY_THE_GATHER:
            signature = results[case]["signature"] or {"phase": None, "mechanism": None}
            self.assertEqual((results[case]["outcome"], signature["phase"], signature["mechanism"]),
                             ("error", "forward", "head_read_partitioned"), results[case])
        for case in HELD_WITHOUT:
            self.assertEqual(results[case]["outcome"], "pass", results[case])

    def test_nothing_is_computed_for_an_unsupported_case(self):
        status, results, _ = ask([{"id": "fsdp1/sft/fix=none"}], REGATHER_WORKER="/nonexistent")
        self.assertEqual((status, results["fsdp1/sft/fix=none"]["outcome"]), (0, "unsupported"))
        self.assertIn("fsdp1", results["fsdp1/sft/fix=none"]["reason"])

    def test_what_cannot_be_used_is_exit_2(self):
        for request, settings, part in (({"id": "ddp/sft/fix=none"}, {"REGATHER_WORKER": ""}, "REGATHER_WORKER"),
                                        ({"id": "ddp"}, {}, "case 'ddp'"),
                                        ({"id": "ddp/sft/fix=none", "fault": "skip_mask"}, {}, "skip_mask")):
            status, results, errors = ask([request], **settings)
            self.assertEqual((status, results), (2, {}))
            self.assertIn(part, errors)


class Order(unittest.TestCase):
    def test_collectives_end_in_the_order_in_which_they_began(self):
        program = f"""if True:
            import os, sys
            sys.path.insert(0, {str(PACKAGE)!r})
            import torch, torch.distributed as dist
            from regather_peers import collectives
            collectives.begin("cpu", int(sys.argv[1]), 2, sys.argv[2], 60)
            group = dist.new_group([0, 1])  # as DeepSpeed has one of its own
            late = 0
            for _ in range(10):
                large = dist.all_gather_into_tensor(torch.empty(1 << 23), torch.ones(1 << 22), group, async_op=True)
                dist.all_gather_into_tensor(torch.empty(2), torch.ones(1), group, async_op=True).wait()
                late += not large.is_completed()
                large.wait()
            sys.stdout.flush()
            os._exit(late)
        """
        with tempfile.TemporaryDirectory() as folder:
            ranks = [subprocess.Popen([sys.executable, "-c", program, str(rank), os.path.join(folder, "store")])
                     for rank in range(2)]
            self.assertEqual([rank.wait() for rank in ranks], [0, 0], "how often a later one had ended first")


if __name__ == "__main__":
    unittest.main()
