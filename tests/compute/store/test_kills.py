"""A writer that is killed at any moment loses the tile in hand and nothing else."""

import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from compute.toy_kernels import Gaussian, Linear
from tangentkit.compute import break_lock, gram, open_gram
from tangentkit.core.errors import DataError

SAMPLES, TILE = 5, 4
MANY = 120
"""Samples whose 465 tiles take longer than all killed writers together have: none of them comes to its end."""
SLOW = Linear().normalized() + Gaussian(delay=0.004)
QUICK = Linear()
COMMAND = ("gram", "--model", "mlp", "--width", "8", "--data", "digits", "--samples", "80", "--tile", "4")
WRITERS = """
import json, os, signal, sys
sys.path.insert(0, sys.argv[1])
import torch, zarr, sklearn.datasets
import tangentkit.data, tangentkit.models, tangentkit.sketch, tangentkit.infinite, tangentkit.cli
from compute.store import test_kills
print("ready", flush=True)
for line in sys.stdin:
    order = json.loads(line)
    child = os.fork()
    if not child:
        test_kills.write(**order)
        os._exit(0)
    print(child, flush=True)
    print(os.waitpid(child, 0)[1], flush=True)
"""


def data(samples: int = SAMPLES) -> torch.Tensor:
    return torch.randn(samples, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def write(store: str, many: bool = False, repair: bool = False, step: int = 0, command: bool = False) -> None:
    """What a child does: writes a store, or dies in front of one of its steps."""
    if command:
        from tangentkit.cli import main

        signal.signal(signal.SIGINT, signal.default_int_handler)
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        try:
            main([*COMMAND, "--store", store])
        except SystemExit as end:
            os._exit(end.code)  # type: ignore[arg-type]
    if step:
        die_at(step, store)
    kernel, x = (SLOW, data(MANY)) if many else (QUICK, data())
    gram(kernel, x, store=store, tile=TILE, progress=False, repair=repair)


def die_at(step: int, store: str) -> None:
    """From now on this process is killed in front of the n-th thing that it does to the files of a store."""
    steps = itertools.count(1)

    def hear(event: str, details: tuple) -> None:
        opens = event == "open" and bool(set(str(details[1])) & set("wxa"))
        changes = opens or event in ("os.rename", "os.remove")
        counts = event == "fcntl.flock" or (changes and str(details[0]).startswith(store))
        if counts and next(steps) == step:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hear)


def contents(store: Path) -> dict[str, bytes]:
    return {str(p.relative_to(store)): p.read_bytes() for p in sorted(store.rglob("*")) if p.is_file()}


def count(store: Path) -> int:
    return sum(1 for _ in store.rglob("c/*/[0-9]*"))


