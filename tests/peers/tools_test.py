"""The peers package's own programs, without any of the packages: set-up's choices, tables, bisection."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "matrix" / "peers"))

from regather_peers import bisection, overlay, setup, table, tests  # noqa: E402


class Setup(unittest.TestCase):
    def wanted(self, *arguments):
        return setup.wanted(setup.parse(list(arguments)))

    def test_a_set_is_its_lock(self):
        self.assertEqual(self.wanted(), ("supported", {}))
        self.assertEqual(self.wanted("--torch", "2.11.0", "--trl", "1.6.0"), ("supported", {}))

    def test_other_versions_name_the_environment(self):
        self.assertEqual(self.wanted("--trl", "1.16.0"), ("supported-trl1.16.0", {"trl": "1.16.0"}))
        self.assertEqual(self.wanted("--liger", "0.8.0", "--name", "mine"), ("mine", {"liger-kernel": "0.8.0"}))

    def test_what_is_no_version_or_name(self):
        for arguments in (("--trl", "latest"), ("--trl", "; rm"), ("--name", "../up"), ("--name", ".hidden")):
            with self.assertRaises(setup.SetupError, msg=arguments):
                self.wanted(*arguments)

    def test_locks_pin_every_package_by_hash(self):
        for lock in setup.LOCKS.glob("*.txt"):
            pins = setup.read_lock(lock.stem)
            for package in setup.CHOSEN.values():
                self.assertIn(package, pins, lock)
            for line in lock.read_text().splitlines():
                self.assertRegex(line, r"^#|^[a-z0-9-]+==\S+ --hash=sha256:[0-9a-f]{64}$", lock)

    def test_the_supported_set(self):
        pins = setup.read_lock("supported")
        self.assertEqual([pins[p] for p in ("torch", "deepspeed", "trl", "liger-kernel")],
                         ["2.11.0", "0.19.2", "1.6.0", "0.8.5"])

    def test_a_package_is_built_with_its_own_folder_on_the_path(self):
        """DeepSpeed's setup.py imports its op_builder; regather itself starts its programs without that."""
        with unittest.mock.patch.dict(os.environ, {"PYTHONSAFEPATH": "1"}):
            self.assertEqual(setup.run(sys.executable, "-c", "import os; print(os.environ.get('PYTHONSAFEPATH'))"),
                             "None\n")


class CommandLine(unittest.TestCase):
    def test_every_program_that_the_command_line_becomes_is_here(self):
        text = "".join(file.read_text() for file in (ROOT / "matrix" / "cli").glob("*.cpp"))
        names = re.findall(r'become_peer\(\s*"(\w+)"', text) + re.findall(r'forward\(\*command, action, "(\w+)"', text)
        self.assertGreaterEqual(len(names), 4)
        for name in names:
            done = subprocess.run([sys.executable, "-m", f"regather_peers.{name}", "--help"], capture_output=True, text=True,
                                  env=os.environ | {"PYTHONPATH": str(ROOT / "matrix" / "peers")}, check=False)
            self.assertEqual(done.returncode, 0, f"{name}: {done.stderr}")
            self.assertIn("--stack" if name in ("bisection", "table", "tests") else "--set", done.stdout)


class Bisection(unittest.TestCase):
    def first_change(self, happened):
        versions = [f"1.{i}.0" for i in range(len(happened))]
        asked = []

        def run(version):
            asked.append(version)
            return happened[int(version.split(".")[1])]

        return bisection.Bisection(versions, run).first_change(), asked

    def test_finds_the_first_release_that_differs(self):
        for changed in range(1, 9):
            found, asked = self.first_change(["bad"] * changed + ["good"] * (9 - changed))
            self.assertEqual(found, (f"1.{changed - 1}.0", f"1.{changed}.0", []))
            self.assertLessEqual(len(asked), 6)

    def test_nothing_changed(self):
        self.assertIsNone(self.first_change(["bad"] * 5)[0])

    def test_a_release_that_cannot_be_used_is_stepped_over(self):
        self.assertEqual(self.first_change(["bad", None, None, "bad", "good", "good"])[0], ("1.3.0", "1.4.0", []))
        self.assertEqual(self.first_change(["bad", None, None, "good"])[0], ("1.0.0", "1.3.0", ["1.1.0", "1.2.0"]))
        with self.assertRaises(setup.SetupError):
            self.first_change([None, "good"])

    def test_versions_are_in_the_order_of_their_numbers(self):
        self.assertEqual(sorted(["1.10.0", "1.9.2", "0.29.1"], key=overlay.order), ["0.29.1", "1.9.2", "1.10.0"])
        self.assertEqual(bisection.between(["1.8.0", "1.9.0", "1.9.1", "1.10.0"], "1.9.0", "1.10.0"),
                         ["1.9.0", "1.9.1", "1.10.0"])
        for ends in (("1.9.0", "1.9.0"), ("1.9.5", "1.10.0")):
            with self.assertRaises(setup.SetupError):
                bisection.between(["1.9.0", "1.10.0"], *ends)


def results():
    """A passing result for every cell of the tables."""
    one = {"outcome": "pass", "signature": None, "also": [], "reason": None, "gradients": {"relative_l2": 1.23456e-6}}
    return {case: dict(one) for *_, case in (*table.truth_cells(), *table.card_cells())}


