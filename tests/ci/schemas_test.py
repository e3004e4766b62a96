"""The schemas and the readers refuse the same files.

    schemas_test.py REGATHER

Files that fit are altered in every place, one at a time: a member goes, an unknown one comes, a value becomes another.
Each altered file goes to the schema and to the program. Where they may differ, EXCEPTIONS says why. Needs what
`ci/setup --ci` installs.
"""
import copy
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / ".deps/check-jsonschema"))
import jsonschema  # noqa: E402
import referencing  # noqa: E402

SCHEMAS = {path.name: json.loads(path.read_text()) for path in (ROOT / "reports/schema").glob("*.json")}
REGISTRY = referencing.Registry().with_resources(
    (name, referencing.Resource.from_contents(schema)) for name, schema in SCHEMAS.items())
OTHERS = [None, True, 7, -1, 0.5, "", "zz", "(", [], ["zz"], {}, {"zz": 1}]

# What reads a file of each kind; exit 2 refuses it.
READERS = {
    "results": ["compare", "FILE", "FILE"],
    "definition": ["matrix", "list", "FILE"],
    "expectations": ["matrix", "run", "--dry-run", "--case", "zero3/sft/fix=none", "--expectations", "FILE"],
}

# (kind, place, who refuses it alone, why)
EXCEPTIONS = [
    ("results", r"/cases/0/(axes|fixes)", "schema", "they say again what the id says, and readers go by the id"),
    ("results", r"/(totals|seconds|environment)", "schema", "for people: no command reads them back as they must be"),
    ("results", r"/plan/hash", "schema", "only a merge reads it"),
    ("results", r"/cases/0/(death|plan)", "schema", "what a run writes for people; no command reads it"),
    ("expectations", r"/expectations/0/(select|case)", "reader", "filters and ids are parsed"),
    ("expectations", r"/expectations/0/signature/text", "reader", "regular expressions are compiled"),
]

CASE = {
    "schema": 1, "id": "zero3/sft/fix=none", "axes": {"backend": "zero3", "loss": "sft"}, "fixes": [], "device": "cpu",
    "stack": "reference", "attempt": 1, "outcome": "error",
    "signature": {"mechanism": "head_read_partitioned", "phase": "forward", "step": 0, "rank": 1, "type": "Error",
                  "text": "size mismatch", "upstream": None,
                  "where": {"module": "lm_head", "parameter": None, "collective": "all_gather #2"}},
    "also": [{"outcome": "invariant", "signature": {"mechanism": None, "phase": "step", "step": 1, "rank": 0,
                                                     "type": "update", "text": "no update", "upstream": "said"}}],
    "gradients": {"compared": 27, "worst": "lm_head.weight", "relative_l2": 0.5, "cosine": None, "tolerance": 1e-5,
                  "share": 5e4, "max_abs": 1.5, "at": [3, 4], "got": 1, "want": 2, "missing": 0, "unexpected": 0,
                  "nonfinite": 1},
    "loss": {"got": 5.5, "want": 5.25}, "counters": {"gathers": 4.0}, "milliseconds": 1.5, "peak_bytes": 1024,
    "reason": None, "attempts": ["error", "error"], "verdict": "xfail",
    "death": {"rank": 1, "step": 0, "phase": "forward", "signal": "SIGSEGV", "last_collective": None,
              "backtrace": ["f"], "ranks": [{"rank": 0, "state": "runs", "step": 0, "phase": "forward",
                                             "collectives": ["all_gather #1"], "backtrace": []}]}}
FITS = {
    "results": {"schema": 1, "environment": {"torch": "2.11.0", "cores": 2, "packages": {"trl": "1.6.0"}},
                "plan": {"definition": "card", "hash": "0123", "cases": 2, "shard": "1/2", "selected": 4},
                "totals": {"error": 1, "verdict": {"xfail": 1}}, "cases": [CASE], "seconds": 1.5},
    "definition": {"schema": 1, "about": "x", "fixes": ["off"],
                   "sets": [{"backend": ["ddp"], "world": ["2", "4"], "fixes": ["off", "on"]},
                            {"backend": ["zero3"], "fix": ["none", "gather+redirect"]}]},
    "expectations": {"schema": 1, "about": "x", "definition": "card", "complete": False, "expectations": [{
        "select": "backend=zero3 & fix=none", "outcome": "error", "signature": {
            "mechanism": "head_read_partitioned", "phase": "forward", "type": "Error", "text": "mis+match"},
        "issues": ["trl#1"], "reason": "x", "since": "2026-12-01", "review_by": "2027-01-31",
        "when": {"versions": {"torch": ">=2.11,<2.12"}, "world": [2], "device": ["cpu"], "stack": ["reference"]}}]},
}


