"""The C++ worker as the source of what a case is given and of what is right.

$REGATHER_WORKER is asked, in its own protocol, to write the file (given.py has its layout). Files are kept for the life
of the worker: most cases share one with many others.
"""

import json
import os
import subprocess
import tempfile

from regather_peers import given
from regather_peers.case import UsageError


class Runtime:
    def __init__(self, program=None):
        self._program = program or os.environ.get("REGATHER_WORKER", "")
        self._process = None
        self._folder = tempfile.TemporaryDirectory(prefix="regather-given-",
                                                   dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        self._files = {}

    def file(self, case, request, record=False):
        """The path of the case's file. `record`: with the runtime's own gradients of this very case."""
        key = (case.id if record else given.key(case), request["model"], request["seed"])
        if key not in self._files:
            path = os.path.join(self._folder.name, f"{len(self._files)}.safetensors")
            self._ask({"export": case.id, "to": path, "record": record, "model": request["model"],
                       "seed": request["seed"]})
            self._files[key] = path
        return self._files[key]

    def _ask(self, request):
        if self._process is None:
            self._start()
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except OSError:
            line = ""
        if not line:
            status = self._process.wait()
            self._process = None
            what = f"the runtime's worker '{self._program}' ended with {status} when asked for {request['export']}"
            raise UsageError(what) if status == 2 else RuntimeError(what)
        answer = json.loads(line)
        if answer.get("exported") != request["to"]:
            raise RuntimeError(f"the runtime's worker answered {line[:200]}")

    def _start(self):
        if not os.access(self._program, os.X_OK):
            raise UsageError(f"no worker program '{self._program}': set REGATHER_WORKER to regather-worker, which gives "
                             "cases their weights, batches and right gradients")
        # Its standard error is ours: what it says belongs to the case in flight.
        self._process = subprocess.Popen([self._program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                         encoding="utf-8")

    def close(self):
        if self._process is not None:
            self._process.stdin.close()
            self._process.wait()
            self._process = None
        self._folder.cleanup()