ERROR = {"outcome": "error", "reason": None, "gradients": None, "also": [],
         "signature": {"mechanism": "head_read_partitioned", "phase": "forward", "step": 0, "rank": 0,
                       "type": "RuntimeError", "text": "size mismatch, got input (16), mat (16x32), vec (0)"}}


class Tables(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.before, self.after = pathlib.Path(folder.name) / "before", pathlib.Path(folder.name) / "after"

    def test_every_cell_of_the_definition_and_no_other(self):
        self.assertEqual(len(list(table.card_cells())), 680)
        self.assertEqual(len(list(table.truth_cells())), 81)

    def test_equal_results_change_nothing_and_a_missing_one_is_named(self):
        self.assertEqual(table.write(self.before, results()), [])
        self.assertEqual(table.write(self.after, results()), [])
        self.assertEqual(table.changes(self.after, self.before), [])
        some = results()
        del some["zero3/sft/fix=none"]
        self.assertEqual(set(table.write(self.after, some)), {"zero3/sft/fix=none"})

    def test_what_changed_is_said(self):
        table.write(self.before, results())
        table.write(self.after, results() | {"zero3/sft/checkpoint=nonreentrant/frozen=norms/fix=gather+redirect": ERROR})
        changes = "\n".join(table.changes(self.after, self.before))
        self.assertEqual(changes, "| card-real.jsonl | zero3 sft nonreentrant norms c yes | PASS, 0 | FAIL, 0, forward, "
                                  "builtins.RuntimeError, size mismatch, got input (N), mat (Nx32), vec (0), 0 |")

    def test_the_rows_of_a_chunk_are_no_change(self):
        other = json.loads(json.dumps(ERROR).replace("16", "22"))
        table.write(self.before, results() | {"zero3/sft/fix=none": ERROR})
        table.write(self.after, results() | {"zero3/sft/fix=none": other})
        self.assertEqual(table.changes(self.after, self.before), [])


JUNIT = b"""<testsuites><testsuite><testcase classname="T" name="ok" time="1.25"/>
<testcase name="bad" time="0.5"><failure message="assert 1 == 2">trace</failure></testcase>
<testcase name="left_out"><skipped message="needs a GPU"/></testcase>
<testcase name="broken"><error>no such fixture</error></testcase></testsuite></testsuites>"""


class UpstreamTests(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_a_report_becomes_entries(self):
        found = tests.read_report("t.py", JUNIT)
        self.assertEqual([(e["test"], e["outcome"], e["text"]) for e in found],
                         [("ok", "pass", ""), ("bad", "failure", "assert 1 == 2"), ("left_out", "skip", "needs a GPU"),
                          ("broken", "error", "no such fixture")])
        self.assertEqual(found[0]["seconds"], 1.25)

    def test_a_file_belongs_to_the_checkout_above_it(self):
        file = self.folder / "checkout" / "tests" / "unit" / "t.py"
        file.parent.mkdir(parents=True)
        file.touch()
        (self.folder / "checkout" / "setup.py").touch()
        self.assertEqual(tests.root_of(file), (self.folder / "checkout").resolve())

    def test_a_document_keeps_its_cases_and_other_files(self):
        (self.folder / "results.json").write_text(json.dumps({"cases": [1], "upstream_tests": [{"file": "a"}, {"file": "b"}]}))
        tests.write(self.folder, None, tests.read_report("b", JUNIT))
        document = json.loads((self.folder / "results.json").read_text())
        self.assertEqual(document["cases"], [1])
        self.assertEqual([e["file"] for e in document["upstream_tests"]], ["a", "b", "b", "b", "b"])

    def test_arguments_after_two_dashes_are_pytests(self):
        options = tests.parse(["a.py", "--stack", "python:x", "--", "-k", "some thing"])
        self.assertEqual((options.files, options.pytest), (["a.py"], ["-k", "some thing"]))

    def test_the_environments_packages_are_tested_without_deepspeeds_shared_memory_operator(self):
        package = self.folder / "deepspeed" / "comm"
        package.mkdir(parents=True)
        for init in (self.folder / "deepspeed", package):
            (init / "__init__.py").touch()
        (package / "torch.py").write_text("def build_shm_op():\n    raise SystemExit('it would compile')\n")
        program = "import deepspeed.comm.torch as t; print(t.build_shm_op())"
        # The environment's own is this one; a checkout's stands before it on the path.
        (self.folder / "checkout" / "trl").mkdir(parents=True)
        (self.folder / "checkout" / "trl" / "__init__.py").touch()
        (self.folder / "trl").mkdir()
        (self.folder / "trl" / "__init__.py").write_text("own = True\n")
        program = f"import site; site.getsitepackages = lambda: [{str(self.folder)!r}]; {program}; import trl; print(trl.own)"
        path = f"{setup.LOCKS.parent / 'site'}:{self.folder / 'checkout'}"
        done = subprocess.run([sys.executable, "-c", program], env={"PYTHONPATH": path}, capture_output=True, text=True,
                              check=False)
        self.assertEqual((done.stdout, done.returncode), ("None\nTrue\n", 0), done.stderr)


if __name__ == "__main__":
    unittest.main()
