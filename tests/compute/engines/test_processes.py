"""Processes with nothing left to do end by themselves."""

import subprocess
import sys
from multiprocessing import get_context
from pathlib import Path

LOCKS: list = []

HOLDING = """
from compute.engines.test_processes import hold_a_lock
from tangentkit.compute.engines import Processes

print(sorted(Processes(2).map(hold_a_lock, [1, 2, 3])))
"""


def hold_a_lock(number):
    """What progress bars and pools of other libraries do: a lock that goes when its process ends."""
    LOCKS.append(get_context("spawn").RLock())
    return number


def test_what_processes_hold_is_given_back():
    """A process that is ended from outside leaves its locks behind, and a warning of each at the end of the run."""
    done = subprocess.run(
        [sys.executable, "-c", HOLDING],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout == "[1, 2, 3]\n"
    assert done.stderr == ""