def validator(kind):
    return jsonschema.Draft202012Validator(SCHEMAS[f"{kind}.schema.json"], registry=REGISTRY)


def altered(node, place=""):
    """(place, what was done, a change to the node's parent) for every place below `node`."""
    keys = list(node) if isinstance(node, dict) else range(len(node))
    for key in keys:
        here = f"{place}/{key}"
        yield here, "gone", lambda parent, k=key: parent.pop(k)
        for other in OTHERS:
            if other != node[key] or isinstance(other, bool) != isinstance(node[key], bool):
                yield here, f"is {json.dumps(other)}", lambda parent, k=key, o=other: parent.__setitem__(k, o)
        if isinstance(node[key], (dict, list)):
            yield from altered(node[key], here)
    if isinstance(node, dict):
        yield f"{place}/zz", "unknown", lambda parent: parent.__setitem__("zz", 1)


def changed(document, place, change):
    copied = copy.deepcopy(document)
    node = copied
    for key in place.split("/")[1:-1]:
        node = node[int(key) if isinstance(node, list) else key]
    change(node)
    return copied


class Schemas(unittest.TestCase):
    def read(self, kind, document):
        """Whether the program refuses it, and what it says."""
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(document, file)
            file.flush()
            command = [file.name if word == "FILE" else word for word in READERS[kind]]
            done = subprocess.run([PROGRAM, *command], capture_output=True, text=True, check=False)
        self.assertIn(done.returncode, (0, 1, 2, 4), done.stderr)
        return done.returncode == 2, done.stderr

    def test_schemas_and_readers_refuse_the_same(self):
        used = set()
        for kind, document in FITS.items():
            schema = validator(kind)
            self.assertTrue(schema.is_valid(document), kind)
            self.assertEqual(self.read(kind, document), (False, self.read(kind, document)[1]), kind)
            refused = 0
            for place, what, change in altered(document):
                with self.subTest(kind, place=place, what=what):
                    other = changed(document, place, change)
                    by_schema = not schema.is_valid(other)
                    by_reader, said = self.read(kind, other)
                    refused += by_schema and by_reader
                    if by_schema == by_reader:
                        continue
                    alone = "schema" if by_schema else "reader"
                    excuse = next((e for e in EXCEPTIONS if e[0] == kind and re.match(e[1], place) and e[2] == alone), None)
                    used.add(excuse)
                    self.assertIsNotNone(excuse, f"{kind}{place} {what}: refused by the {alone} alone; {said}")
            self.assertGreater(refused, 50, kind)
        self.assertEqual(set(EXCEPTIONS) - used, set(), "exceptions that nothing needs")

    def test_axes_are_those_of_the_program(self):
        listed = subprocess.run([PROGRAM, "matrix", "list", "--case", "ddp/sft/fix=none", "--format", "json"],
                                capture_output=True, text=True, check=True).stdout
        axes = list(json.loads(listed)[0]["axes"])
        definition = SCHEMAS["definition.schema.json"]
        self.assertEqual([key for key in definition["$defs"]["set"]["properties"] if key not in ("fixes", "fix")], axes)
        self.assertEqual(list(SCHEMAS["case.schema.json"]["properties"]["axes"]["properties"]), axes)
        for axis in axes:
            given = {"backend": "x/sft/fix=none", "loss": "ddp/x/fix=none"}.get(axis, f"ddp/sft/{axis}=x/fix=none")
            words = subprocess.run([PROGRAM, "matrix", "list", "--case", given], capture_output=True, text=True,
                                   check=False).stderr
            values = re.search(r"expected one of (.*?)\.?$", words, re.MULTILINE)[1].split(", ")
            self.assertEqual(definition["$defs"][f"axis_{axis}"]["enum"], values)
        words = subprocess.run([PROGRAM, "matrix", "list", "--case", "ddp/sft/fix=x"], capture_output=True, text=True,
                               check=False).stderr
        fixes = re.search(r"out of (.*?)\.?$", words, re.MULTILINE)[1].split(", ")
        self.assertEqual(re.findall(r"\w+", definition["$defs"]["fixNames"]["pattern"])[:len(fixes)], fixes)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
