#!/usr/bin/env python3
"""Compares result lines with the tables of what was measured on the real packages (tests/tables), as its compare.cpp
does, and sums up the times.

    tables.py RESULTS TABLE...      exit 1 when a cell disagrees or has no result
    tables.py --ids TABLE...        prints the tables' ids that this stack can run as one request a line

A row whose id names the fix recompute_hold stands for the stack's release that has it, not for deepspeed 0.19.2.
"""

import collections
import json
import pathlib
import re
import sys

TABLES = pathlib.Path(__file__).resolve().parent.parent / "tables"


def read_table(name):
    table = json.loads((TABLES / f"{name}.json").read_text())
    rows = [row for rule in table["rules"] for row in rule["rows"]] if "rules" in table else table["rows"]
    return {row["id"]: row for row in rows}


def disagreement(row, result):
    """None, or what differs."""
    if row["outcome"] != result["outcome"]:
        return f"{result['outcome']}, expected {row['outcome']}; {result['signature']}"
    if row["outcome"] == "pass":
        return None
    signature = result["signature"]
    for part in ("phase", "step"):
        if row[part] is not None and row[part] != signature[part]:
            return f"{part} {signature[part]}, expected {row[part]}; {signature}"
    if row["text"] and _masked(signature["text"].splitlines()[0]) != _masked(row["text"]):
        return f"text '{signature['text']}', expected '{row['text']}'"
    for later in row.get("also", ()):
        if not any(_same(later, d["signature"]) for d in result["also"]):
            return f"'also' lacks {later}"
    return None


def _same(later, signature):
    return (later["phase"] == signature["phase"] and later["step"] == signature["step"]
            and signature["text"].startswith(later["text"]))


def _masked(text):
    return re.sub(r"got input \(\d+\), mat \(\d+x", "got input (N), mat (Nx", text)


def main():
    if sys.argv[1] == "--ids":
        for table in sys.argv[2:]:
            for case in read_table(table):
                print(json.dumps({"id": case, "timeout": 120}))
        return 0
    results = {}
    for line in pathlib.Path(sys.argv[1]).read_text().splitlines():
        result = json.loads(line)
        results[result["id"]] = result
    wrong = compared = 0
    for table in sys.argv[2:]:
        for case, row in read_table(table).items():
            result = results.get(case)
            if result and result["outcome"] == "unsupported":
                continue
            compared += 1
            why = disagreement(row, result) if result else "no result"
            if why:
                wrong += 1
                print(f"{case}: {why}")
    times = collections.defaultdict(list)
    for result in results.values():
        times[result["axes"]["backend"]].append(result["milliseconds"] / 1e3)
    for backend, seconds in times.items():
        print(f"{backend}: {len(seconds)} cases, {sum(seconds):.0f} s, {sum(seconds) / len(seconds):.2f} s a case")
    mechanisms = collections.Counter((r["outcome"], (r["signature"] or {}).get("mechanism")) for r in results.values())
    for (outcome, mechanism), count in sorted(mechanisms.items(), key=str):
        print(f"{count} {outcome} {mechanism or ''}")
    print(f"{compared} cells compared, {wrong} disagree")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
