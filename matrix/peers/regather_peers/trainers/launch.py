"""Runs trainers in forked processes: the packages are imported once, for 15 to 30 s, and every run starts fresh."""

import json
import os
import pathlib
import re
import signal
import sys
import tempfile
import time

from regather_peers.trainers import RANKS, refused, shims

DEADLINE = 150.0  # seconds for a run
NO_TRITON = re.compile(r"^\d+ active drivers")  # what Triton says where there is no GPU
GRACE = 4.0       # seconds that a rank gets after another has failed


def import_packages(backends):
    """In the parent, which computes nothing and starts no thread: its children are sound."""
    shims.before_imports()
    from transformers.utils import logging
    logging.disable_progress_bar()
    import datasets  # noqa: F401
    from transformers.models.qwen2 import modeling_qwen2  # noqa: F401
    import trl
    from trl.models import utils  # noqa: F401
    for name in ("SFTTrainer", "DPOTrainer", "KTOTrainer", "GRPOTrainer"):
        getattr(trl, name)
    if any(backend.startswith("zero") for backend in backends):
        import deepspeed  # noqa: F401
    from regather_peers.trainers import judge, rank  # noqa: F401


def write_models(folder):
    from regather_peers.trainers import setting
    _fork_and_wait([lambda: setting.write(folder)], DEADLINE)


def run(spec, versions, models, keep=None):
    """One line: what happened, and what the trainer amounts to."""
    line = {"trl": versions["trl"], "deepspeed": versions["deepspeed"], "torch": versions["torch"], **spec}
    reason = refused(spec["trainer"], spec["fused"], versions["trl"])
    if reason:
        return line | {"outcome": "unsupported", "reason": reason, "how": "read"}
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="regather-trainer-") as folder:
        from regather_peers.trainers import rank
        _fork_and_wait([lambda number=number: rank.live(spec, number, models, folder) for number in range(RANKS)],
                       DEADLINE)
        seen = [_answer(folder, number) for number in range(RANKS)]
        failures = [s["failure"] for s in seen if s and s["failure"]]
        judged = None
        if all(seen):
            # Steps that a failure came after count as well: the earliest departure is the outcome.
            _fork_and_wait([lambda: _judge(spec, models, folder)], DEADLINE)
            judged = json.loads((pathlib.Path(folder) / "judged.json").read_text())
        if keep:
            _keep(folder, keep, spec)
    return line | _outcome(seen, failures, judged) | {"how": "ran", "seconds": round(time.monotonic() - begin, 1)}


def _outcome(seen, failures, judged):
    first = next((s for s in seen if s), {})
    made = {"phase": None, "type": None, "text": None,
            **{key: first.get(key) for key in ("call", "fixes", "kernel", "read_by", "whole")}}
    if judged and judged["outcome"] in ("wrong_gradient", "nonfinite"):
        text = f"{judged['worst']}: relative L2 error {judged['relative_l2']:.3g}"
        if judged["local_relative_l2"] < judged["relative_l2"] / 1000:
            text += "; each rank holds the gradient of its own loss"
        made |= {"phase": "gradients", "type": "gradient", "text": text}
        return {**made, "outcome": judged.pop("outcome"), "gradients": judged,
                "also": [{k: f[k] for k in ("phase", "step", "type", "text")} for f in failures]}
    if failures:
        failure = next((f for f in failures if not f["peer_left"]), failures[0])
        if NO_TRITON.match(failure["text"]):
            return {"outcome": "unsupported", **made, "reason": "its loss is a Triton kernel: not on a CPU"}
        return {"outcome": "hang" if failure["peer_left"] else "error", **made,
                **{key: failure[key] for key in ("phase", "step", "type", "text")}}
    if judged is None:
        return {"outcome": "hang", **made, "text": "a rank gave no answer"}
    return {**made, "outcome": judged.pop("outcome"), "gradients": judged}


def _judge(spec, models, folder):
    from regather_peers.trainers import judge
    (pathlib.Path(folder) / "judged.json").write_text(json.dumps(judge.main(spec, models, folder)))


def _answer(folder, number):
    try:
        return json.loads((pathlib.Path(folder) / f"rank{number}.json").read_text())
    except FileNotFoundError:
        return None


def _keep(folder, keep, spec):
    """Logs and events, for a look."""
    into = pathlib.Path(keep) / "-".join(spec.values())
    into.mkdir(parents=True, exist_ok=True)
    for file in pathlib.Path(folder).glob("rank*.*"):
        if file.suffix != ".pt":
            (into / file.name).write_bytes(file.read_bytes())


def _fork_and_wait(lives, deadline):
    """Each life in a process of its own; whoever outlives the deadline, or another's failure for long, is ended."""
    sys.stdout.flush()
    sys.stderr.flush()
    pids = set()
    for life in lives:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                life()
                status = 0
            except BaseException as error:  # noqa: BLE001: the process ends here
                sys.stderr.write(f"{type(error).__name__}: {error}\n")
            finally:
                sys.stderr.flush()
                os._exit(status)
        pids.add(pid)
    limit = time.monotonic() + deadline
    while pids:
        pid, status = os.waitpid(-1, os.WNOHANG) if len(pids) else (0, 0)
        if pid in pids:
            pids.discard(pid)
            limit = min(limit, time.monotonic() + GRACE) if pids else limit
            continue
        if time.monotonic() >= limit:
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            return
        time.sleep(0.02)


def has_needed(spec, versions):
    """The reason why the environment cannot run it, or None."""
    needed = ["torch", "transformers", "accelerate", "trl"]
    needed += ["deepspeed"] if spec["backend"].startswith("zero") else []
    needed += ["liger_kernel"] if spec["fused"] == "liger" else []
    missing = [name for name in needed if versions.get(name) is None]
    return f"package {missing[0]} is not installed in this environment" if missing else None


