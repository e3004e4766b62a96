"""A group of rank processes that runs cases one after another.

Ranks are forked from the worker, which has imported the packages: a group costs a fraction of a second, not the 10 to
30 s of the imports. The worker itself never computes a tensor and starts no thread, so that its children are sound.
"""

import contextlib
import ctypes
import json
import os
import selectors
import signal
import socket
import sys
import tempfile
import time

GRACE = 3.0     # seconds that ranks get to report after another has failed; then they wait for it in a collective
FAREWELL = 1.0  # seconds in which a rank ends by itself
LAST_WORDS = 4000


class PatientClock:
    """Seconds that went by while this process could run: one that was stopped, or slept with its machine, wakes to
    ranks that were stopped as well and have not had their time."""

    SLICE = 0.5  # asked more often than that

    def __init__(self):
        self._spent, self._last = 0.0, time.monotonic()

    def now(self):
        at = time.monotonic()
        self._spent += min(at - self._last, 2 * self.SLICE)
        self._last = at
        return self._spent


class RankEnd:
    """How a case ended on a rank: its answer, or how the process died, or that it never answered."""

    def __init__(self):
        self.answer = None
        self.status = None  # "exit 1", "signal 11 (SIGSEGV)"
        self.stack = ""


class Group:
    def __init__(self, world, device, deadline, box):
        self.world, self.device, self.deadline, self.box = world, device, deadline, box
        self.cases = 0      # how many it has begun
        self.usable = True
        self._folder = tempfile.TemporaryDirectory(prefix="regather-group-")
        self._ranks = []
        self._stacks = []
        for rank in range(world):
            self._fork(rank)

    def _fork(self, rank):
        ours, theirs = socket.socketpair()
        stack = open(os.path.join(self._folder.name, f"stack{rank}"), "w+", encoding="utf-8")
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: no rank outlives its worker
                ours.close()
                for _, other in self._ranks:
                    other.close()
                from regather_peers import rank as rank_process
                rank_process.serve(theirs, rank, self.world, os.path.join(self._folder.name, "store"), self.box,
                                   self.device, self.deadline, stack)
                status = 0
            except BaseException as error:  # noqa: BLE001: the process ends here, whatever it was
                stack.write(f"{type(error).__name__}: {error}\n")
                stack.flush()
            finally:
                sys.stderr.flush()
                os._exit(status)
        theirs.close()
        self._ranks.append((pid, ours))
        self._stacks.append(stack)

    def run(self, job):
        """One RankEnd a rank. Afterwards `usable` says whether the group can go on."""
        self.cases += 1
        ends = [RankEnd() for _ in self._ranks]
        pending, pieces = {}, {}
        clock = PatientClock()
        limit = self.deadline
        with selectors.DefaultSelector() as selector:
            for number, (_, connection) in enumerate(self._ranks):
                with contextlib.suppress(OSError):  # it died idle: the read says so
                    connection.sendall((json.dumps(job) + "\n").encode())
                selector.register(connection, selectors.EVENT_READ, number)
                pending[number], pieces[number] = connection, b""
            while pending and clock.now() < limit:
                for key, _ in selector.select(min(PatientClock.SLICE, limit - clock.now())):
                    number = key.data
                    piece = _receive(key.fileobj)
                    pieces[number] += piece
                    if piece and not piece.endswith(b"\n"):
                        continue
                    if piece:
                        ends[number].answer = json.loads(pieces[number])
                    else:
                        ends[number].status = self._reap(number)
                    selector.unregister(key.fileobj)
                    del pending[number]
                    if not piece or ends[number].answer["dirty"]:
                        self.usable = False
                        limit = min(limit, clock.now() + GRACE)
        if pending:
            self._dump_stacks(pending, ends)
            self.usable = False
        return ends

    def _reap(self, number):
        pid, _ = self._ranks[number]
        _, status = os.waitpid(pid, 0)
        self._ranks[number] = (None, self._ranks[number][1])
        if os.WIFEXITED(status):
            return f"exit {os.WEXITSTATUS(status)}"
        return f"signal {os.WTERMSIG(status)} ({signal.Signals(os.WTERMSIG(status)).name})"

    def _dump_stacks(self, pending, ends):
        """Where each rank that gave no answer stands, innermost call first."""
        for number in pending:
            if self._ranks[number][0] is not None:
                os.kill(self._ranks[number][0], signal.SIGUSR1)
        time.sleep(0.2)
        for number in pending:
            self._stacks[number].seek(0)
            ends[number].stack = self._stacks[number].read()[:LAST_WORDS]

    def stack_of_death(self, number):
        self._stacks[number].seek(0)
        return self._stacks[number].read()[:LAST_WORDS]

    def close(self):
        """Ends the ranks: gently when the group is usable, so that they leave together."""
        for _, connection in self._ranks:
            connection.close()
        limit = time.monotonic() + (FAREWELL if self.usable else 0)
        for pid, _ in self._ranks:
            if pid is not None and not _ends(pid, limit):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        for stack in self._stacks:
            stack.close()
        self._folder.cleanup()


def _receive(connection):
    try:
        return connection.recv(1 << 20)
    except ConnectionError:
        return b""


def _ends(pid, limit):
    """Whether the process ends, and is reaped, before the limit."""
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() >= limit:
            return False
        time.sleep(0.005)
    return True
