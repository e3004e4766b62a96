"""repro/call_paths.json: every row is legal and says what was run; and a row that is not is found. Needs no package."""

import copy
import json
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "matrix" / "peers"))

from regather_peers import call_paths, trainers  # noqa: E402

SEEN = {"trl": "1.6.0", "trainer": "dpo", "fused": "liger", "backend": "zero2", "call": "direct", "fixes": [],
        "kernel": "fused", "outcome": "pass", "phase": None, "type": None, "text": None}


def seen(version, **other):
    return SEEN | {"trl": version} | other


class TheFile(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.document = json.loads(call_paths.FILE.read_text())

    def test_well_formed(self):
        self.assertEqual(list(call_paths.problems(self.document)), [])
        self.assertEqual(self.document["schema"], 1)

    def test_each_trainer_and_backend_has_its_first_and_last_release(self):
        for trainer in trainers.TRAINERS:
            fused = "chunked" if trainer == "sft" else "liger"
            for backend in trainers.BACKENDS:
                checked = {version for row in self.document["rows"] for version in row["checked"]
                           if (row["trainer"], row["fused"], row["backend"]) == (trainer, fused, backend)}
                self.assertLessEqual({call_paths.RELEASES[0], call_paths.RELEASES[-1]}, checked, (trainer, backend))

    def test_printed_as_it_stands(self):
        self.assertEqual(call_paths.printed(self.document), call_paths.FILE.read_text())

    def test_a_corrupted_row_is_found(self):
        row = next(i for i, r in enumerate(self.document["rows"]) if r["fixes"] == ["redirect"])
        for member, value, expected in (
                ("call", "engine", "excludes redirect"), ("call", "outside", "call is"), ("fixes", ["sync"], "no fix"),
                ("fixes", ["redirect", "redirect"], "not in order"), ("backend", "fsdp1", "backend is"),
                ("versions", "1.6.0", "no range"), ("checked", [], "names no release, or neither"),
                ("checked", ["0.29.1"], "leaves out"), ("case", "ddp/dpo/fix=none", "its case is"),
                ("outcome", "error", "type of an exception"), ("established", "heard", "established is")):
            made = copy.deepcopy(self.document)
            made["rows"][row][member] = value
            self.assertTrue(any(expected in problem for problem in call_paths.problems(made)), (member, value))

    def test_overlapping_ranges_are_found(self):
        made = copy.deepcopy(self.document)
        made["rows"].append(copy.deepcopy(made["rows"][0]))
        self.assertTrue(any("more than one row" in problem for problem in call_paths.problems(made)))


class Ranges(unittest.TestCase):
    def test_covers(self):
        self.assertTrue(call_paths.covers(">=1.6.0,<1.9.0", "1.8.0"))
        self.assertFalse(call_paths.covers(">=1.6.0,<1.9.0", "1.9.0"))
        self.assertTrue(call_paths.covers(">=1.9.0,<=1.14.2", "1.14.2"))
        self.assertFalse(call_paths.covers(">=1.9.0,<=1.14.2", "1.15.0"))

    def test_neighbours_close_a_range_and_others_leave_a_gap(self):
        rows = call_paths.compose([seen("1.6.0"), seen("1.8.0"), seen("1.9.0", fixes=["redirect"]),
                                   seen("1.16.0", call="engine")])
        self.assertEqual([row["versions"] for row in rows], [">=1.6.0,<1.9.0", ">=1.9.0,<=1.9.0", ">=1.16.0,<=1.16.0"])
        self.assertEqual([row["checked"] for row in rows], [["1.6.0", "1.8.0"], ["1.9.0"], ["1.16.0"]])
        self.assertEqual(list(call_paths.problems({"rows": rows})), [])

    def test_runs_that_differ_are_said(self):
        wrong = {"outcome": "wrong_gradient", "phase": "gradients", "type": "gradient", "text": "x: relative L2 error 0.1"}
        rows = call_paths.compose([seen("1.6.0"), seen("1.6.0"), seen("1.6.0", **wrong)])
        self.assertEqual((rows[0]["outcome"], rows[0]["note"]),
                         ("pass", "not the same in each of 3 runs: also wrong_gradient"))


class Disagreements(unittest.TestCase):
    def setUp(self):
        self.rows = call_paths.compose([seen("1.6.0"), seen("1.8.0")])

    def test_none(self):
        self.assertEqual(list(call_paths.disagreements(self.rows, [seen("1.7.0")])), [])

    def test_found(self):
        found = list(call_paths.disagreements(self.rows, [seen("1.7.0", call="engine"), seen("1.9.0")]))
        self.assertEqual(len(found), 2)
        self.assertIn("call is 'engine', the row says 'direct'", found[0])
        self.assertIn("no row", found[1])

    def test_numbers_of_a_text_may_differ(self):
        error = {"outcome": "error", "phase": "forward", "type": "RuntimeError"}
        rows = call_paths.compose([seen("1.6.0", text="got input (22), vec (0)", **error)])
        self.assertEqual(list(call_paths.disagreements(rows, [seen("1.6.0", text="got input (19), vec (0)", **error)])), [])
        self.assertEqual(len(list(call_paths.disagreements(rows, [seen("1.6.0", text="mixed DTensor", **error)]))), 1)


class Cases(unittest.TestCase):
    def of(self, **members):
        return call_paths.case_of(seen("1.6.0", **members))

    def test_ids(self):
        self.assertEqual(self.of(), "zero2/dpo/fix=none")
        self.assertEqual(self.of(call="engine"), "zero2/dpo/call=engine/fix=none")
        self.assertEqual(self.of(trainer="sft", kernel="recomputed", call="engine"),
                         "zero2/sft/kernel=chunked/call=engine/fix=none")
        self.assertEqual(self.of(trainer="kto", fixes=["gather", "kl_backbone", "redirect"], backend="zero3"),
                         "zero3/kto/fix=gather+kl_backbone+redirect")

    def test_taken_again_in_backward(self):
        self.assertEqual(self.of(kernel="recomputed"), "zero2/dpo/fix=none")

    def test_what_is_no_case(self):
        self.assertIsNone(self.of(call=None, kernel=None))


if __name__ == "__main__":
    unittest.main()
