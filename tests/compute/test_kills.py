"""A writer that is killed at any moment loses the tile in hand and nothing else."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from compute.toy_kernels import Gaussian, Linear
from tangentkit.compute import gram

SAMPLES, TILE = 40, 4
MANY = 120
"""Samples whose 465 tiles take longer than all killed writers together have: none of them comes to its end."""
WRITERS = """
import os, sys
sys.path.insert(0, sys.argv[2])
import torch, zarr
from compute.test_kills import KERNEL, MANY, TILE, data
from tangentkit.compute import gram
print("ready", flush=True)
while sys.stdin.readline():
    child = os.fork()
    if not child:
        gram(KERNEL, data(MANY), store=sys.argv[1], tile=TILE, progress=False)
        os._exit(0)
    print(child, flush=True)
    os.waitpid(child, 0)
    print("ended", flush=True)
"""
KERNEL = Linear().normalized() + Gaussian(delay=0.004)


def data(samples: int = SAMPLES) -> torch.Tensor:
    return torch.randn(samples, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def contents(store: Path) -> dict[str, bytes]:
    return {str(p.relative_to(store)): p.read_bytes() for p in sorted(store.rglob("*")) if p.is_file()}


@pytest.fixture
def writers(tmp_path):
    """A process that has imported everything, and for each line it reads begins another that writes the store."""
    tests = str(Path(__file__).resolve().parent.parent)
    process = subprocess.Popen(
        [sys.executable, "-c", WRITERS, str(tmp_path / "k"), tests],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        assert process.stdin is not None
        process.stdin.close()
    assert process.returncode == 0


def test_killed_at_twenty_random_moments_it_resumes_to_the_same_bytes(tmp_path, writers):
    expected = gram(KERNEL, data(MANY), store=tmp_path / "whole", tile=TILE)
    store, chance = tmp_path / "k", random.Random()  # any moment: others at each run
    count = 0
    for round in range(20):
        writers.stdin.write("go\n")
        writers.stdin.flush()
        pid = int(writers.stdout.readline())
        # Odd rounds: while the store is made or opened; even ones: somewhere among the tiles.
        time.sleep(chance.uniform(0, 0.02 if round % 2 else 0.15))
        os.kill(pid, signal.SIGKILL)
        assert writers.stdout.readline() == "ended\n"
        before, count = count, sum(1 for _ in store.rglob("c/*/[0-9]*"))
        assert count >= before, "a tile that was there is lost"
    G = gram(KERNEL, data(MANY), store=store, tile=TILE)
    assert torch.equal(G.dense(), expected.dense())
    assert contents(store) == contents(tmp_path / "whole")


def test_a_file_half_written_is_never_taken_for_a_tile(tmp_path):
    gram(KERNEL, data(), store=tmp_path / "k", tile=TILE)
    before = contents(tmp_path / "k")
    tile = tmp_path / "k" / "gram" / "c" / "2" / "3"
    (tile.parent / ".3.0123456789abcdef.partial").write_bytes(tile.read_bytes()[:50])
    tile.unlink()
    gram(KERNEL, data(), store=tmp_path / "k")
    assert contents(tmp_path / "k") == before


def test_a_store_whose_making_was_interrupted_is_made_again(tmp_path):
    gram(KERNEL, data(), store=tmp_path / "k", tile=TILE)
    before = contents(tmp_path / "k")
    for path in [
        *tmp_path.rglob("c/*/*"),
        tmp_path / "k" / "manifest.json",
        tmp_path / "k" / "gram" / "zarr.json",
    ]:
        path.unlink()
    # Left by another attempt, of another shape.
    (tmp_path / "k" / "zarr.json").write_text("{}")
    gram(KERNEL, data(), store=tmp_path / "k", tile=TILE)
    assert contents(tmp_path / "k") == before
