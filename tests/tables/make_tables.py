#!/usr/bin/env python3
"""Writes the tables that results are compared with, from what was measured on the real packages.

    make_tables.py FACTS_DIR

Reads card-real.jsonl and truth-table.json there, never a result of ours, and writes beside this script:

    card_real.json   680 cells: every backend, loss, checkpoint and frozen set, in modes a and c
    modes.json       modes p, a, b, c, d, k of the truth table, no checkpoint, nothing frozen
    each_rules.json  the recommended fixes less one, where that was measured for some cells only: the rule, its source,
                     and the cells that it covers

A row is {id, outcome, phase, step, text, text_of}. null means that the source does not say, and nothing is compared.
text_of tells whose words they are: "libtorch" (ours are the same library's), "check" (a check that upstream and we
both implement: its first line), "python" (upstream's own: compared with what a result says upstream prints).
"""
import json
import pathlib
import sys

OUTCOME = {"PASS": "pass", "WRONG": "wrong_gradient", "FAIL": "error"}
PHASE = {"grads": "gradients", "forward": "forward", "backward": "backward", None: None}
LIBTORCH = ("size mismatch, got input", "The size of tensor a", "element 0 of tensors", "Expected to have finished")
CHECK = ("torch.utils.checkpoint:", "aten.embedding.default got mixed")
CHECKPOINTS = ("none", "reentrant", "nonreentrant")
FROZEN = ("none", "norms", "lora", "head", "embedding")

SIZE_MISMATCH = "size mismatch, got input (%d), mat (%dx32), vec (0)"
EMPTY_PARAMETER = "The size of tensor a (0) must match the size of tensor b (32) at non-singleton dimension 1"


def case_id(backend, loss, fixes, **axes):
    """axes: in the order of the id, defaults left out."""
    default = {"kernel": "fused", "checkpoint": "none", "frozen": "none", "head": "untied", "call": "direct",
               "accumulate": "1", "input_grad": "yes"}
    parts = [f"{axis}={axes[axis]}" for axis in default if axes.get(axis, default[axis]) != default[axis]]
    return "/".join([backend, loss, *parts, "fix=" + ("+".join(sorted(fixes)) or "none")])


def row(case, outcome, phase=None, step=None, text=None):
    text = text or None
    text_of = None
    if text:
        text = text.splitlines()[0]
        text_of = "libtorch" if text.startswith(LIBTORCH) else "check" if text.startswith(CHECK) else "python"
    if outcome == "wrong_gradient":
        phase = "gradients"
    return {"id": case, "outcome": outcome, "phase": phase, "step": step, "text": text, "text_of": text_of}


def fixes_of(mode, backend, loss):
    """The fixes of a mode of the truth table; off ZeRO-3 gathering has nothing to do in mode c."""
    kl_backbone = {"kl_backbone"} if loss == "kto" and backend == "zero3" else set()
    return {"a": set(), "p": set(), "b": {"gather"}, "d": {"redirect"} | kl_backbone, "k": {"gather", "redirect"},
            "c": {"gather", "redirect"} | kl_backbone if backend == "zero3" else {"redirect"}}[mode]


def card_real(facts):
    for line in (facts / "card-real.jsonl").read_text().splitlines():
        cell = json.loads(line)
        case = case_id(cell["backend"], cell["loss"], fixes_of(cell["mode"], cell["backend"], cell["loss"]),
                       **{axis: cell[axis] for axis in ("checkpoint", "frozen", "input_grad")})
        made = row(case, OUTCOME[cell["outcome"]], PHASE[cell["phase"]], cell["step"], cell["text"])
        later = [{"phase": PHASE[other["phase"]], "step": other["step"], "text": other["text"].split(". ")[0]}
                 for other in cell.get("also", [])]
        yield made | ({"also": later} if later else {})


