"""The tables of what the real packages do, out of one run: `regather peers table`.

    regather peers table [--set NAME | --stack python:ENV] [--out DIR] [--against DIR] [--resume]

Makes the set when it is not there, runs the definition `tables` on it and writes into DIR (default out/tables/NAME)
truth-table.json, card-real.jsonl and, against the tables in --against (default: those committed of the set), changes.md.
`--set newest --against .../supported` shows what newer releases changed.

Exit 0 when nothing changed, 1 when something did, 2 when it cannot be run, 5 when cells have no result.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys

from regather_peers import setup

RECORDINGS = pathlib.Path(__file__).resolve().parents[2] / "recordings"
OUTCOMES = {"pass": "PASS", "wrong_gradient": "WRONG", "error": "FAIL"}
PHASES = {"gradients": "grads"}
BACKENDS = ("ddp", "zero1", "zero2", "zero3", "fsdp2")
LOSSES = ("sft", "grpo", "dpo", "kto")
LONGEST_TEXT = 240


def fixes_of(mode, backend, loss):
    """truth-table.md's modes; off ZeRO-3 gathering has nothing to do, so its mode c is redirect alone."""
    backbone = ["kl_backbone"] if loss == "kto" and backend == "zero3" else []
    if mode in "pa":
        return []
    if mode == "c" and backend not in ("zero3", "fsdp2"):
        return ["redirect"]
    return {"b": ["gather"], "c": ["gather", *backbone, "redirect"] if backend == "zero3" else ["redirect"],
            "d": [*backbone, "redirect"], "k": ["gather", "redirect"]}[mode]


def case_id(backend, loss, fixes, **axes):
    parts = [f"{axis}={value}" for axis, value in axes.items() if value not in ("fused", "none", "direct", "yes")]
    return "/".join([backend, loss, *parts, "fix=" + ("+".join(fixes) or "none")])


def truth_cells():
    """(backend, loss of the table, mode, case id)."""
    for backend in ("ddp", "zero2", "zero3", "fsdp2"):
        for loss in ("chunk", "flce", "dpo", "kto", "grpo"):
            modes = "pac" if backend in ("ddp", "zero2") else "pabcd"
            for mode in modes + ("k" if (backend, loss) == ("zero3", "kto") else ""):
                ours = {"chunk": "sft", "flce": "sft"}.get(loss, loss)
                kernel = "eager" if mode == "p" else "chunked" if loss == "chunk" else "fused"
                call = "engine" if mode == "p" else "direct"
                yield backend, loss, mode, case_id(backend, ours, fixes_of(mode, backend, ours), kernel=kernel, call=call)


def card_cells():
    """(the axes of card-real, case id)."""
    for backend in BACKENDS:
        for loss in LOSSES:
            everything = [(checkpoint, frozen, "yes") for checkpoint in ("none", "reentrant", "nonreentrant")
                          for frozen in ("none", "norms", "lora", "head", "embedding")]
            everything += [("reentrant", frozen, "no") for frozen in ("lora", "embedding")]
            for checkpoint, frozen, input_grad in everything:
                for mode in "ca":
                    axes = {"backend": backend, "loss": loss, "checkpoint": checkpoint, "frozen": frozen, "mode": mode,
                            "input_grad": input_grad}
                    yield axes, case_id(backend, loss, fixes_of(mode, backend, loss), checkpoint=checkpoint, frozen=frozen,
                                        input_grad=input_grad)


def qualified(kind):
    return kind if "." in kind else f"builtins.{kind}"


def error_of(signature):
    return {"type": qualified(signature["type"]), "text": signature["text"][:LONGEST_TEXT]}


def rounded(number):
    return None if number is None else float(f"{number:.3g}")


def truth_row(backend, loss, mode, result):
    row = {"backend": backend, "tied": 0, "loss": loss, "mode": mode,
           "outcome": OUTCOMES.get(result["outcome"], result["outcome"])}
    if row["outcome"] in ("PASS", "WRONG"):
        return row | {"relgrad": rounded(result["gradients"]["relative_l2"]), "rank": 0}
    signature = result["signature"]
    if signature is None:
        return row | {"stage": None, "exc": None, "msg": result["reason"], "rank": 0, "relgrad": None}
    error = error_of(signature)
    return row | {"stage": signature["phase"], "exc": error["type"], "msg": error["text"], "rank": signature["rank"],
                  "relgrad": None}


def card_row(axes, result):
    outcome, signature = OUTCOMES.get(result["outcome"], result["outcome"]), result["signature"]
    row = axes | {"outcome": outcome, "step": None, "phase": None, "type": None, "text": None,
                  "worst_relative_l2": None, "none_or_zero": 0}
    if signature:
        row |= {"step": signature["step"], "phase": PHASES.get(signature["phase"], signature["phase"])}
    if outcome in ("PASS", "WRONG"):
        row["worst_relative_l2"] = rounded(result["gradients"]["relative_l2"])
    if outcome == "WRONG":
        lost = re.search(r"; (\d+) gradient\(s\) missing or zero", signature["text"])
        row["none_or_zero"] = int(lost[1]) if lost else 0
        later = [{"step": d["signature"]["step"], "phase": d["signature"]["phase"], **error_of(d["signature"])}
                 for d in result["also"] if d["outcome"] == "error" and d["signature"]["rank"] == signature["rank"]]
        if later:
            row["also"] = later
    elif outcome != "PASS" and signature:
        row |= error_of(signature)
    return row


