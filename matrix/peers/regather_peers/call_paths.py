"""repro/call_paths.json: which call and which fixes of the matrix a released trainer amounts to.

    python -m regather_peers.call_paths --versions 1.6.0,1.16.0 [--record FILE]
        Runs the rows' trainers of those releases (a release that is not installed is put into a folder of its own over
        this environment). --record keeps what was seen; exit 1 where a row disagrees with it.
    python -m regather_peers.call_paths --compose FILE... > repro/call_paths.json
        Makes the rows from what was seen; those that are established by reading stay as they are.
    python -m regather_peers.call_paths --runtime build/cpu/bin/regather
        Runs each row's case on the C++ runtime; exit 1 where the runtime's outcome is another than the trainer's.

A row's range ends where a neighbouring release was run and differs; where no neighbour was run it ends at the last one
that was, and what lies between is unknown. Inside a range the releases between two that were run and agree were not.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from regather_peers import overlay, setup, trainers
from regather_peers.case import UsageError, parse_id
from regather_peers.environment import versions as installed_versions
from regather_peers.support import version_tuple

FILE = pathlib.Path(__file__).resolve().parents[3] / "repro" / "call_paths.json"
RELEASES = ("1.6.0", "1.7.0", "1.7.1", "1.8.0", "1.9.0", "1.9.1", "1.9.2", "1.10.0", "1.11.0", "1.12.0", "1.13.0",
            "1.14.0", "1.14.1", "1.14.2", "1.15.0", "1.16.0")
KEY = ("trainer", "fused", "backend")
SEEN = ("call", "fixes", "kernel", "outcome", "phase", "type", "text")
MEMBERS = ("package", "versions", *KEY, *SEEN, "case", "established", "checked", "note")
CALLS, KERNELS = (None, "direct", "engine"), (None, "fused", "eager", "recomputed")
OUTCOMES = ("pass", "wrong_gradient", "nonfinite", "error", "hang", None)  # None: unknown
FIXES = {"gather": {"zero3"}, "redirect": set(trainers.BACKENDS), "kl_backbone": set(trainers.BACKENDS)}


def bounds(text):
    """(first, last or None, its last one included) of '>=1.6.0,<1.9.0', '>=1.6.0,<=1.8.0'."""
    match = re.fullmatch(r">=([\d.]+),(<=?)([\d.]+)", text)
    if not match:
        raise ValueError(f"'{text}' is no range of versions")
    return version_tuple(match[1]), version_tuple(match[3]), match[2] == "<="


def covers(text, version):
    first, last, included = bounds(text)
    at = version_tuple(version)
    return first <= at and (at <= last if included else at < last)


def case_of(row):
    """The matrix's id, or None where the trainer failed before it had a call. A weight that is taken again in backward
    is the matrix's chunked kernel for sft; elsewhere the matrix has none, and its fused one comes nearest."""
    if row["call"] is None:
        return None
    kernel = {"eager": "/kernel=eager", "recomputed": "/kernel=chunked" if row["trainer"] == "sft" else ""}
    call = "/call=engine" if row["call"] == "engine" else ""
    return (f"{row['backend']}/{row['trainer']}{kernel.get(row['kernel'], '')}{call}"
            f"/fix={'+'.join(row['fixes']) or 'none'}")


def problems(document):
    """What is wrong with the file, a line each."""
    rows = document.get("rows", [])
    for number, row in enumerate(rows):
        where = f"row {number} ({'/'.join(str(row.get(k)) for k in KEY)} {row.get('versions')})"
        yield from (f"{where}: {what}" for what in _problems_of(row))
    by_key = collections.defaultdict(list)
    for row in rows:
        by_key[tuple(row.get(k) for k in ("package", *KEY))].append(row)
    for key, same in by_key.items():
        for version in RELEASES:
            if sum(_covers_safely(row, version) for row in same) > 1:
                yield f"{'/'.join(key)}: more than one row for {version}"


def _covers_safely(row, version):
    try:
        return covers(row["versions"], version)
    except (KeyError, ValueError, TypeError):
        return False


