#!/usr/bin/env python3
"""`regather report` and the page that a run leaves.

usage: program_test.py REGATHER [TEST...]
"""

import base64
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.dom.minidom

PROGRAM = os.path.abspath(sys.argv.pop(1))
MIXED = pathlib.Path(__file__).parent / "documents/mixed.json"


def report(*arguments):
    return subprocess.run([PROGRAM, "report", *map(str, arguments)], capture_output=True, text=True, check=False)


class Report(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="report-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def test_every_format_at_once(self):
        names = ("html", "junit", "ctrf", "sarif", "markdown", "summary", "annotations")
        flags = [part for name in names for part in (f"--{name}", self.folder / name)]
        ran = report(MIXED, *flags)
        self.assertEqual((ran.returncode, ran.stdout, ran.stderr), (0, "", ""))
        xml.dom.minidom.parse(str(self.folder / "junit"))
        for name in ("ctrf", "sarif"):
            json.loads((self.folder / name).read_text())
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), sorted(names))

    def test_the_policy_names_what_stands_in_the_page(self):
        page = report(MIXED, "--html", "-").stdout
        for tag in ("script", "style"):
            (own,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
            digest = base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()
            self.assertIn(f"{tag}-src 'sha256-{digest}'", page)

    def test_what_cannot_be_read_or_written_is_said(self):
        for arguments, code, said in (((MIXED,), 2, "nothing to write; expected one of --html"),
                                      ((self.folder / "none.json", "--junit", "-"), 2, "none.json"),
                                      ((MIXED, "--junit", MIXED / "x.xml"), 2, "cannot make the output folder"),
                                      ((MIXED, "--html", "-", "--baseline", self.folder / "old"), 2, "old")):
            ran = report(*arguments)
            self.assertEqual(ran.returncode, code, ran.stderr)
            self.assertIn(said, ran.stderr)
        broken = self.folder / "broken.json"
        broken.write_text(MIXED.read_text()[:5000])
        good = self.folder / "good.xml"
        good.write_text("the good one")
        self.assertEqual(report(broken, "--junit", good).returncode, 2)
        self.assertEqual(good.read_text(), "the good one")

    def test_a_run_leaves_its_page(self):
        out = self.folder / "out"
        command = [PROGRAM, "matrix", "run", "--case", "fsdp2/sft/fix=none", "--out", str(out)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertIn("report.html", ran.stderr)
        self.assertIn("mixed_dtensor", (out / "report.html").read_text())
        again = subprocess.run([*command, "--baseline", str(out / "results.json")], capture_output=True, text=True, check=False)
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertIn('"compare":{"before"', (out / "report.html").read_text())


if __name__ == "__main__":
    unittest.main()
