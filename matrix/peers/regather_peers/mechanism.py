"""From what was seen to the mechanism of a failure, by the table mechanisms.json: the first rule that fits.

A rule fits when the departure's outcome, phase and type are among those that it names (left out: any), its `text` is
found in the exception's text, and every name under `evidence` was seen by the rank (rank.py says what each means).
"""

import functools
import json
import pathlib
import re


@functools.cache
def rules():
    return json.loads(pathlib.Path(__file__).with_name("mechanisms.json").read_text())["rules"]


def of(departure, backend, evidence):
    signature = departure["signature"]
    seen = {"outcome": departure["outcome"], "phase": signature["phase"], "backend": backend,
            "type": signature["type"].rpartition(".")[2]}
    for rule in rules():
        if all(value in rule.get(key, (value,)) for key, value in seen.items()) \
                and re.search(rule.get("text", ""), signature["text"]) \
                and all(name in evidence for name in rule.get("evidence", ())):
            return rule["mechanism"]
    return None