def _problems_of(row):
    if tuple(row) != MEMBERS:
        yield f"its members are {', '.join(row)}"
        return
    for member, known in (("trainer", trainers.TRAINERS), ("fused", trainers.FUSED), ("backend", trainers.BACKENDS),
                          ("call", CALLS), ("kernel", KERNELS), ("outcome", OUTCOMES), ("package", ("trl",)),
                          ("established", ("ran", "read"))):
        if row[member] not in known:
            yield f"{member} is {row[member]!r}"
            return
    if row["call"] is None and (row["fixes"] or row["kernel"]):
        yield "fixes or a kernel without a call"
    if row["fixes"] != sorted(set(row["fixes"])):
        yield "fixes are not in order"
    for fix in row["fixes"]:
        if row["backend"] not in FIXES.get(fix, ()) or (fix == "kl_backbone" and row["trainer"] != "kto"):
            yield f"{fix} is no fix of {row['trainer']} on {row['backend']}"
    if row["call"] == "engine" and "redirect" in row["fixes"]:
        yield "a call inside the engine's forward excludes redirect"
    if row["case"] != case_of(row):
        yield f"its case is {case_of(row)}, not {row['case']}"
    if row["case"]:
        try:
            parse_id(row["case"])
        except UsageError as error:
            yield str(error)
    if (row["outcome"] == "error") != (row["type"] is not None and row["type"] != "gradient"):
        yield "an error has the type of an exception, and nothing else has"
    try:
        outside = [version for version in row["checked"] if not covers(row["versions"], version)]
    except ValueError as error:
        yield str(error)
        return
    if outside:
        yield f"checked {', '.join(outside)}, which its range leaves out"
    if row["established"] == "ran" and not (row["checked"] and (row["outcome"] or row["call"])):
        yield "ran, and names no release, or neither outcome nor call"
    if set(row["checked"]) - set(RELEASES):
        yield "checked a release that is not known here"
    if row["established"] == "read" and not row["note"]:
        yield "read, and does not say where"


def masked(text):
    """Without numbers, which differ between runs and batches."""
    return None if text is None else re.sub(r"\d+(\.\d+)?(e-?\d+)?", "N", text.splitlines()[0])


def says_something(line):
    """A trainer that a CPU cannot run to its end may have shown its call before."""
    return line["outcome"] != "unsupported" or line.get("call") is not None


def seen_of(line):
    found = {member: line.get(member) for member in SEEN}
    if line["outcome"] == "unsupported":
        found |= {"outcome": None, "kernel": None}  # which kernel shows in backward
    found["fixes"] = found["fixes"] or []
    if line["outcome"] in ("wrong_gradient", "nonfinite"):
        found["text"] = "each rank holds the gradient of its own loss" if "own loss" in line["text"] else None
    return found


def comparable(found):
    return tuple(str(masked(found[m]) if m == "text" else found[m]) for m in SEEN)


def compose(lines):
    """Rows from observations."""
    by_key = collections.defaultdict(lambda: collections.defaultdict(list))
    for line in lines:
        if says_something(line):
            by_key[tuple(line[k] for k in KEY)][line["trl"]].append(seen_of(line))
    return in_order([row for key, observations in by_key.items() for row in _rows_of(key, observations)])


def in_order(rows):
    orders = list(zip(KEY, (trainers.TRAINERS, trainers.FUSED, trainers.BACKENDS)))
    return sorted(rows, key=lambda row: (*(order.index(row[m]) for m, order in orders), bounds(row["versions"])[0]))


def with_notes(made, before):
    """What people wrote: rows that are read, and the notes of rows that say the same as before."""
    notes = {_same(row): row["note"] for row in before if row["note"] and row["established"] == "ran"}
    for row in made:
        row["note"] = row["note"] or notes.get(_same(row), "")
    return made + [row for row in before if row["established"] == "read"]


def _same(row):
    return (*(row[member] for member in KEY), *comparable(row))


def _rows_of(key, observations):
    rows, groups = [], []
    for version in sorted(observations, key=version_tuple):
        counts = collections.Counter(comparable(found) for found in observations[version])
        often = counts.most_common(1)[0][0]
        found = next(f for f in observations[version] if comparable(f) == often)
        others = sorted({f["outcome"] for f in observations[version] if comparable(f) != often})
        if groups and comparable(groups[-1]["found"]) == often and not others and not groups[-1]["others"]:
            groups[-1]["checked"].append(version)
        else:
            groups.append({"found": found, "checked": [version], "others": others,
                           "runs": len(observations[version])})
    for group, after in zip(groups, groups[1:] + [None]):
        first, last = group["checked"][0], group["checked"][-1]
        adjacent = after and RELEASES.index(after["checked"][0]) == RELEASES.index(last) + 1
        row = {"package": "trl", "versions": f">={first},<{after['checked'][0]}" if adjacent else f">={first},<={last}",
               **dict(zip(KEY, key)), **group["found"], "case": None, "established": "ran",
               "checked": group["checked"], "note": ""}
        row["case"] = case_of(row)
        if group["others"]:
            row["note"] = f"not the same in each of {group['runs']} runs: also {', '.join(group['others'])}"
        rows.append({member: row[member] for member in MEMBERS})
    return rows