@pytest.fixture(scope="module")
def writers():
    """A process that has imported everything, and for each order begins another that writes a store."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITERS, str(Path(__file__).resolve().parents[2])],
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


def begin(writers: subprocess.Popen, **order) -> int:
    """Begins a writer; its process number."""
    writers.stdin.write(json.dumps(order) + "\n")  # type: ignore[union-attr]
    writers.stdin.flush()  # type: ignore[union-attr]
    return int(writers.stdout.readline())  # type: ignore[union-attr]


def ended(writers: subprocess.Popen) -> int:
    """How the writer ended: its exit code, or minus the signal that killed it."""
    return os.waitstatus_to_exitcode(int(writers.stdout.readline()))  # type: ignore[union-attr]


def until(true, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_killed_at_twenty_random_moments_it_resumes_to_the_same_bytes(tmp_path, writers):
    expected = gram(SLOW, data(MANY), store=tmp_path / "whole", tile=TILE)
    store, chance = tmp_path / "k", random.Random()  # any moment: others at each run
    for round in range(20):
        before = count(store)
        pid = begin(writers, store=str(store), many=True)
        if round % 2:
            # Somewhere among the tiles: after a few more of them.
            more = chance.randrange(1, 15)
            until(lambda least=before + more: count(store) >= least)
        time.sleep(chance.uniform(0, 0.02))
        os.kill(pid, signal.SIGKILL)
        assert ended(writers) == -signal.SIGKILL, "it came to its end before it was killed"
        assert count(store) >= before, "a tile that was there is lost"
    assert 10 <= count(store) < count(tmp_path / "whole")
    G = gram(SLOW, data(MANY), store=store, tile=TILE)
    assert torch.equal(G.dense(), expected.dense())
    assert contents(store) == contents(tmp_path / "whole")


def test_a_second_process_refuses_while_the_first_writes(tmp_path, writers):
    store = tmp_path / "k"
    pid = begin(writers, store=str(store), many=True)
    until(lambda: count(store) >= 1)
    for repair in (False, True):
        with pytest.raises(DataError, match=rf"being written.*process {pid} on "):
            gram(SLOW, data(MANY), store=store, tile=TILE, repair=repair)
    with pytest.raises(DataError, match="not complete"):
        open_gram(store)
    os.kill(pid, signal.SIGKILL)
    assert ended(writers) == -signal.SIGKILL, "the second refused, and the first went on"
    gram(SLOW, data(MANY), store=store, tile=TILE).verify()  # type: ignore[attr-defined]


def killed_at_every_step(writers, store: Path, prepare, **order) -> Iterator[int]:
    """Kills a writer in front of each of its steps, and looks at what is left; gives the steps, to the last."""
    expected = QUICK(data())
    for step in itertools.count(1):
        shutil.rmtree(store, ignore_errors=True)
        prepare(store)
        begin(writers, store=str(store), step=step, **order)
        code = ended(writers)
        try:
            torch.testing.assert_close(open_gram(store).dense(), expected)
        except DataError:
            assert code == -signal.SIGKILL
        yield step
        if code == 0:
            return
        assert code == -signal.SIGKILL


def test_killed_in_front_of_every_step_it_resumes_to_the_same_bytes(tmp_path, writers):
    gram(QUICK, data(), store=tmp_path / "whole", tile=TILE)
    whole, steps = contents(tmp_path / "whole"), 0
    for steps in killed_at_every_step(writers, tmp_path / "k", lambda _: None):
        if contents(tmp_path / "k").keys() == {*whole, "lock.json"}:
            break_lock(tmp_path / "k")  # the last step: all is there, and nobody needs to take the lock over
        gram(QUICK, data(), store=tmp_path / "k", tile=TILE)
        assert contents(tmp_path / "k") == whole, f"killed in front of step {steps}"
    # The lock twice, three descriptions and the manifest, five tiles: each is opened and moved to its place.
    assert steps > 2 * (2 + 4 + 5)


def test_a_repair_that_is_killed_in_front_of_every_step_is_repaired(tmp_path, writers):
    gram(QUICK, data(), store=tmp_path / "whole", tile=TILE)
    whole, steps = contents(tmp_path / "whole"), 0

    def damaged(store: Path) -> None:
        shutil.copytree(tmp_path / "whole", store)
        (store / "zarr.json").unlink()
        (store / "gram" / "zarr.json").write_bytes(b"{}")
        (store / "features-x" / "c" / "0" / "0").write_bytes(b"")
        tile = store / "gram" / "c" / "0" / "1"
        tile.write_bytes(tile.read_bytes()[:-1] + b"?")

    for steps in killed_at_every_step(writers, tmp_path / "k", damaged, repair=True):
        gram(QUICK, data(), store=tmp_path / "k", tile=TILE, repair=True)
        assert contents(tmp_path / "k") == whole, f"killed in front of step {steps}"
    # The lock, two descriptions, two tiles.
    assert steps > 2 * 5


@pytest.fixture(scope="module")
def by_command(tmp_path_factory, writers) -> Path:
    """What the command writes when nothing ends it."""
    store = tmp_path_factory.mktemp("command") / "whole"
    begin(writers, store=str(store), command=True)
    assert ended(writers) == 0
    return store


@pytest.mark.parametrize(
    ("sent", "code"),
    [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGINT, 130)],
)
def test_the_command_is_ended_and_goes_on(tmp_path, writers, by_command, sent, code):
    pid = begin(writers, store=str(tmp_path / "k"), command=True)
    until(lambda: count(tmp_path / "k") >= 5)
    os.kill(pid, sent)
    assert ended(writers) == code
    # Only what cannot be heeded leaves a lock, which the next run on this machine takes over.
    assert (tmp_path / "k" / "lock.json").exists() == (sent == signal.SIGKILL)
    assert count(tmp_path / "k") < count(by_command)
    begin(writers, store=str(tmp_path / "k"), command=True)
    assert ended(writers) == 0
    assert contents(tmp_path / "k") == contents(by_command)


def test_a_file_half_written_is_never_taken_for_a_tile(tmp_path):
    gram(QUICK, data(), store=tmp_path / "k", tile=TILE)
    before = contents(tmp_path / "k")
    tile = tmp_path / "k" / "gram" / "c" / "0" / "1"
    (tile.parent / ".1.0123456789abcdef.partial").write_bytes(tile.read_bytes()[:50])
    tile.unlink()
    gram(QUICK, data(), store=tmp_path / "k")
    assert contents(tmp_path / "k") == before
