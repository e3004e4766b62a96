#!/usr/bin/env python3
"""ci/check_formats sees what is wrong with a report.

usage: formats_test.py [TEST...]
"""

import copy
import importlib.machinery
import importlib.util
import json
import pathlib
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
GOLDEN = ROOT / "tests/reports/golden"
LOADER = importlib.machinery.SourceFileLoader("check_formats", str(ROOT / "ci/check_formats"))
check_formats = importlib.util.module_from_spec(importlib.util.spec_from_loader("check_formats", LOADER))
LOADER.exec_module(check_formats)


class Formats(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def junit(self, *replaced):
        text = (GOLDEN / "junit.xml").read_text()
        if replaced:
            self.assertIn(replaced[0], text)
            text = text.replace(*replaced, 1)
        file = self.folder / "junit.xml"
        file.write_text(text)
        return list(check_formats.junit_breaches(file))

    def test_junit(self):
        self.assertEqual(self.junit(), [])
        self.assertTrue(self.junit('failures="4"', 'failures="3"'))
        self.assertTrue(self.junit("<skipped ", "<odd "))

    @unittest.skipUnless(check_formats.PUBLISHED.exists(), "needs ci/setup --ci")
    def test_junit_by_its_published_schema(self):
        schema, file = check_formats.PUBLISHED / "junit-10.xsd", self.folder / "junit.xml"
        golden = (GOLDEN / "junit.xml").read_text()
        for old, new in (("", ""), ("<testcase name=", "<testcase odd="), ("<skipped ", "<odd "), ("</testsuite>", "")):
            self.assertIn(old, golden)
            file.write_text(golden.replace(old, new, 1) if old else golden)
            self.assertEqual(bool(check_formats.refused(schema, file)), bool(old), old)

    def refused(self, kind, document):
        file = self.folder / f"{kind}.json"
        file.write_text(json.dumps(document))
        schemas = {"sarif": [check_formats.PUBLISHED / "sarif-2.1.0.json"], "ctrf": []}[kind]
        schemas = [s for s in schemas if s.exists()] + [ROOT / f"reports/schema/{kind}.schema.json"]
        return any(check_formats.refused(schema, file) for schema in schemas)

    @unittest.skipUnless((ROOT / ".deps/check-jsonschema").exists(), "needs ci/setup --ci")
    def test_json_formats(self):
        for kind, places in (("sarif", (("runs", 0, "results", 0, "level"), ("runs", 0, "results", 0, "baselineState"),
                                        ("version",), ("runs", 0, "tool", "driver", "name"))),
                             ("ctrf", (("results", "tests", 0, "status"), ("results", "summary", "passed"),
                                       ("results", "tests", 0, "duration"), ("reportFormat",)))):
            golden = json.loads((GOLDEN / f"{kind}.json").read_text())
            self.assertFalse(self.refused(kind, golden))
            for place in places:
                for change in ("odd", None):
                    altered = copy.deepcopy(golden)
                    at = altered
                    for step in place[:-1]:
                        at = at[step]
                    at[place[-1]] = change
                    self.assertTrue(self.refused(kind, altered), f"{kind} {place} {change}")
            at = copy.deepcopy(golden)
            at["odd"] = 1
            self.assertTrue(self.refused(kind, at))


if __name__ == "__main__":
    unittest.main()
