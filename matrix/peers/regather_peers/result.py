"""The line of cases.jsonl, as src/case/result.cpp writes and reads it, and how ranks become one result."""

import json
import math

SCHEMA = 1
PHASE_ORDER = {name: number for number, name in
               enumerate(("build", "forward", "backward", "gradients", "step", "invariant"))}
SUMMED = ("compared", "missing", "unexpected", "nonfinite")


def departure(outcome, phase, step, rank, kind="", text="", mechanism=None):
    """The text is upstream's own, so that `upstream` repeats it: an error's, not what we say of a gradient."""
    return {"outcome": outcome,
            "signature": {"mechanism": mechanism, "phase": phase, "step": step, "rank": rank, "type": kind,
                          "text": text, "upstream": text if outcome == "error" and text else None, "where": None}}


def settle(result, departures):
    """The earliest departure by step, then phase, then rank is the outcome; without one, pass when compared."""
    def order(d):
        s = d["signature"]
        return s["step"], PHASE_ORDER[s["phase"]], s["rank"]

    departures = sorted(departures, key=order)
    if departures:
        result.update(outcome=departures[0]["outcome"], signature=departures[0]["signature"], also=departures[1:])
    else:
        compared = result["gradients"] is not None and result["gradients"]["compared"] > 0
        result.update(outcome="pass" if compared else "unchecked", signature=None, also=[])
    return result


def merge(ranks):
    """One result from the ranks' {"departures", "gradients", "loss", "counters", "peak_bytes"}, in rank order. None for
    a rank that left nothing to say."""
    result = {"gradients": None, "loss": None, "counters": {}, "peak_bytes": None}
    departures = []
    for rank in ranks:
        if rank is None:
            continue
        departures += rank["departures"]
        result["gradients"] = _worse_gradients(result["gradients"], rank["gradients"])
        result["loss"] = _farther_loss(result["loss"], rank["loss"])
        for name, value in rank["counters"].items():
            result["counters"][name] = max(value, result["counters"].get(name, value))
        if rank.get("peak_bytes") is not None:
            result["peak_bytes"] = max(rank["peak_bytes"], result["peak_bytes"] or 0)
    settle(result, departures)
    # A rank that stopped early without a word leaves the others' comparison unproved.
    compared = {rank["gradients"]["compared"] if rank and rank["gradients"] else 0 for rank in ranks}
    if result["outcome"] == "pass" and len(compared) > 1:
        result["outcome"] = "unchecked"
    return result


def _worse_gradients(one, other):
    if one is None or other is None:
        return one or other
    worse = dict(other if other["relative_l2"] > one["relative_l2"] else one)
    worse.update({name: one[name] + other[name] for name in SUMMED})
    return worse


def _farther_loss(one, other):
    if one is None or other is None:
        return one or other

    def far(loss):
        distance = abs(loss["got"] - loss["want"])
        return math.inf if math.isnan(distance) else distance

    return other if far(other) > far(one) else one


def line(case, request, stack, result):
    """One line without its end; numbers that are not finite become null."""
    whole = {"schema": SCHEMA, "id": case.id, "axes": case.axes, "fixes": list(case.fixes),
             "device": request["device"], "stack": stack, "attempt": request["attempt"],
             "outcome": result["outcome"], "signature": result.get("signature"), "also": result.get("also", []),
             "gradients": result.get("gradients"), "loss": result.get("loss"),
             "counters": result.get("counters", {}), "milliseconds": result.get("milliseconds", 0),
             "peak_bytes": result.get("peak_bytes"), "reason": result.get("reason")}
    if result.get("built_in"):
        whole["built_in"] = list(result["built_in"])  # fixes that the release has, whatever the id says
    return json.dumps(_finite(whole), ensure_ascii=False, separators=(",", ":"))


def _finite(value):
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