def observe(version, backends, fused):
    """The lines of one release: this environment's own, or another in front of it."""
    own = installed_versions()["trl"] == version
    front = [] if own else [str(overlay.make(pathlib.Path(sys.prefix), "trl", version))]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([*front, str(setup.PEERS)]))
    ran = subprocess.run([sys.executable, "-W", "ignore", "-m", "regather_peers.trainers", "--json", "--trainer", "all",
                          "--fused", fused, "--backend", backends], env=environment, stdout=subprocess.PIPE, text=True,
                         check=False)
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    if not lines or any(line.get("trl") not in (version, None) for line in lines):
        raise RuntimeError(f"trl {version} was not run: exit {ran.returncode}")
    return lines


def disagreements(rows, lines):
    for line in lines:
        if not says_something(line):
            continue
        where = f"trl {line['trl']} {line['trainer']} {line['fused']} {line['backend']}"
        row = next((r for r in rows if all(r[k] == line[k] for k in KEY) and covers(r["versions"], line["trl"])), None)
        if row is None:
            yield f"{where}: no row"
            continue
        found = seen_of(line)
        for member, mine, theirs in zip(SEEN, comparable(row), comparable(found)):
            if mine != theirs:
                yield f"{where}: {member} is {found[member]!r}, the row says {row[member]!r}"


def check_runtime(rows, program):
    """Lines where the runtime's outcome of a row's case is another than the trainer's."""
    ids = sorted({row["case"] for row in rows if row["case"]})
    with tempfile.TemporaryDirectory(prefix="regather-call-paths-") as out:
        subprocess.run([program, "matrix", "run", *(part for i in ids for part in ("--case", i)), "--out", out],
                       check=False, stdout=subprocess.DEVNULL)
        lines = [json.loads(line) for line in (pathlib.Path(out) / "cases.jsonl").read_text().splitlines()]
    results = {line["id"]: line for line in lines}
    for row in rows:
        if not row["case"] or row["outcome"] is None:
            continue
        result = results.get(row["case"])
        theirs = result["outcome"] if result else "no result"
        phase = result["signature"]["phase"] if result and result["signature"] else None
        if theirs != row["outcome"] or (theirs == "error" and phase != row["phase"]):
            text = (result["signature"]["text"] if result and result["signature"] else "")[:160]
            yield (f"trl {row['versions']} {row['trainer']} {row['fused']} {row['backend']}: {row['outcome']} "
                   f"{row['phase'] or ''} {row['text'] or ''} | {row['case']}: {theirs} {phase or ''} {text}")


def document(rows):
    packages = installed_versions()
    return {"schema": 1, "environment": {name: packages[name] for name in (
        "torch", "transformers", "accelerate", "deepspeed", "liger_kernel")}, "rows": rows}


def printed(made):
    """A row a line."""
    head = json.dumps({k: v for k, v in made.items() if k != "rows"}, ensure_ascii=False)[:-1]
    rows = ",\n".join("  " + json.dumps(row, ensure_ascii=False) for row in made["rows"])
    return f'{head}, "rows": [\n{rows}\n]}}\n'


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="regather_peers.call_paths", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--versions", default="")
    parser.add_argument("--check", action="store_true", help="what --versions does unless it records")
    parser.add_argument("--backend", default="all")
    parser.add_argument("--fused", default="all")
    parser.add_argument("--record", metavar="FILE")
    parser.add_argument("--compose", nargs="+", metavar="FILE")
    parser.add_argument("--runtime", metavar="PROGRAM")
    options = parser.parse_args(arguments)
    rows = json.loads(FILE.read_text())["rows"] if FILE.exists() else []
    if options.compose:
        lines = [json.loads(line) for file in options.compose for line in pathlib.Path(file).read_text().splitlines()]
        sys.stdout.write(printed(document(in_order(with_notes(compose(lines), rows)))))
        return 0
    found = list(check_runtime(rows, options.runtime)) if options.runtime else []
    for version in filter(None, options.versions.split(",")):
        lines = observe(version, options.backend, options.fused)
        if options.record:
            with open(options.record, "a", encoding="utf-8") as file:
                file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        found += disagreements(rows, lines)
    print("\n".join(found) if found else f"{len(rows)} rows, no disagreement")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
