"""A document of many cases: results of the card under other ids."""

import json
import pathlib
import subprocess
import tempfile


def many_cases(program, count):
    """The parsed results.json of `count` different legal cases, each with the results that a case of the card has."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        subprocess.run([program, "matrix", "run", "card", "--out", str(folder)], stderr=subprocess.DEVNULL, check=True)
        card = json.loads((folder / "results.json").read_text())
        wide = folder / "wide.json"
        wide.write_text(json.dumps({"schema": 1, "about": "many", "fixes": ["off", "on"], "sets": [{
            "backend": ["ddp", "zero1", "zero2", "zero3", "fsdp2"], "loss": ["sft", "grpo", "dpo", "kto"],
            "checkpoint": ["none", "reentrant", "nonreentrant"], "frozen": ["none", "norms", "lora", "head", "embedding"],
            "head_bias": ["no", "yes"], "world": ["2", "1", "4"], "accumulate": ["1", "2"]}]}))
        listed = subprocess.run([program, "matrix", "list", str(wide), "--format", "json"], stdout=subprocess.PIPE,
                                check=True)
    by_place = {}
    for case in card["cases"]:
        axes = case["axes"]
        by_place[axes["backend"], axes["loss"], axes["checkpoint"], axes["frozen"], bool(case["fixes"])] = case
    cases = []
    for case in json.loads(listed.stdout)[:count]:
        axes = case["axes"]
        like = by_place[axes["backend"], axes["loss"], axes["checkpoint"], axes["frozen"], bool(case["fixes"])]
        cases.append(like | {"id": case["id"], "axes": axes, "fixes": case["fixes"]})
    if len(cases) < count:
        raise RuntimeError(f"{len(cases)} cases are listed, {count} were asked for")
    return card | {"plan": card["plan"] | {"definition": "many", "cases": count}, "cases": cases}