def write(folder, results):
    """Both tables; the ids that have no result."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = [case for *_, case in (*truth_cells(), *card_cells()) if case not in results]
    truth = [truth_row(*cell, results[case]) for *cell, case in truth_cells() if case in results]
    card = [card_row(axes, results[case]) for axes, case in card_cells() if case in results]
    (folder / "truth-table.json").write_text("[\n" + ",\n".join(map(json.dumps, truth)) + "\n]\n")
    (folder / "card-real.jsonl").write_text("".join(json.dumps(row) + "\n" for row in card))
    return missing


# What identifies a row, and what of it is compared: numbers differ with the weights, the words and places do not.
TABLES = {"truth-table.json": (("backend", "loss", "mode"), ("outcome", "stage", "exc", "msg")),
          "card-real.jsonl": (("backend", "loss", "checkpoint", "frozen", "mode", "input_grad"),
                              ("outcome", "step", "phase", "type", "text", "none_or_zero", "also"))}


def read(file):
    text = file.read_text()
    return json.loads(text) if file.suffix == ".json" else [json.loads(line) for line in text.splitlines()]


def comparable(value):
    """A chunk's rows differ between implementations; of a long text the first line says what it is."""
    if isinstance(value, list):
        return [{key: comparable(item) for key, item in entry.items()} for entry in value]
    if isinstance(value, str):
        return re.sub(r"got input \(\d+\), mat \(\d+x", "got input (N), mat (Nx", value.splitlines()[0] if value else value)
    return value


def changes(folder, against):
    """Markdown lines, a change each."""
    lines = []
    for name, (key, compared) in TABLES.items():
        before = {tuple(row[part] for part in key): row for row in read(against / name)}
        after = {tuple(row[part] for part in key): row for row in read(folder / name)}
        for at in sorted(before.keys() | after.keys()):
            old, new = before.get(at), after.get(at)
            if old is None or new is None:
                lines.append(f"| {name} | {' '.join(at)} | {'absent' if old is None else 'there'} | "
                             f"{'absent' if new is None else 'there'} |")
                continue
            parts = [part for part in compared if comparable(old.get(part)) != comparable(new.get(part))]
            if "outcome" in parts:
                parts = compared  # another outcome: all that is said of each
            if parts:
                lines.append(f"| {name} | {' '.join(at)} | {show(old, parts)} | {show(new, parts)} |")
    return lines


def show(row, parts):
    said = [comparable(row[part]) for part in parts if row.get(part) not in (None, [], "")]
    text = ", ".join(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for value in said)
    return text.replace("|", "\\|")[:200]


def parse(arguments):
    parser = argparse.ArgumentParser(prog="regather peers table", description="The tables of what the real packages do")
    parser.add_argument("--set", default="supported", help="of peers setup, made when it is not there")
    parser.add_argument("--stack", help="python:ENV, instead of a set")
    parser.add_argument("--out", type=pathlib.Path, help="default: out/tables/NAME")
    parser.add_argument("--against", type=pathlib.Path, help="default: the committed tables of the set")
    parser.add_argument("--resume", action="store_true", help="go on from an interrupted run in --out")
    return parser.parse_args(arguments)


def main():
    options = parse(sys.argv[1:])
    name = options.set if options.stack is None else "local"
    out = options.out or pathlib.Path("out/tables") / name
    against = options.against or RECORDINGS / options.set
    if not all((against / table).is_file() for table in TABLES):
        sys.stderr.write(f"regather: peers table: no tables in '{against}': expected {' and '.join(TABLES)}\n")
        return 2
    try:
        stack = options.stack or f"python:{setup.setup(['--set', options.set])}"
    except (setup.SetupError, OSError) as error:
        sys.stderr.write(f"regather: peers setup: {error}\n")
        return 2
    program = os.environ.get("REGATHER_PROGRAM", "regather")
    ran = subprocess.run([program, "matrix", "run", "tables", "--stack", stack, "--out", str(out / "run"),
                          *(["--resume"] if options.resume else [])], check=False).returncode
    if ran not in (0, 1):
        return ran
    results = {case["id"]: case for case in json.loads((out / "run" / "results.json").read_text())["cases"]}
    missing = write(out, results)
    lines = changes(out, against)
    heading = ["| table | cell | was | is |", "| --- | --- | --- | --- |"] if lines else ["Nothing changed."]
    (out / "changes.md").write_text("\n".join(heading + lines) + "\n")
    print(f"{out}: {len(results)} cases, {len(lines)} changes against {against}; changes.md")
    for case in missing:
        sys.stderr.write(f"regather: no result for {case}\n")
    return 5 if missing else int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
