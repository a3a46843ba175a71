"""The cost of a Gram matrix is told before it is computed."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch

from compute.toy_kernels import Gaussian, Linear
from tangentkit.compute import Kernel, gram, gram_cost
from tangentkit.core.errors import DataError

CLOCK = [0.0]
"""Seconds that have passed for the kernels here, whatever the machine has to do."""


@pytest.fixture(autouse=True)
def _clock(monkeypatch):
    clock = SimpleNamespace(perf_counter=lambda: CLOCK[0], process_time=lambda: CLOCK[0])
    monkeypatch.setattr("tangentkit.compute.cost.trials.time", clock)


def work(seconds: float) -> None:
    CLOCK[0] += seconds


@dataclass(eq=False)
class Timed(Kernel):
    """Takes so many seconds for each sample and for each pair."""

    each: float = 0.0
    pair: float = 0.0

    def __call__(self, x, y=None):
        m = len(x if y is None else y)
        work(self.each * (len(x) + (0 if y is None else m)) + self.pair * len(x) * m)
        return x.new_ones(len(x), m)

    def diag(self, x):
        return x.new_ones(len(x))


@dataclass(eq=False)
class TimedRows(Timed):
    """What a sample takes it takes once for a row."""

    def row(self, x):
        work(self.each * len(x))

        def tile(y=None):
            m = len(x if y is None else y)
            work((0 if y is None else self.each * m) + self.pair * len(x) * m)
            return x.new_ones(len(x), m)

        return tile


@dataclass(frozen=True, eq=False)
class TimedFeatures(Linear):
    """What a sample takes it takes once for all."""

    each: float = 0.0

    def features(self, x):
        work(self.each * len(x))
        return super().features(x)


CASES = {
    "passes": Timed(each=3e-4),
    "pairs": Timed(pair=3e-6),
    "both": Timed(each=1e-4, pair=2e-6),
    "rows": TimedRows(each=2e-4, pair=1e-6),
    "features": TimedFeatures(each=4e-4),
    "cosine": TimedFeatures(each=4e-4).normalized(),
}


@pytest.mark.parametrize("two_sides", [False, True])
@pytest.mark.parametrize("tile", [80, 300])
@pytest.mark.parametrize("name", CASES)
def test_the_estimate_is_near_what_it_takes(tmp_path, name, tile, two_sides):
    x = torch.randn(300, 2, generator=torch.Generator().manual_seed(0))
    y = x[:200] if two_sides else None
    cost = gram_cost(CASES[name], x, y, tile=tile)
    start = CLOCK[0]
    gram(CASES[name], x, y, tile=tile, store=tmp_path / "k")
    seconds = CLOCK[0] - start
    assert seconds / 1.5 < cost.seconds < 1.5 * seconds


def test_the_cost_of_a_store_that_is_begun_is_that_of_the_rest(tmp_path):
    kernel, x = Timed(each=1e-3), torch.randn(60, 2)

    def stop(stage, done, total):
        if done == total // 2:
            raise KeyboardInterrupt

    whole = gram_cost(kernel, x, store=tmp_path / "k", tile=10)
    with pytest.raises(KeyboardInterrupt):
        gram(kernel, x, store=tmp_path / "k", tile=10, progress=stop)
    rest = gram_cost(kernel, x, store=tmp_path / "k")
    assert (whole.tiles, whole.done, rest.tiles, rest.done) == (21, 0, 21, 10)
    assert (rest.shape, rest.tile, rest.nbytes) == (whole.shape, whole.tile, whole.nbytes)
    assert rest.seconds < 0.8 * whole.seconds
    assert "21 tiles of 10 samples a side, 10 of them there, " in str(rest)
    gram(kernel, x, store=tmp_path / "k")
    assert gram_cost(kernel, x, store=tmp_path / "k").seconds == 0


def test_one_sample_has_a_cost_too():
    cost = gram_cost(Timed(each=1.0), torch.zeros(1, 2))
    assert (cost.shape, cost.tiles) == ((1, 1), 1)
    assert cost.seconds > 0


def test_a_damaged_manifest_is_an_error_before_any_work(tmp_path):
    gram(Gaussian(), torch.zeros(2, 2), store=tmp_path / "k")
    (tmp_path / "k" / "manifest.json").write_bytes(b"{}")
    with pytest.raises(DataError, match=r"manifest.json is damaged"):
        gram_cost(Gaussian(), torch.zeros(2, 2), store=tmp_path / "k")
