"""What `gram` computes, how often, what it refuses and what it says meanwhile."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import zarr
from torch import nn

import tangentkit as tk
from compute.toy_kernels import Counted, CountedFeatures, Gaussian, Linear, close, matrix, samples
from tangentkit.compute import engines, gram, open_gram
from tangentkit.core.errors import BudgetError, DataError, InputError, NumericalError
from tangentkit.core.seeds import Key
from tangentkit.linalg import CG, DenseOperator, hutchinson_trace, solve, spectrum

MODEL = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)).double()


def test_half_of_a_symmetric_matrix_is_computed(tmp_path):
    kernel = Counted(Gaussian())
    gram(kernel, samples(10), store=tmp_path / "k", tile=2)
    tiles = [call for call in kernel._calls if call[:2] == ("tile", 2)]  # probes are larger
    assert len(tiles) == 5 * 6 // 2
    assert len(list((tmp_path / "k" / "gram" / "c").glob("*/*"))) == len(tiles)


def test_features_are_computed_once(tmp_path):
    kernel = CountedFeatures(Linear())
    gram(kernel, samples(60), samples(48, 1), store=tmp_path / "k", tile=12)
    assert sum(n for what, n, _ in kernel._calls if what == "features" and n == 12) == 108
    assert not any(what == "tile" for what, _, _ in kernel._calls)


def test_the_diagonal_of_a_normalized_kernel_is_computed_once(tmp_path):
    kernel = Counted(Gaussian())
    gram(kernel.normalized(), samples(60), store=tmp_path / "k", tile=12)
    assert sum(n for what, n, _ in kernel._calls if what == "diag" and n == 12) == 60


def test_a_second_call_computes_no_tile(tmp_path):
    kernel = Counted(Gaussian())
    first = gram(kernel, samples(27), store=tmp_path / "k", tile=12)
    done = len([c for c in kernel._calls if c[:2] == ("tile", 12)])
    second = gram(kernel, samples(27), store=tmp_path / "k")
    assert len([c for c in kernel._calls if c[:2] == ("tile", 12)]) == done == 5
    assert torch.equal(first.dense(), second.dense())


def test_zarr_reads_the_same_numbers(tmp_path):
    x = samples(7)
    G = gram(Linear(), x, samples(5, 1), store=tmp_path / "k", tile=3)
    group = zarr.open_group(str(tmp_path / "k"), mode="r")
    assert np.array_equal(np.asarray(group["gram"]), G.dense().numpy())
    assert np.array_equal(np.asarray(group["features-x"]), x.numpy())
    assert np.isnan(group["gram"].fill_value)


def test_a_tile_of_zeros_counts_as_written(tmp_path):
    kernel, x = Counted(Gaussian()), samples(24)
    x[12:] += 1e3  # far from the others: exp underflows to zero
    G = gram(kernel, x, store=tmp_path / "k", tile=12)
    assert torch.equal(G[:12, 12:], torch.zeros(12, 12, dtype=torch.float64))
    calls = len(kernel._calls)
    gram(kernel, x, store=tmp_path / "k")
    assert [c for c in kernel._calls[calls:] if c[:2] == ("tile", 12)] == []


def test_solvers_spectra_and_estimates_read_the_store(tmp_path):
    x = samples(60)
    G = gram(Gaussian(), x, store=tmp_path / "k", tile=16)
    K = matrix(Gaussian(), x)
    y = torch.sin(x[:, 0])
    # A budget below the matrix: nothing may hold it whole.
    found = solve(G, y, ridge=0.1, method=CG(rtol=1e-10, memory=K.nbytes // 2))
    assert found.converged
    assert (K @ found.value + 0.1 * found.value - y).norm() < 1e-9 * y.norm()
    values = spectrum(G, top=3, memory=K.nbytes // 2).values
    close(values, torch.linalg.eigvalsh(K).flip(0)[:3])
    guess = hutchinson_trace(G, samples=200, key=Key(0))
    assert abs(float(guess.value) - float(K.trace())) < 6 * float(guess.error)


OUT_OF_CORE = """
import re, sys
from contextlib import suppress
from pathlib import Path
import torch
from tangentkit.compute import open_gram
from tangentkit.core.errors import BudgetError
from tangentkit.core.seeds import Key
from tangentkit.linalg import CG, Auto, hutchinson_trace, hutchpp_trace, solve, spectrum

def peak():
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

budget = sys.argv[2]
G = open_gram(sys.argv[1])
y = torch.ones(G.shape[0])
hutchinson_trace(torch.ones(9, 9), samples=2, key=Key(0))  # what is loaded on the way
with suppress(OSError):
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
idle = peak()
assert solve(G, y, ridge=100.0, method=CG(rtol=1e-3, memory=budget)).converged
assert solve(G, y, ridge=100.0, method=Auto(memory=budget)).converged
spectrum(G, top=2, memory=budget)
hutchinson_trace(G, samples=2, key=Key(0))
hutchpp_trace(G, products=6, key=Key(0))
G.diagonal()
try:
    G.dense(budget)
except BudgetError as error:
    assert "144000000 bytes" in str(error)
else:
    raise AssertionError("the dense form fits the budget")
