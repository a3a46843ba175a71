"""Tiles of a new store take seconds of measured time, and an interrupt costs no more than those in hand."""

import traceback
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import TensorDataset

import tangentkit as tk
from compute.toy_kernels import Linear
from tangentkit.cli import main
from tangentkit.compute import Kernel, engines, gram, gram_cost, open_gram
from tangentkit.compute.cost.tiling import LONG, MORE_OVERHEAD, OVERHEAD, RANGES, SECONDS, measured_tiling
from tangentkit.compute.sources import as_source
from tangentkit.compute.store.layout import look
from tangentkit.compute.store.store import read_manifest
from tangentkit.core.errors import DataError

CLOCK = [0.0]
"""Seconds that have passed for the kernels here, whatever the machine has to do."""


@pytest.fixture(autouse=True)
def _clock(monkeypatch):
    monkeypatch.setattr("tangentkit.compute.cost.trials.time", SimpleNamespace(perf_counter=lambda: CLOCK[0]))


def samples(n: int) -> torch.Tensor:
    return torch.randn(n, 3, generator=torch.Generator().manual_seed(0))


@dataclass(eq=False)
class Slow(Kernel):
    """x · y, with so many seconds for each sample on the right and for each pair."""

    each: float = 0.0
    pair: float = 0.0

    def __call__(self, x, y=None):
        y = x if y is None else y
        CLOCK[0] += self.seconds(len(x), len(y))
        return x @ y.T

    def diag(self, x):
        return x.square().sum(1)

    def growth(self, x, small, large):  # noqa: ARG002
        return self.seconds(large, large) / self.seconds(small, small)

    def seconds(self, n: int, m: int) -> float:
        return self.each * m + self.pair * n * m


@dataclass(frozen=True, eq=False)
class SlowFeatures(Linear):
    """x · y by features, with so many seconds for each sample."""

    each: float = 0.0

    def features(self, x):
        CLOCK[0] += self.each * len(x)
        return super().features(x)


def test_the_tiles_of_a_new_store_take_seconds(tmp_path):
    kernel, x = Slow(each=1e-4, pair=1e-3), samples(300)
    assert kernel.seconds(300, 300) > 10 * SECONDS  # in one tile all of it would be at stake
    G = gram(kernel, x, store=tmp_path / "k")
    tile = open_gram(tmp_path / "k").tile_side()
    assert SECONDS / 4 <= kernel.seconds(tile, tile) <= SECONDS
    torch.testing.assert_close(G.dense(), kernel(x))


def test_a_kernel_that_is_quick_has_the_largest_tiles(tmp_path):
    gram(Slow(pair=1e-6), samples(300), store=tmp_path / "k")
    assert open_gram(tmp_path / "k").tile_side() == 300


def test_there_are_never_more_files_than_a_file_system_bears():
    kernel, source = Slow(pair=1.0), as_source(samples(300))
    form = look(kernel, {"x": source})
    assert measured_tiling(kernel, source, form, {"x": 300}).side <= 2
    assert 60 <= measured_tiling(kernel, source, form, {"x": 60 * RANGES}).side <= 120


def test_tiles_of_minutes_are_avoided_at_a_higher_price(tmp_path):
    kernel = Slow(each=0.5, pair=5e-3)
    gram(kernel, samples(300), store=tmp_path / "k")
    tile = open_gram(tmp_path / "k").tile_side()
    price = kernel.seconds(tile, tile) / tile**2 / (kernel.seconds(300, 300) / 300**2)
    assert kernel.seconds(tile, tile) <= LONG
    assert OVERHEAD < price <= MORE_OVERHEAD


@pytest.mark.parametrize("pair", [0.0, 1e-4, 1e-3])
def test_smaller_tiles_never_cost_more_than_the_bound(tmp_path, pair):
    kernel = Slow(each=0.1, pair=pair)
    gram(kernel, samples(300), store=tmp_path / "k")
    tile = open_gram(tmp_path / "k").tile_side()
    # The whole takes n² / 2 tiles of s², whose passes are made again for each.
    assert kernel.seconds(tile, tile) / tile**2 <= OVERHEAD * kernel.seconds(300, 300) / 300**2
    assert pair < 1e-3 or tile < 300


