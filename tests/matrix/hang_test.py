#!/usr/bin/env python3
"""A rank that hangs is recorded with every rank's stack and last collectives, and named; nothing is left running.

usage: hang_test.py REGATHER
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

from marked import Processes

PROGRAM = os.path.abspath(sys.argv.pop(1))
CASE = "fsdp2/sft/world=4/fix=redirect"


class Hang(unittest.TestCase):
    def run_case(self, *options, meanwhile=None):
        """The deaths of a case, and its line."""
        folder = self.enterContext(tempfile.TemporaryDirectory(prefix="hang-"))
        processes = Processes()
        run = subprocess.Popen([PROGRAM, "matrix", "run", "--case", CASE, "--timeout", "4", "--out", folder, *options],
                               env=os.environ | processes.environment, stderr=subprocess.PIPE, text=True)
        ended = threading.Event()
        helper = threading.Thread(target=lambda: meanwhile and meanwhile(processes, ended))
        helper.start()
        said = run.communicate()[1]
        ended.set()
        helper.join()
        self.assertEqual(run.returncode, 1, said)
        (line,) = map(json.loads, pathlib.Path(folder, "cases.jsonl").read_text().splitlines())
        deaths = [json.loads(text) for text in pathlib.Path(folder, "deaths.jsonl").read_text().splitlines()]
        self.assertEqual([death["conclusion"] for death in deaths], ["runs again alone", "alone too: recorded"])
        self.assertEqual(line["outcome"], "hang")
        self.assertEqual(line["death"], deaths[1]["death"])
        self.assertEqual(json.loads(pathlib.Path(folder, "results.json").read_text())["cases"][0]["death"], line["death"])
        self.assertFalse(processes.left(), "processes are left")
        return line, deaths

    def check_places(self, line):
        """Rank 1 hangs in the second backward, where the others wait for it."""
        signature, death = line["signature"], line["death"]
        self.assertEqual((signature["rank"], signature["step"], signature["phase"]), (1, 1, "backward"))
        self.assertEqual((death["rank"], death["step"], death["phase"], death["signal"]), (1, 1, "backward", None))
        self.assertTrue(any("nanosleep" in frame for frame in death["backtrace"]), death["backtrace"])
        self.assertTrue(any("regather::train::run_rank" in frame for frame in death["backtrace"]), death["backtrace"])
        self.assertFalse(any("write_own_stack" in frame for frame in death["backtrace"]), death["backtrace"])
        self.assertEqual([rank["rank"] for rank in death["ranks"]], [0, 1, 2, 3])
        for rank in death["ranks"]:
            self.assertEqual(len(rank["collectives"]), 8, rank)
            self.assertRegex(rank["collectives"][-1], r"^\w+ #\d+$")
        last = {rank["rank"]: int(rank["collectives"][-1].split("#")[1]) for rank in death["ranks"]}
        self.assertLess(last[1], last[0])
        self.assertEqual(death["last_collective"], death["ranks"][1]["collectives"][-1])

    def test_of_a_thread(self):
        line, deaths = self.run_case("--fault", "hang_rank")
        self.check_places(line)
        self.assertRegex(line["signature"]["text"], r"rank 1 has entered \d+ collectives, rank 0 \d+")
        for rank in (0, 2, 3):
            frames = line["death"]["ranks"][rank]["backtrace"]
            self.assertTrue(any("comm::Meeting::wait" in frame for frame in frames), frames)
        self.assertIn("stack of rank 3:", deaths[0]["output"])

    def test_of_a_process(self):
        line, deaths = self.run_case("--fault", "hang_rank", "--launcher", "processes")
        self.check_places(line)
        self.assertRegex(line["signature"]["text"], "rank 1 did not end within 3000 ms and was killed")
        self.assertIn("stack of rank 1:", deaths[0]["output"])

    def test_of_a_process_that_is_stopped(self):
        def stop_rank_2(processes, ended):
            while not ended.wait(0.005):
                for pid, name in processes.all():
                    if name == "rank 2":
                        os.kill(pid, signal.SIGSTOP)

        line, _ = self.run_case("--launcher", "processes", meanwhile=stop_rank_2)
        self.assertEqual(line["signature"]["rank"], 2)
        self.assertEqual(line["death"]["rank"], 2)
        self.assertIn("stopped", line["signature"]["text"])


if __name__ == "__main__":
    unittest.main()