def modes(facts):
    rows = {}
    for cell in json.loads((facts / "truth-table.json").read_text()):
        backend, mode = cell["backend"], cell["mode"]
        loss = {"chunk": "sft", "flce": "sft"}.get(cell["loss"], cell["loss"])
        kernel = "eager" if mode == "p" else "chunked" if cell["loss"] == "chunk" else "fused"
        case = case_id(backend, loss, fixes_of(mode, backend, loss), kernel=kernel,
                       head="tied" if cell["tied"] else "untied", call="engine" if mode == "p" else "direct")
        made = row(case, OUTCOME[cell["outcome"]], cell.get("stage"), None, cell.get("msg"))
        # Both kernels of sft in mode p, and FSDP2's modes that differ by gathering alone, are one case here.
        if rows.setdefault(case, made) != made:
            sys.exit(f"two cells disagree on {case}: {rows[case]} and {made}")
    return list(rows.values())


def each_rules():
    """(source, cells): the rules that truth-table.md and mechanisms.md state beyond the cells that were run."""
    zero3 = {"sft": {"gather", "recompute_hold", "redirect"}}
    zero3 |= {"grpo": zero3["sft"], "dpo": zero3["sft"], "kto": zero3["sft"] | {"kl_backbone"}}
    card = [(checkpoint, frozen) for checkpoint in CHECKPOINTS for frozen in FROZEN]

    def cells(losses, without, judge):
        return [row(case_id("zero3", loss, zero3[loss] - {without}, checkpoint=checkpoint, frozen=frozen),
                    *judge(loss, frozen)) for loss in losses for checkpoint, frozen in card]

    def head_gradient(_, frozen):
        return ("pass",) if frozen in ("head", "lora") else ("error", "backward", None, EMPTY_PARAMETER)

    def reference_head(loss, _):
        return "error", "forward", None, SIZE_MISMATCH % ((22, 22) if loss == "dpo" else (11, 11))

    yield ("truth-table.md, mode b: gather without redirect on ZeRO-3 passes where the head is frozen (head, lora), "
           "error in backward otherwise", cells(zero3, "redirect", head_gradient))
    yield ("truth-table.md, mode d: redirect without gather passes for SFT and GRPO: reading the head inside the engine's "
           "forward registers it as external and gathers it", cells(("sft", "grpo"), "gather", lambda *_: ("pass",)))
    yield ("truth-table.md, mode d: DPO and KTO still fail in forward, since the reference model's head belongs to "
           "another engine", cells(("dpo", "kto"), "gather", reference_head))
    yield ("truth-table.md, mode k: KTO's extra head forward: error for an untied trainable head; passes for frozen head "
           "and lora", cells(("kto",), "kl_backbone", head_gradient))
    yield ("truth-table.md, 'More that was seen': ZeRO-1/2, loss computed outside the engine's forward, accumulation N: "
           "gradients exactly N times too large, silent",
           [row(case_id(backend, loss, (), accumulate="2"), "wrong_gradient")
            for backend in ("zero1", "zero2") for loss in zero3])


def write(name, content):
    """One row a line, so that a change shows as the rows that it changes."""
    def rows(value, indent):
        return "[\n" + ",\n".join(" " * indent + "  " + json.dumps(row) for row in value) + "\n" + " " * indent + "]"
    if "rules" in content:
        rules = [f'    {{"source": {json.dumps(rule["source"])},\n     "rows": {rows(rule["rows"], 5)}}}'
                 for rule in content["rules"]]
        body = '"rules": [\n' + ",\n".join(rules) + "\n  ]"
    else:
        body = f'"rows": {rows(content["rows"], 2)}'
    text = f'{{\n  "about": {json.dumps(content["about"])},\n  {body}\n}}\n'
    json.loads(text)
    (pathlib.Path(__file__).parent / name).write_text(text)


def main():
    facts = pathlib.Path(sys.argv[1])
    packages = "torch 2.11.0, deepspeed 0.19.2, liger-kernel 0.8.5, trl 1.6.0, CPU, 2 ranks, gloo"
    card = list(card_real(facts))
    assert len({r["id"] for r in card}) == len(card) == 680
    write("card_real.json", {"about": f"card-real.jsonl: every cell as measured on {packages}", "rows": card})
    write("modes.json", {"about": f"truth-table.json: the modes as measured on {packages}", "rows": modes(facts)})
    write("each_rules.json", {"about": "The recommended fixes less one, by rule where not every cell was measured",
                              "rules": [{"source": source, "rows": rows} for source, rows in each_rules()]})


if __name__ == "__main__":
    main()
