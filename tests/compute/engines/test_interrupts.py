"""A Ctrl-C at the worst moment, just after a process was started and before it was told what it is for."""

import subprocess
import sys

INTERRUPTED = """
import os, signal, threading
from multiprocessing import util
from tangentkit.compute.engines import Processes

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have told its background jobs to ignore it
threading.Thread(target=threading.Event().wait, daemon=True).start()  # it takes what the main thread blocks
start, calls = util.spawnv_passfds, []

def interrupted(*words):
    pid = start(*words)
    calls.append(pid)
    if len(calls) == 2:  # the first is the tracker of multiprocessing
        os.kill(os.getpid(), signal.SIGINT)
    return pid

util.spawnv_passfds = interrupted
try:
    list(Processes(1).map(abs, [-1, -2]))
except KeyboardInterrupt:
    print("interrupted")
"""


def test_ctrl_c_while_a_process_starts_leaves_no_traceback_of_the_half_started_one():
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == "interrupted\n"
    assert done.stderr == ""
