"""Runs one contender in a process of its own."""

import sys
from pathlib import Path

from benchmarks.measure import peer_python, run


def contest(contender: str, workload: str, n: int, outputs: str, repeats: int) -> dict | str:
    """What one contender takes, or a word why there is no number."""
    arguments = [workload, str(n), outputs, str(repeats)]
    if contender == "neural-tangents":
        python = peer_python()
        if python is None:
            return "not installed"
        return run([python, Path(__file__).parent / "neural_tangents_contender.py", *arguments])
    return run([sys.executable, "-m", "benchmarks.tangent.contender", contender, *arguments])
