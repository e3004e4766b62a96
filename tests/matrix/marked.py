"""Processes that a test has started, wherever they went, by a mark in their environment."""

import os
import pathlib
import time


class Processes:
    def __init__(self):
        self.environment = {"REGATHER_TEST_MARK": os.urandom(8).hex()}  # what those that are meant are started with
        (self._mark,) = (f"{name}={value}".encode() for name, value in self.environment.items())

    def all(self):
        """Number and name of each that runs."""
        found = []
        for entry in os.scandir("/proc"):
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                if self._mark not in pathlib.Path(entry.path, "environ").read_bytes().split(b"\0"):
                    continue
                name = pathlib.Path(entry.path, "comm").read_text().strip()
                state = pathlib.Path(entry.path, "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if state != "Z":
                found.append((int(entry.name), name))
        return found

    def left(self, seconds=5):
        """What still runs after a while."""
        until = time.monotonic() + seconds
        while (found := self.all()) and time.monotonic() < until:
            time.sleep(0.05)
        return found
