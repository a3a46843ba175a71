"""Gram matrices on disk and on clusters: writing, overhead, workers, memory; and what that means for large N."""

import json
import subprocess
import sys
from pathlib import Path

from rich.console import Console

from benchmarks.store.page import renew
from benchmarks.store.simulation import simulate
from benchmarks.store.tables import section as section

ROOT = Path(__file__).resolve().parent.parent.parent
CONTENDERS = ("writing", "overhead", "workers", "rates")


def measure(quick: bool, console: Console) -> dict:
    """Runs every contender in a process of its own, then the simulation on what they measured.

    A full run also writes its numbers into docs/scaling.md.
    """
    record: dict = {"quick": quick}
    for name in CONTENDERS:
        record[name] = _run(name, quick)
        console.print(f"store, {name}: {record[name]}")
    if isinstance(record["rates"], dict) and isinstance(record["overhead"], dict):
        record["simulation"] = simulate(record["rates"], record["overhead"])
        if not quick:
            renew(record)
    return record


def _run(name: str, quick: bool, timeout: int = 3600) -> dict | str:
    command = [sys.executable, "-m", "benchmarks.store.contender", name, *(["quick"] if quick else [])]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return f"over {timeout} s"
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["failed"])[-1][:200]
    return json.loads(done.stdout.strip().splitlines()[-1])
