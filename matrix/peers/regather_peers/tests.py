"""Runs upstream's own test files on a stack and puts what they say, with times, into a document: `regather peers tests`.

    regather peers tests FILE[::TEST]... --stack python:ENV [--out DIR] [--timeout S] [-- PYTEST_ARGUMENTS]

FILE stands in a checkout of DeepSpeed, TRL or Liger whose version fits the environment; pytest is added to it as an
overlay. Each file runs in a process of its own, from the checkout's root. DIR/results.json, made by `matrix run` or here,
gets the member "upstream_tests": a list of {"file", "test", "outcome", "seconds", "text"}, outcome one of pass, failure,
error, skip and hang. Exit 0 when nothing failed, 1 when something did, 2 when it cannot be run, 4 when nothing ran.
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as xml

from regather_peers import overlay, setup

LONGEST_TEXT = 4000


def parse(arguments):
    split = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(prog="regather peers tests", description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", metavar="FILE[::TEST]")
    parser.add_argument("--stack", required=True)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out"))
    parser.add_argument("--timeout", type=float, default=900, help="seconds a file (default: 900)")
    options = parser.parse_args(arguments[:split])
    options.pytest = arguments[split + 1:]
    return options


def root_of(file):
    """The checkout that the file belongs to: the nearest folder above with a setup.py, pyproject.toml or .git."""
    for folder in file.resolve().parents:
        if any((folder / name).exists() for name in ("setup.py", "pyproject.toml", ".git")):
            return folder
    raise setup.SetupError(f"'{file}': no setup.py, pyproject.toml or .git in any folder above: expected a checkout")


def run_file(environment, tools, name, options):
    """The tests of one file."""
    path, _, test = name.partition("::")
    file = pathlib.Path(path)
    if not file.is_file():
        raise setup.SetupError(f"'{path}': expected a test file of an upstream checkout")
    root = root_of(file)
    settings = os.environ | {"PYTHONPATH": f"{setup.PEERS / 'site'}:{tools}", "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu",
                             "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    settings.pop("PYTHONSAFEPATH", None)  # the processes that the tests start find their modules in the current folder
    with tempfile.TemporaryDirectory(prefix="regather-tests-") as folder:
        report = pathlib.Path(folder) / "junit.xml"
        command = [environment / "bin/python", "-m", "pytest", "-p", "no:cacheprovider", f"--junitxml={report}",
                   f"{file.resolve()}{'::' + test if test else ''}", *options.pytest]
        begin = time.monotonic()
        process = subprocess.Popen(command, cwd=root / "tests" if (root / "tests").is_dir() else root, env=settings,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
        try:
            said, _ = process.communicate(timeout=options.timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said, _ = process.communicate()
            return [entry(name, "", "hang", time.monotonic() - begin, said[-LONGEST_TEXT:])]
        if not report.is_file():
            return [entry(name, "", "error", time.monotonic() - begin, said[-LONGEST_TEXT:])]
        return read_report(name, report.read_bytes()) or [entry(name, "", "error", time.monotonic() - begin,
                                                                said[-LONGEST_TEXT:])]


def entry(file, test, outcome, seconds, text=""):
    return {"file": file, "test": test, "outcome": outcome, "seconds": round(seconds, 3), "text": text[:LONGEST_TEXT]}


def read_report(name, report):
    found = []
    for case in xml.fromstring(report).iter("testcase"):
        outcome, text = "pass", ""
        for kind in ("failure", "error", "skipped"):
            part = case.find(kind)
            if part is not None:
                outcome = {"skipped": "skip"}.get(kind, kind)
                text = part.get("message") or part.text or ""
                break
        found.append(entry(name, case.get("name", ""), outcome, float(case.get("time", 0)), text))
    return found


def write(out, stack, tests):
    """Into the document of a run when there is one, else into one of its own; never half a file."""
    out.mkdir(parents=True, exist_ok=True)
    file = out / "results.json"
    if file.is_file():
        document = json.loads(file.read_text())
    else:
        document = {"schema": 1, "environment": {"stack": f"python:{stack}", **setup.describe(stack)},
                    "plan": {"definition": "upstream tests", "hash": "", "cases": 0}, "totals": {}, "cases": [],
                    "seconds": 0}
    names = {test["file"] for test in tests}
    kept = [test for test in document.get("upstream_tests", []) if test["file"] not in names]
    document["upstream_tests"] = kept + tests
    part = file.with_suffix(".json.part")
    part.write_text(json.dumps(document, indent=1) + "\n")
    part.replace(file)


def main():
    options = parse(sys.argv[1:])
    environment = pathlib.Path(options.stack.removeprefix("python:"))
    if not (environment / "bin/python").exists():
        environment = setup.home() / options.stack.removeprefix("python:")
    tests = []
    try:
        if not (environment / "bin/python").exists():
            raise setup.SetupError(f"--stack '{options.stack}': no bin/python there")
        tools = overlay.make_tools(environment, "pytest", "pytest-timeout")
        for name in options.files:
            found = run_file(environment, tools, name, options)
            tests += found
            counts = {kind: sum(t["outcome"] == kind for t in found) for kind in dict.fromkeys(t["outcome"] for t in found)}
            setup.say(f"{name}: {', '.join(f'{n} {kind}' for kind, n in counts.items())}, "
                      f"{sum(t['seconds'] for t in found):.1f} s")
        write(options.out, environment.resolve(), tests)
    except (setup.SetupError, OSError) as error:
        setup.say(f"peers tests: {error}")
        return 2
    ran = [t for t in tests if t["outcome"] != "skip"]
    return 4 if not ran else int(any(t["outcome"] != "pass" for t in ran))


if __name__ == "__main__":
    sys.exit(main())
