"""Laws of stores: a Gram matrix is what the kernel gives, whoever computes it and wherever it is kept."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import tangentkit as tk
from compute.toy_kernels import Blocks, Gaussian, Linear, close, matrix, samples
from tangentkit.compute import engines, gram, open_gram

MODEL = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)).double()
RECTIFIED = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)).double()
BETWEEN = torch.tensor([[2.0, 0.5], [0.5, 1.0]], dtype=torch.float64)
KERNELS = {
    "gaussian": Gaussian(),
    "features": Linear(),
    "blocks": Blocks(BETWEEN),
    "normalized": Linear().normalized(),
    "normalized blocks": Blocks(BETWEEN).normalized(),
    "sum": 2.0 * Gaussian() + Linear().normalized() + Linear(),
    "cast": Linear().to(torch.float32),
    "trace": tk.TangentKernel(MODEL),
    "full": tk.TangentKernel(MODEL, "full"),
    "pseudo": tk.TangentKernel(MODEL, "pseudo"),
    "one output": tk.TangentKernel(MODEL, 1),
    "conjugate": tk.ConjugateKernel(MODEL, bias=True),
    "embedding": tk.EmbeddingKernel(MODEL).normalized(),
    "sketched": tk.SketchedTangentKernel(MODEL, 32),
    "sketched, count": tk.SketchedTangentKernel(MODEL, 32, "pseudo", "count").normalized(),
    "infinite": tk.InfiniteKernel(RECTIFIED),
    "infinite, composed": 0.5 * tk.InfiniteKernel(RECTIFIED, "nngp").normalized() + tk.TangentKernel(MODEL),
    "monte carlo": tk.MonteCarloKernel(
        lambda: nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1)).double(), 2, kernel=tk.ConjugateKernel
    ),
}


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("where", ["memory", "tiles", "threads", "store", "store by threads"])
@pytest.mark.parametrize("square", [True, False])
def test_a_gram_matrix_is_what_the_kernel_gives_wherever_it_is_kept(name, where, square, tmp_path):
    kernel, x = KERNELS[name], samples(7)
    y = None if square else samples(5, 1)
    options = {
        "memory": {},
        "tiles": {"tile": 3},
        "threads": {"tile": 3, "engine": engines.Threads(3)},
        "store": {"tile": 3, "store": tmp_path / "k.zarr"},
        "store by threads": {"tile": 3, "store": tmp_path / "k.zarr", "engine": engines.Threads(3)},
    }[where]
    G = gram(kernel, x, y, **options)
    expected = matrix(kernel, x, y)
    assert G.shape == tuple(expected.shape)
    assert G.symmetric == square
    close(G.dense(), expected)
    close(G[1:4, 2:5], expected[1:4, 2:5])
    close(G.diagonal(), expected.diagonal())
    v = torch.arange(expected.shape[1] * 2, dtype=expected.dtype).reshape(-1, 2)
    close(G @ v, expected @ v)
    if "store" in options:
        close(open_gram(options["store"]).dense(), expected)


@pytest.mark.parametrize("name", KERNELS)
def test_an_interrupted_store_goes_on_to_the_same_bytes(name, tmp_path):
    kernel, x = KERNELS[name], samples(7)
    gram(kernel, x, store=tmp_path / "whole", tile=3)
    expected = {p.relative_to(tmp_path / "whole"): p.read_bytes() for p in files_of(tmp_path / "whole")}

    def stop(stage: str, done: int, total: int) -> None:
        if stage == "gram" and done == total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gram(kernel, x, store=tmp_path / "k", tile=3, progress=stop)
    assert 0 < len(list((tmp_path / "k" / "gram" / "c").glob("*/*"))) < 6
    assert not (tmp_path / "k" / "lock.json").exists()
    gram(kernel, x, store=tmp_path / "k", engine=engines.Threads(2))
    assert {p.relative_to(tmp_path / "k"): p.read_bytes() for p in files_of(tmp_path / "k")} == expected


def files_of(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 12), st.booleans(), st.data())
def test_a_stored_matrix_of_any_size_in_any_tiles_is_the_dense_one(
    tmp_path_factory, n, m, tile, square, data
):
    kernel = data.draw(st.sampled_from([Gaussian(), Linear().normalized(), Blocks(BETWEEN)]))
    x, y = samples(n), None if square else samples(m, 1)
    expected = matrix(kernel, x, y)
    folder = tmp_path_factory.mktemp("any") / "k"
    G = gram(kernel, x, y, store=folder, tile=tile)
    close(G.dense(), expected)
    rows = sorted(data.draw(st.tuples(*[st.integers(0, expected.shape[0])] * 2)))
    cols = sorted(data.draw(st.tuples(*[st.integers(0, expected.shape[1])] * 2)))
    close(G[rows[0] : rows[1], cols[0] : cols[1]], expected[rows[0] : rows[1], cols[0] : cols[1]])
