#!/usr/bin/env python3
"""What stands behind standard input, output and error never gets into the results, and never ends a run.

usage: streams_test.py REGATHER
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.path.abspath(sys.argv.pop(1))
CASES = ["ddp/sft/fix=redirect", "zero3/sft/fix=none"]


class Streams(unittest.TestCase):
    def run_cases(self, redirection, *more):
        """Exit code and the ledger's lines."""
        with tempfile.TemporaryDirectory(prefix="streams-") as folder:
            command = [PROGRAM, "matrix", "run", *(part for case in CASES for part in ("--case", case)), "--out", folder, *more]
            shell = " ".join(f"'{part}'" for part in command) + " " + redirection
            ran = subprocess.run(["bash", "-c", shell], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
            ledger = pathlib.Path(folder, "cases.jsonl")
            return ran.returncode, ledger.read_text().splitlines() if ledger.exists() else []

    def test_a_closed_one_is_no_file_of_the_run(self):
        for redirection in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
            code, lines = self.run_cases(redirection)
            self.assertEqual(code, 0, redirection)
            self.assertEqual(len(lines), len(CASES), redirection)
            self.assertTrue(all(line.startswith('{"schema":1') for line in lines), redirection)

    def test_results_that_nobody_can_read_are_an_error(self):
        for redirection in (">&-", ">/dev/full"):
            code, lines = self.run_cases(redirection, "--format", "jsonl")
            self.assertEqual(code, 3, redirection)
            self.assertTrue(all(line.startswith('{"schema":1') for line in lines), redirection)

    def test_a_full_disk_behind_standard_error_ends_no_run(self):
        code, lines = self.run_cases("2>/dev/full")
        self.assertEqual((code, len(lines)), (0, len(CASES)))

    def test_numbers_that_are_none_or_too_large(self):
        for option, value in (("--timeout", "nan"), ("--timeout", "inf"), ("--timeout", "1s"), ("--seed", "-1"),
                              ("--seed", "99999999999999999999"), ("--seed", "1.5")):
            with tempfile.TemporaryDirectory() as folder:
                ran = subprocess.run([PROGRAM, "matrix", "run", "--case", CASES[0], "--out", folder, option, value],
                                     capture_output=True, text=True, check=False)
                self.assertEqual(ran.returncode, 2, (option, value, ran.stderr))
                self.assertIn(value, ran.stderr)


if __name__ == "__main__":
    unittest.main()
