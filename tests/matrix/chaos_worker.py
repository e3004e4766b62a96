#!/usr/bin/env python3
"""regather-worker with one case that crashes: a request for CHAOS_CRASH seeds the fault crash_rank. Waits CHAOS_PAUSE
seconds before each.

Hands requests on; answers, standard error and the black box go straight to the runner. Dies as the worker dies.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time


def die_with(worker):
    code = worker.wait()
    if code < 0:
        signal.pthread_kill(threading.get_ident(), -code)
        time.sleep(10)
    os._exit(code)


worker = subprocess.Popen([os.environ["CHAOS_WORKER"], *sys.argv[1:]], stdin=subprocess.PIPE, pass_fds=(3,))
threading.Thread(target=die_with, args=(worker,), daemon=True).start()
try:
    for line in sys.stdin:
        request = json.loads(line)
        if request.get("id") == os.environ["CHAOS_CRASH"]:
            request["fault"] = "crash_rank"
        time.sleep(float(os.environ["CHAOS_PAUSE"]))
        worker.stdin.write((json.dumps(request) + "\n").encode())
        worker.stdin.flush()
    worker.stdin.close()
except BrokenPipeError:
    pass
threading.Event().wait()  # the other thread ends the process
