"""Runs the cases that it reads, one request a line on standard input, one result a line on standard output: the
protocol of matrix/runner/protocol.h.

    python -m regather_peers.worker [--blackbox FILE]

Exit 0 at the end of input; 2 when what a request names cannot be used, standard error says why; 3 for a defect of the
worker. Environment: REGATHER_WORKER, the C++ worker that gives cases their data; REGATHER_STACK, the name of this stack
in result lines; REGATHER_PEERS_TRACEBACK, set: Python's tracebacks of failing cases on standard error.

A group of ranks runs many cases. A case that fails in a group that had run others is run again alone, and that result
is reported. A group in which a case has failed is replaced. That is for the cost alone where all ranks failed in the
same place: of 21 kinds of failure none changed what followed it in its group, but the next failure would run twice, and
a new group costs 0.1 to 0.3 s.
"""

import argparse
import importlib
import json
import os
import sys
import time

from regather_peers import environment, support
from regather_peers import result as results
from regather_peers.blackbox import BlackBox
from regather_peers.case import UsageError, parse_id
from regather_peers.runtime import Runtime

DEFAULTS = {"device": "cpu", "launcher": "threads", "attempt": 1, "model": None, "seed": 1, "fault": "", "timeout": 60.0,
            "record": False}
SHARE_OF_TIMEOUT = 0.5  # a rank that waits gives up before the runner's own limit kills the worker
SETTINGS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}


class Worker:
    def __init__(self, box):
        self.box = box
        self.versions = environment.versions()
        self.stack = environment.stack()
        self.runtime = Runtime()
        self.group = None
        self.device = None
        self.preloaded = set()

    def answer(self, line):
        request = parse_request(line)
        case = parse_id(request["id"])
        if request["fault"]:
            raise UsageError(f"fault '{request['fault']}': faults are seeded in the C++ runtime, not in a Python stack")
        reason = support.unsupported(case, self.versions, request["device"])
        if reason:
            return results.line(case, request, self.stack, {"outcome": "unsupported", "reason": reason})
        self.settle_device(request["device"])
        file = self.runtime.file(case, request, request["record"])
        self.preload(case)
        result = self.run(case, request, file)
        result["built_in"] = support.built_in(case, self.versions)
        return results.line(case, request, self.stack, result)

    def settle_device(self, device):
        """The packages look at their surroundings once, when they are imported."""
        if self.device is None:
            os.environ.update(SETTINGS)
            if device == "cpu":
                os.environ.update(CUDA_VISIBLE_DEVICES="", DS_ACCELERATOR="cpu")
            else:
                os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # the forked ranks start CUDA, not the worker
            self.device = device
        elif self.device != device:
            raise UsageError(f"device {device}: this worker has begun on {self.device}")

    def preload(self, case):
        """Imports what the case's ranks will use, so that they are forked with it."""
        modules = ["regather_peers.rank"]
        if case.kernel == "fused" and case.loss != "sft":
            modules.append("liger_kernel.chunked_loss")
        if case.zero_stage:
            modules.append("regather_peers.backends.zero")
            modules.append("deepspeed")
        if case.backend == "fsdp2":
            modules.append("regather_peers.backends.fsdp2")
        if case.backend in ("ddp", "single"):
            modules.append("regather_peers.backends.replicated")
        if case.frozen == "lora":
            modules.append("peft")
        if "redirect" in case.fixes:
            modules.append("trl.models.utils")
        if case.kernel == "chunked":
            modules.append("trl.trainer.sft_trainer")
        if case.zero_stage == 3 and "gather" in case.fixes:
            modules.append("regather_peers.trl_gather")
        for module in modules:
            if module not in self.preloaded:
                begin = time.monotonic()
                importlib.import_module(module)
                self.preloaded.add(module)
                log(f"imported {module} in {time.monotonic() - begin:.1f} s")

    def run(self, case, request, file):
        result, alone, began = self.attempt(case, request, file)
        if result["outcome"] != "pass" and not alone:
            first = result["outcome"]
            result, _, began = self.attempt(case, request, file)
            result["counters"]["reran_alone"] = 1
            if result["outcome"] != first:
                log(f"{case.id}: {first} in a group that had run other cases, {result['outcome']} alone")
                result["counters"]["changed_alone"] = 1
        result["milliseconds"] = (time.monotonic() - began) * 1e3
        return result

    def attempt(self, case, request, file):
        """(result, whether the group had run nothing else, when it began)."""
        from regather_peers.group import Group
        began = time.monotonic()
        deadline = request["timeout"] * SHARE_OF_TIMEOUT
        if self.group and (self.group.world != case.ranks or self.group.deadline != deadline):
            self.replace_group()
        if self.group is None:
            self.group = Group(case.ranks, request["device"], deadline, self.box)
        alone = self.group.cases == 0
        self.box.begin(case.id)
        ends = self.group.run({"id": case.id, "file": file, "record": request["record"]})
        result = results.merge([self.of_rank(number, end, ends) for number, end in enumerate(ends)])
        result["counters"]["ranks_milliseconds"] = max(
            (end.answer["milliseconds"] for end in ends if end.answer), default=0)
        if result["outcome"] != "pass":
            self.replace_group()
        return result, alone, began

    def of_rank(self, number, end, ends):
        """What a rank reports, or what its end says."""
        if end.answer:
            return end.answer["result"]
        step, phase = self.box.where(number)
        failed = any(other.status or (other.answer and other.answer["result"]["departures"])
                     for other in ends if other is not end)
        if end.status:
            made = results.departure("crash", phase, step, number, end.status, self.group.stack_of_death(number))
        elif failed:
            return None  # it waits for the one that has failed
        else:
            made = results.departure("hang", phase, step, number, "timeout",
                                     f"no answer within {self.group.deadline:g} s; {end.stack}")
        return {"departures": [made], "gradients": None, "loss": None, "counters": {}}

    def replace_group(self):
        if self.group is not None:
            self.group.close()
            self.group = None

    def close(self):
        self.replace_group()
        self.runtime.close()


def parse_request(line):
    try:
        given = json.loads(line)
        request = DEFAULTS | {key: value for key, value in given.items() if key in DEFAULTS or key == "id"}
        if not isinstance(request["id"], str) or not isinstance(request["timeout"], (int, float)):
            raise TypeError("'id' is a string, 'timeout' a number")
        return request
    except (json.JSONDecodeError, AttributeError, KeyError, TypeError) as error:
        raise UsageError(f"request line '{line[:200]}': {error}") from None


def log(text):
    sys.stderr.write(f"regather_peers: {text}\n")
    sys.stderr.flush()


def take_stdout():
    """Results go to the pipe that was stdout; what any package prints goes to stderr and cannot garble them."""
    pipe = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return pipe


def main():
    parser = argparse.ArgumentParser(prog="regather_peers.worker")
    parser.add_argument("--blackbox", metavar="FILE")
    arguments = parser.parse_args()
    pipe = take_stdout()
    worker = Worker(BlackBox(arguments.blackbox))
    try:
        for line in sys.stdin:
            pipe.write(worker.answer(line) + "\n")
            pipe.flush()
    except UsageError as error:
        log(str(error))
        return 2
    except BrokenPipeError:
        return 0
    finally:
        worker.close()
    return 0


if __name__ == "__main__":
    try:
        status = main()
    except Exception as error:  # noqa: BLE001
        import traceback
        traceback.print_exc()
        log(f"{type(error).__name__}: {error}")
        status = 3
    sys.stderr.flush()
    os._exit(status)
