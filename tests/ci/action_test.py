"""The steps of ci/action/action.yml, run one after the other in a repository that uses it.

    action_test.py REGATHER

What GitHub does around them is done here: expressions, outputs, caches and artifacts. A step that uses another action,
or an expression that is not known here, fails.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
ACTION = ROOT / "ci/action"
CASES = ["--case", "zero1/sft/fix=none", "--case", "zero1/sft/frozen=norms/fix=none"]
FAULT = ["--fault", "drop_all_reduce"]


class Job:
    """One job of the workflow in `repository`, run number `run` on `branch`."""

    def __init__(self, repository, caches, run, branch="main"):
        self.repository, self.caches = repository, caches
        self.summary = self.log = ""
        self.artifacts, self.outputs, self.failed = {}, {}, False
        action = yaml.safe_load((ACTION / "action.yml").read_text())
        workflow = yaml.safe_load((repository / ".github/workflows/gate.yml").read_text())
        given = next(s for s in workflow["jobs"]["gate"]["steps"] if "regather" in s.get("uses", ""))["with"]
        if unknown := set(given) - set(action["inputs"]):
            raise KeyError(f"inputs that the action has not: {unknown}")
        self.values = {f"inputs.{name}": str(given.get(name, one["default"])) for name, one in action["inputs"].items()}
        self.values |= {"runner.os": "Linux", "github.action_ref": "v1", "github.run_id": str(run),
                        "github.run_attempt": "1", "github.ref_name": branch,
                        "github.event.repository.default_branch": "main"}
        for step in action["runs"]["steps"]:
            self.step(step)
        self.results = {name: self.text(one["value"]) for name, one in action["outputs"].items()}

    def value(self, expression):
        expression = expression.strip()
        if "==" in expression or "!=" in expression:
            left, operator, right = re.fullmatch(r"(\S+) (==|!=) (\S+)", expression).groups()
            return (self.value(left) == self.value(right)) == (operator == "==")
        if expression.startswith("'"):
            return expression.strip("'")
        if expression.startswith("steps."):
            return self.values.get(expression, "")
        return self.values[expression]

    def text(self, template):
        def put(match):
            value = self.value(match[1])
            return value if isinstance(value, str) else str(value).lower()
        return re.sub(r"\$\{\{(.*?)\}\}", put, str(template))

    def wanted(self, condition):
        parts = [part.strip() for part in condition.split("&&")]
        always = "always()" in parts
        return (always or not self.failed) and all(self.value(part) for part in parts if part != "always()")

    def step(self, step):
        if not self.wanted(step.get("if", "'yes' == 'yes'")):
            return
        options = {name: self.text(value) for name, value in step.get("with", {}).items()}
        if "run" in step:
            self.run(step)
        elif step["uses"] == "actions/cache@v4":
            assert options["key"] and all(pathlib.Path(p).parent == ROOT for p in options["path"].split())
        elif step["uses"] == "actions/cache/restore@v4":
            prefixes = [options["key"], *options["restore-keys"].split()]
            fits = [key for prefix in prefixes for key in reversed(self.caches) if key.startswith(prefix)]
            if fits:
                shutil.copytree(self.caches[fits[0]], self.repository / options["path"], dirs_exist_ok=True)
        elif step["uses"] == "actions/cache/save@v4":
            assert options["key"] not in self.caches, "a cache is never written twice"
            copy = pathlib.Path(tempfile.mkdtemp(dir=self.repository.parent))
            shutil.copytree(self.repository / options["path"], copy, dirs_exist_ok=True)
            self.caches[options["key"]] = copy
        elif step["uses"] == "actions/upload-artifact@v4":
            files = {f.name: f.read_text() for f in (self.repository / options["path"]).iterdir()}
            assert files
            self.artifacts[options["name"]] = files
        else:
            raise ValueError(f"no stand-in for {step['uses']}")

    def run(self, step):
        with tempfile.TemporaryDirectory() as folder:
            output, summary = pathlib.Path(folder, "output"), pathlib.Path(folder, "summary")
            output.touch(), summary.touch()
            environment = os.environ | {name: self.text(value) for name, value in step.get("env", {}).items()} | {
                "GITHUB_OUTPUT": str(output), "GITHUB_STEP_SUMMARY": str(summary), "GITHUB_ACTION_PATH": str(ACTION),
                "GATE_PROGRAM": PROGRAM}
            done = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", self.text(step["run"])], cwd=self.repository,
                                  env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
            self.log, self.code, self.failed = self.log + done.stdout, done.returncode, done.returncode != 0
            self.summary += summary.read_text()
            for line in output.read_text().splitlines():
                name, _, value = line.partition("=")
                self.values[f"steps.{step['id']}.outputs.{name}"] = value

    def annotations(self, level):
        return [line for line in self.log.splitlines() if line.startswith(f"::{level} ")]


class Action(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="action-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.repository = self.folder / "repository"
        self.repository.mkdir()
        self.git("init", "-q", "-b", "main")
        self.caches, self.runs = {}, 0

    def git(self, *arguments):
        subprocess.run(["git", "-C", str(self.repository), "-c", "user.name=t", "-c", "user.email=t@example.org",
                        *arguments], check=True)

    def push(self, options, branch="main", **inputs):
        """Commits a workflow with these inputs, and what came of its job."""
        file = self.repository / ".github/workflows/gate.yml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(yaml.safe_dump({"on": ["push"], "jobs": {"gate": {"runs-on": "ubuntu-24.04", "steps": [
            {"uses": "actions/checkout@v4"},
            {"uses": "regather/ci/action@v1", "with": {"options": "\n".join(options)} | inputs}]}}}))
        self.git("add", ".github")
        self.git("commit", "-q", "--allow-empty", "-m", "change")
        self.git("clean", "-fdxq")
        self.runs += 1
        return Job(self.repository, self.caches, self.runs, branch)

    def test_a_planted_regression_is_red_then_blessed_then_green(self):
        first = self.push(CASES)
        self.assertEqual((first.code, first.results["verdict"]), (0, "green"), first.log)
        self.assertTrue(any("no baseline yet" in line for line in first.annotations("notice")))
        self.assertEqual(len(self.caches), 1)

        red = self.push(CASES + FAULT)
        self.assertEqual((red.code, red.results["verdict"]), (1, "red"), red.log)
        errors = red.annotations("error")
        self.assertIn(len(errors), (1, 2))
        self.assertIn("zero1/sft/fix=none", errors[0])
        self.assertIn("wrong_gradient", errors[0])
        self.assertIn("--fault 'drop_all_reduce'", errors[0], "the command to run it again breaks it again")
        self.assertIn("zero1/sft/fix=none", red.summary)
        self.assertEqual(len(self.caches), 1, "what is red is no baseline")
        files = red.artifacts["regather"]
        self.assertLessEqual({"results.json", "report.html", "junit.xml", "ctrf.json", "results.sarif"}, set(files))
        self.assertEqual({c["verdict"] for c in json.loads(files["results.json"])["cases"]}, {"regression"})
        self.assertIn("<failure", files["junit.xml"])
        self.assertEqual(json.loads(files["results.json"])["environment"]["fault"], "drop_all_reduce")

        blessed = self.push(CASES + FAULT, bless="true")
        self.assertEqual((blessed.code, blessed.results["verdict"]), (0, "blessed"), blessed.log)
        self.assertEqual(blessed.annotations("error"), [])
        self.assertEqual(len(self.caches), 2)

        green = self.push(CASES + FAULT)
        self.assertEqual((green.code, green.results["verdict"]), (0, "green"), green.log)
        self.assertEqual(green.annotations("error"), [])
        fixed = self.push(CASES)
        self.assertEqual(fixed.code, 0)
        again = self.push(CASES + FAULT)
        self.assertEqual(again.code, 1, "what was fixed since may not break again")

    def test_a_case_with_its_fixes_stays_red_until_an_expectation_says_so(self):
        case = ["--case", "zero1/sft/fix=redirect"] + FAULT
        self.assertEqual(self.push(case).code, 1)
        self.assertEqual(self.push(case, bless="true").code, 0)
        self.assertEqual(self.push(case).code, 1, "a baseline does not make it right")
        (self.repository / "expected.json").write_text(json.dumps({
            "schema": 1, "about": "planted", "definition": "card", "expectations": [{
                "case": "zero1/sft/fix=redirect", "outcome": "wrong_gradient",
                "signature": {"mechanism": None, "phase": "gradients"}, "issues": [], "reason": "planted",
                "since": "2026-12-01"}]}))
        self.git("add", "expected.json")
        self.assertEqual(self.push(case, expectations="expected.json").code, 0)

    def test_a_branch_is_compared_and_leaves_no_baseline(self):
        self.push(CASES)
        branch = self.push(CASES, branch="feature")
        self.assertEqual((branch.code, len(self.caches)), (0, 1))
        self.assertEqual(self.push(CASES + FAULT, branch="feature").code, 1)

    def test_a_baseline_of_the_repository(self):
        first = self.push(CASES)
        (self.repository / "baseline.json").write_text(first.artifacts["regather"]["results.json"])
        self.git("add", "baseline.json")
        self.assertEqual(self.push(CASES + FAULT, baseline="baseline.json").code, 1)
        missing = self.push(CASES, baseline="elsewhere.json")
        self.assertEqual(missing.code, 2)
        self.assertIn("elsewhere.json", missing.annotations("error")[0])

    def test_what_does_not_run_is_not_green(self):
        usage = self.push(["--case", "zero9/sft"])
        self.assertEqual((usage.code, usage.results["verdict"]), (2, "broken"))
        self.assertEqual(len(usage.annotations("error")), 1)
        blessed = self.push(["--case", "zero9/sft"], bless="true")
        self.assertEqual(blessed.code, 2, "nothing there to bless")
        self.assertEqual(self.push(CASES, name="../x").code, 2)
        nothing = ["--case", "fsdp1/sft/fix=none"]
        self.assertEqual(self.push(nothing).results["verdict"], "nothing")
        self.assertEqual(self.push(nothing, bless="true").code, 4, "no case was compared")
        self.assertEqual(self.caches, {})

    def test_what_an_earlier_step_left_is_not_taken_for_a_result(self):
        stale = self.repository / "regather-out/results.json"
        stale.parent.mkdir()
        stale.write_text(self.push(CASES).artifacts["regather"]["results.json"])
        self.git("add", "-f", "regather-out/results.json")
        usage = self.push(["--case", "zero9/sft"])
        self.assertEqual((usage.results, usage.artifacts), ({"verdict": "broken", "results": ""}, {}))


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
