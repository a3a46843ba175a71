"""A writer that is killed at any moment loses the tile in hand and nothing else."""

import itertools
import os
import random
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from compute.store.writers import MANY, QUICK, SAME, TILE, begin, begin_command, data, ended
from tangentkit.compute import break_lock, gram, open_gram
from tangentkit.core.errors import DataError


def contents(store: Path) -> dict[str, bytes]:
    return {str(p.relative_to(store)): p.read_bytes() for p in sorted(store.rglob("*")) if p.is_file()}


def count(store: Path) -> int:
    return sum(1 for _ in store.rglob("c/*/[0-9]*"))


def until(true, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_killed_at_twenty_random_moments_it_resumes_to_the_same_bytes(tmp_path, warm):
    expected = gram(SAME, data(MANY), store=tmp_path / "whole", tile=TILE)
    store, chance = tmp_path / "k", random.Random()  # any moment: others at each run
    for round in range(20):
        before = count(store)
        writer = begin(warm, store, many=True)
        if round % 2:
            # Somewhere among the tiles: after a few more of them.
            more = chance.randrange(1, 15)
            until(lambda least=before + more: count(store) >= least)
        time.sleep(chance.uniform(0, 0.02))
        writer.kill()
        assert ended(writer) == -signal.SIGKILL, "it came to its end before it was killed"
        assert count(store) >= before, "a tile that was there is lost"
    assert 10 <= count(store) < count(tmp_path / "whole")
    G = gram(SAME, data(MANY), store=store, tile=TILE)
    assert torch.equal(G.dense(), expected.dense())
    assert contents(store) == contents(tmp_path / "whole")


def test_a_second_process_refuses_while_the_first_writes(tmp_path, warm):
    store = tmp_path / "k"
    writer = begin(warm, store, many=True)
    until(lambda: count(store) >= 1)
    for repair in (False, True):
        with pytest.raises(DataError, match=rf"being written.*process {writer.pid} on "):
            gram(SAME, data(MANY), store=store, tile=TILE, repair=repair)
    with pytest.raises(DataError, match="not complete"):
        open_gram(store)
    writer.kill()
    assert ended(writer) == -signal.SIGKILL, "the second refused, and the first went on"
    gram(SAME, data(MANY), store=store, tile=TILE).verify()  # type: ignore[attr-defined]


def killed_at_every_step(warm, store: Path, prepare, **order) -> Iterator[int]:
    """Kills a writer in front of each of its steps, and looks at what is left; gives the steps, to the last."""
    expected = QUICK(data())
    for step in itertools.count(1):
        shutil.rmtree(store, ignore_errors=True)
        prepare(store)
        code = ended(begin(warm, store, step=step, **order))
        try:
            torch.testing.assert_close(open_gram(store).dense(), expected)
        except DataError:
            assert code == -signal.SIGKILL
        yield step
        if code == 0:
            return
        assert code == -signal.SIGKILL


def test_killed_in_front_of_every_step_it_resumes_to_the_same_bytes(tmp_path, warm):
    gram(QUICK, data(), store=tmp_path / "whole", tile=TILE)
    whole, steps = contents(tmp_path / "whole"), 0
    for steps in killed_at_every_step(warm, tmp_path / "k", lambda _: None):
        if contents(tmp_path / "k").keys() == {*whole, "lock.json"}:
            break_lock(tmp_path / "k")  # the last step: all is there, and nobody needs to take the lock over
        gram(QUICK, data(), store=tmp_path / "k", tile=TILE)
        assert contents(tmp_path / "k") == whole, f"killed in front of step {steps}"
    # The lock twice, three descriptions and the manifest, five tiles: each is opened and moved to its place.
    assert steps > 2 * (2 + 4 + 5)


def test_a_repair_that_is_killed_in_front_of_every_step_is_repaired(tmp_path, warm):
    gram(QUICK, data(), store=tmp_path / "whole", tile=TILE)
    whole, steps = contents(tmp_path / "whole"), 0

    def damaged(store: Path) -> None:
        shutil.copytree(tmp_path / "whole", store)
        (store / "zarr.json").unlink()
        (store / "gram" / "zarr.json").write_bytes(b"{}")
        (store / "features-x" / "c" / "0" / "0").write_bytes(b"")
        tile = store / "gram" / "c" / "0" / "1"
        tile.write_bytes(tile.read_bytes()[:-1] + b"?")

    for steps in killed_at_every_step(warm, tmp_path / "k", damaged, repair=True):
        gram(QUICK, data(), store=tmp_path / "k", tile=TILE, repair=True)
        assert contents(tmp_path / "k") == whole, f"killed in front of step {steps}"
    # The lock, two descriptions, two tiles.
    assert steps > 2 * 5


@pytest.fixture(scope="module")
def by_command(tmp_path_factory, warm) -> Path:
    """What the command writes when nothing ends it."""
    store = tmp_path_factory.mktemp("command") / "whole"
    assert ended(begin_command(warm, store)) == 0
    return store


@pytest.mark.parametrize(
    ("sent", "code"),
    [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGINT, 130)],
)
def test_the_command_is_ended_and_goes_on(tmp_path, warm, by_command, sent, code):
    writer = begin_command(warm, tmp_path / "k")
    until(lambda: count(tmp_path / "k") >= 5)
    assert writer.pid
    os.kill(writer.pid, sent)
    assert ended(writer) == code
    # Only what cannot be heeded leaves a lock, which the next run on this machine takes over.
    assert (tmp_path / "k" / "lock.json").exists() == (sent == signal.SIGKILL)
    assert count(tmp_path / "k") < count(by_command)
    assert ended(begin_command(warm, tmp_path / "k")) == 0
    assert contents(tmp_path / "k") == contents(by_command)


def test_a_file_half_written_is_never_taken_for_a_tile(tmp_path):
    gram(QUICK, data(), store=tmp_path / "k", tile=TILE)
    before = contents(tmp_path / "k")
    tile = tmp_path / "k" / "gram" / "c" / "0" / "1"
    (tile.parent / ".1.0123456789abcdef.partial").write_bytes(tile.read_bytes()[:50])
    tile.unlink()
    gram(QUICK, data(), store=tmp_path / "k")
    assert contents(tmp_path / "k") == before
