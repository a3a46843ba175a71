"""Runs contenders one after the other, each in its own process, and keeps what they print."""

import json
import os
import shutil
import subprocess
import time
import venv
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
PEER = ROOT / ".venv-neural-tangents"
"""The environment of neural-tangents, which needs an old jax."""
PEER_PACKAGES = ("jax==0.4.23", "jaxlib==0.4.23", "neural-tangents==0.6.5", "numpy<2", "scipy<1.13")


def gemm_rate(size: int = 2048) -> float:
    """FLOPs a second of a float32 matrix product: the machine's limit."""
    a = torch.randn(size, size)
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        a @ a
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best


def peer_python() -> Path | None:
    """The interpreter of neural-tangents' environment, made when first asked for; None if it cannot be installed."""
    python = PEER / "bin" / "python"
    if not (PEER / ".ready").exists():
        shutil.rmtree(PEER, ignore_errors=True)
        venv.create(PEER, with_pip=True)
        install = [python, "-m", "pip", "install", "--quiet", *PEER_PACKAGES]
        if subprocess.run(install, check=False, capture_output=True).returncode:
            return None
        (PEER / ".ready").touch()
    return python


def run(command: list, timeout: int = 1800) -> dict | str:
    """What a process prints as the last line, in JSON, or a word why there is no number."""
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=timeout, env=environment, check=False
        )
    except subprocess.TimeoutExpired:
        return f"over {timeout} s"
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["failed"]
        return "out of memory" if done.returncode == -9 else last[0][:60]
    return json.loads(done.stdout.strip().splitlines()[-1])


def better(before: dict | str | None, now: dict | str) -> dict | str:
    """The faster of two runs of one contender."""
    if not isinstance(before, dict):
        return now
    return min(before, now, key=lambda found: found["seconds"]) if isinstance(now, dict) else before