def test_a_tile_that_is_given_and_that_of_a_store_stay(tmp_path):
    kernel, x = Slow(pair=1e-3), samples(100)
    gram(kernel, x, store=tmp_path / "given", tile=90)
    assert open_gram(tmp_path / "given").tile_side() == 90
    gram(Slow(pair=1e-3), x, store=tmp_path / "k")
    before = open_gram(tmp_path / "k").tile_side()
    (tmp_path / "k" / "gram" / "c" / "0" / "0").unlink()
    kernel.pair = 1e-6  # another machine, much faster
    kernel.identity = Slow(pair=1e-3).identity  # type: ignore[method-assign]
    gram(kernel, x, store=tmp_path / "k")
    assert open_gram(tmp_path / "k").tile_side() == before < 90
    with pytest.raises(DataError, match=r"tile was \d+, is 90"):
        gram(kernel, x, store=tmp_path / "k", tile=90)


@pytest.mark.parametrize("lazy", [False, True])
def test_slow_features_are_stored_piece_by_piece_and_tiles_stay_large(tmp_path, lazy):
    kernel, x = SlowFeatures(each=0.5).normalized(), samples(75)
    data = tk.Samples(TensorDataset(x), inputs=lambda batch: batch[0]) if lazy else x
    G = gram(kernel, data, store=tmp_path / "k")
    store = read_manifest(tmp_path / "k")
    piece, width = store.arrays["features-b-x"].tile
    assert width == 3
    assert 0.5 * piece <= SECONDS
    assert store.arrays["gram"].tile[0] >= 75
    torch.testing.assert_close(G.dense(), kernel(x))
    cost = gram_cost(kernel, x, tile=None)
    assert cost.tiling.piece == piece
    assert cost.tile == store.arrays["gram"].tile[0]


def test_data_that_change_between_readings_are_seen_in_every_piece(tmp_path):
    class Changing(TensorDataset):
        def __getitem__(self, index):
            (sample,) = super().__getitem__(index)
            return (sample + 1 if index == 74 and CLOCK[0] > limit else sample,)

    kernel = SlowFeatures(each=0.5)
    limit, x = float("inf"), samples(75)
    data = tk.Samples(Changing(x), inputs=lambda batch: batch[0])
    data.hashes()
    limit = CLOCK[0] - 1
    with pytest.raises(DataError, match=r"to 74 have changed"):
        gram(kernel, data, store=tmp_path / "k", tile=gram_cost(kernel, x).tiling)


def interrupt_after(tiles: int):
    def hear(stage: str, done: int, total: int) -> None:
        if stage == "gram" and done == tiles:
            raise KeyboardInterrupt

    return hear


@pytest.mark.parametrize("engine", [engines.Serial(), engines.Threads(2)])
def test_an_interrupt_says_what_is_stored_and_shows_no_frames_of_ours(tmp_path, engine):
    with pytest.raises(KeyboardInterrupt) as caught:
        gram(Linear(), samples(9), store=tmp_path / "k", tile=3, engine=engine, progress=interrupt_after(3))
    there = len(list((tmp_path / "k").glob("*/c/*/*")))
    assert there >= 6  # three pieces of features, three tiles and those in hand
    assert str(caught.value) == (
        f"{there} of 9 tiles stored in {tmp_path / 'k'}, {9 - there} left: run again to go on"
    )
    lines = "".join(traceback.format_exception(caught.value)).splitlines()
    assert len(lines) <= 10, "\n".join(lines)
    assert not (tmp_path / "k" / "lock.json").exists()
    torch.testing.assert_close(gram(Linear(), samples(9), store=tmp_path / "k").dense(), Linear()(samples(9)))


def test_an_interrupt_before_there_is_anything_says_so(tmp_path):
    class Interrupted(Linear):
        def features(self, x):  # noqa: ARG002
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match=r"nothing is stored in .* yet"):
        gram(Interrupted(), samples(9), store=tmp_path / "k")


def test_the_command_says_it_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("tangentkit.cli.gram.ProgressLines", lambda: interrupt_after(2))
    words = ["gram", "--model", "mlp", "--width", "8", "--data", "digits", "--samples", "30", "--tile", "8"]
    with pytest.raises(SystemExit) as end:
        main([*words, "--store", str(tmp_path / "k")])
    assert end.value.code == 130
    said = capsys.readouterr().err.splitlines()
    assert said[-1] == f"interrupted: 2 of 10 tiles stored in {tmp_path / 'k'}, 8 left: run again to go on"
    assert len(said) == 2
