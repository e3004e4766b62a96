"""The C++ worker as the source of what a case is given and of what is right.

$REGATHER_WORKER is asked, in its own protocol, to write the file (given.py has its layout). Files that cases share are kept
for the life of the worker.
"""

import contextlib
import fcntl
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

from regather_peers import given
from regather_peers.case import UsageError


PREFIX = "regather-given-"


class OwnFolder:
    """A temporary folder, in memory where there is such. A worker that is killed leaves its folder behind: the next one
    takes it away. Whose owner lives is told by a lock, which ends with its process."""

    def __init__(self, parent="/dev/shm"):
        if not os.path.isdir(parent):
            parent = tempfile.gettempdir()
        for left in pathlib.Path(parent).glob(f"{PREFIX}*"):
            remove_if_left(left)
        self.name = tempfile.mkdtemp(prefix=PREFIX, dir=parent)
        # Locked before it has its name, so that nobody finds it unlocked.
        self._lock = open(os.path.join(self.name, "lock.part"), "w", encoding="utf-8")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        os.rename(self._lock.name, os.path.join(self.name, "lock"))

    def cleanup(self):
        shutil.rmtree(self.name, ignore_errors=True)
        self._lock.close()


def remove_if_left(folder):
    with contextlib.suppress(OSError):  # another user's, or still owned
        with open(folder / "lock", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)


class Runtime:
    def __init__(self, program=None):
        self._program = program or os.environ.get("REGATHER_WORKER", "")
        self._process = None
        self._folder = OwnFolder()
        self._files = {}

    def file(self, case, request, record=False):
        """The path of the case's file. `record`: with the runtime's own gradients of this very case."""
        if record:
            return self._export(case, request, "recorded.safetensors", True)  # one case's own: the next takes its place
        key = (given.key(case), request["model"], request["seed"])
        if key not in self._files:
            self._files[key] = self._export(case, request, f"{len(self._files)}.safetensors", False)
        return self._files[key]

    def _export(self, case, request, name, record):
        path = os.path.join(self._folder.name, name)
        self._ask({"export": case.id, "to": path, "record": record, "model": request["model"], "seed": request["seed"]})
        return path

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