print(peak() - idle)
"""


@pytest.mark.slow
@pytest.mark.parametrize("tile", [512, 2048])
@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="only Linux tells the peak memory of a process"
)
def test_out_of_core_means_out_of_memory_too(tmp_path, tile):
    x = torch.randn(6000, 16, generator=torch.Generator().manual_seed(0))
    gram(Linear(), x, store=tmp_path / "k", tile=tile)
    words = [sys.executable, "-c", OUT_OF_CORE, str(tmp_path / "k"), "64MB"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=300)
    # The matrix itself has 144 MB.
    assert int(done.stdout) < 64e6


def test_dense_refuses_beyond_the_budget_with_the_bytes(tmp_path):
    G = gram(Gaussian(), samples(20), store=tmp_path / "k", tile=8)
    with pytest.raises(BudgetError, match=str(20 * 20 * 8)):
        G.dense(memory=20 * 20 * 8 - 1)


def test_memory_refuses_what_does_not_fit(monkeypatch):
    monkeypatch.setattr("tangentkit.core.memory.free_bytes", lambda *_: 4 * 1000)
    with pytest.raises(BudgetError, match=r"3200 bytes.*store="):
        gram(Gaussian(), samples(20))


def test_progress_counts_every_tile(tmp_path):
    heard = []
    kernel = Linear().normalized()
    gram(kernel, samples(5), store=tmp_path / "k", tile=2, progress=lambda *news: heard.append(news))
    stages = {stage: total for stage, _, total in heard}
    assert stages == {"features-b-x": 3, "scales-x": 3, "gram": 6}
    assert all((stage, total, total) in heard for stage, total in stages.items())


@pytest.mark.parametrize("tile", [0, -3, 2.5, "8", True])
def test_bad_tile_sizes_are_refused(tile):
    with pytest.raises(InputError, match="tile"):
        gram(Gaussian(), samples(3), tile=tile)


def test_what_is_no_kernel_or_no_engine_is_refused():
    with pytest.raises(InputError, match=r"not a kernel.*got function"):
        gram(lambda x, y: x @ y.T, samples(3))  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"not an engine.*'dask'"):
        gram(Gaussian(), samples(3), engine="dask")  # type: ignore[arg-type]


def test_half_precision_is_refused_with_a_way_out():
    with pytest.raises(InputError, match="float32"):
        gram(Linear().to(torch.float16), samples(3))


class Broken(Gaussian):
    """NaN for samples whose first coordinate is above 100."""

    def __call__(self, x, y=None):
        y = x if y is None else y
        bad = (x[:, None, 0] > 100) | (y[None, :, 0] > 100)
        return super().__call__(x, y).masked_fill(bad, torch.nan)


class BrokenPair(Gaussian):
    """NaN for one pair of samples."""

    def __call__(self, x, y=None):
        y = x if y is None else y
        return super().__call__(x, y).masked_fill((x[:, None, 0] == 200) & (y[None, :, 0] == 300), torch.nan)


@pytest.mark.parametrize("engine", [engines.Serial(), engines.Threads(2)])
def test_tiles_that_are_not_finite_are_refused_with_the_samples(tmp_path, engine):
    x = samples(24)  # more than are tried before
    x[5, 0] = 101
    with pytest.raises(NumericalError, match=r"samples \[5\] of x"):
        gram(Broken(), x, store=tmp_path / "k", tile=3, engine=engine)
    with pytest.raises(DataError, match="not complete"):
        open_gram(tmp_path / "k")
    x[5, 0], x[7, 0] = 200, 300
    with pytest.raises(NumericalError, match=r"samples 5 of x and 7 of x"):
        gram(BrokenPair(), x, store=tmp_path / "pair", tile=3, engine=engine)


def test_a_kernel_that_refuses_its_own_result_is_asked_which_samples(tmp_path):
    class Root(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3, dtype=torch.float64))

        def forward(self, x):
            # The square root has an infinite slope at zero.
            return (x @ self.weight).abs().sqrt()[:, None]

    x = samples(8)
    x[6] = torch.tensor([1.0, -1.0, 0.0])
    with pytest.raises(NumericalError, match=r"samples \[6\] of x"):
        gram(tk.TangentKernel(Root()), x, store=tmp_path / "k", tile=3)


def test_zeros_on_the_diagonal_of_a_normalized_kernel_are_named(tmp_path):
    x = samples(8)
    x[6] = 0
    with pytest.raises(NumericalError, match=r"samples \[6\] of x"):
        gram(Linear().normalized(), x, store=tmp_path / "k", tile=4)


def test_inputs_that_are_not_finite_are_placed(tmp_path):
    x = samples(8)
    x[6, 0] = torch.nan
    with pytest.raises(InputError, match=r"samples \[0, 1, 2, 3, 4, 5, 6, 7\] of x, counted .*\[6\]"):
        gram(tk.ConjugateKernel(MODEL), x, store=tmp_path / "k", tile=4)
    assert not (tmp_path / "k").exists()
    with pytest.raises(InputError, match=r"samples 4 to 7 of x.*\[2\]"):
        gram(tk.ConjugateKernel(MODEL), x, tile=4)


def test_in_memory_it_is_a_plain_matrix():
    G = gram(Gaussian(), samples(4))
    assert isinstance(G, DenseOperator)
