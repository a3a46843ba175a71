"""Neighbors are the largest entries of the kernel matrix, however it is cut into tiles."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import tangentkit as tk
from tangentkit.core import InputError, NumericalError
from tangentkit.linalg import as_operator


def reference_neighbors(K, k):
    """Sorted by falling value and rising index, the slow way."""
    rows = [sorted(range(K.shape[1]), key=lambda j: (-row[j].item(), j))[:k] for row in K]
    return torch.tensor(rows), torch.stack([row[order] for row, order in zip(K, rows, strict=True)])


class Table(tk.compute.Kernel):
    """A kernel given by a table: samples are numbers of rows."""

    def __init__(self, table):
        self.table, self.asked = table, []

    def __call__(self, x, y=None):
        self.asked.append((len(x), len(x if y is None else y)))
        return self.table[x[:, 0]][:, (x if y is None else y)[:, 0]]

    def diag(self, x):
        return self.table.diagonal()[x[:, 0]]


def numbers(n, start=0):
    return torch.arange(start, start + n)[:, None]


@pytest.mark.parametrize("side", [3, 7, 100])
@pytest.mark.parametrize("k", [1, 5, 20])
def test_of_all_tiles_and_ties(monkeypatch, side, k):
    monkeypatch.setattr("tangentkit.surrogate.cross_matrix.MAX_SIDE", side)
    table = torch.randint(4, (30, 30)).double()  # many ties
    kernel = Table(table + table.T)
    found = tk.neighbors(kernel, numbers(10), numbers(20, 10), k)
    indices, values = reference_neighbors((table + table.T)[:10, 10:], k)
    assert torch.equal(found.indices, indices)
    assert torch.equal(found.values, values)
    assert max(max(shape) for shape in kernel.asked) <= side
    assert repr(found) == f"Neighbors(k={k}, samples=10, training samples=20)"


@pytest.mark.parametrize(
    "make",
    [
        tk.TangentKernel,
        lambda m: tk.TangentKernel(m).normalized(),
        tk.ConjugateKernel,
        lambda m: tk.ConjugateKernel(m).normalized() + tk.TangentKernel(m),
    ],
)
def test_of_kernels_of_networks(monkeypatch, make):
    monkeypatch.setattr("tangentkit.surrogate.cross_matrix.MAX_SIDE", 4)
    kernel = make(nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)).double())
    x, train = torch.randn(6, 3).double(), torch.randn(11, 3).double()
    indices, values = reference_neighbors(kernel(x, train), 3)
    found = tk.neighbors(kernel, x, TensorDataset(train, torch.arange(11)), 3)
    assert torch.equal(found.indices, indices)
    torch.testing.assert_close(found.values, values)
    again = tk.neighbors(tk.gram(kernel, x, train), k=3)
    assert torch.equal(again.indices, indices)


def test_features_of_the_training_samples_are_made_once(monkeypatch):
    monkeypatch.setattr("tangentkit.surrogate.cross_matrix.MAX_SIDE", 2)
    seen = []

    class Linear(Table):
        def features(self, x):
            seen.append(len(x))
            return x.double()

    tk.neighbors(Linear(torch.eye(2)), numbers(8), numbers(10), 2)
    assert sum(seen) == 18


def test_a_whole_number_of_numpy_is_a_number_of_neighbors():
    kernel, x = tk.ConjugateKernel(nn.Linear(3, 2)), torch.rand(4, 3)
    assert torch.equal(tk.neighbors(kernel, x, x, np.int64(2)).indices, tk.neighbors(kernel, x, x, 2).indices)


def test_bad_numbers_of_neighbors_are_refused():
    kernel, x = tk.ConjugateKernel(nn.Linear(3, 2)), torch.rand(4, 3)
    for k in (0, 5, -1, 2.0, True):
        with pytest.raises(InputError, match="bad number of neighbors: expected an integer from 1 to 4"):
            tk.neighbors(kernel, x, x, k)
    with pytest.raises(InputError, match="a kernel between outputs"):
        tk.neighbors(tk.TangentKernel(nn.Linear(3, 2), "full"), x, x, 1)
    with pytest.raises(InputError, match=r"neighbors\(kernel, x, train, k\)"):
        tk.neighbors(kernel, x)
    with pytest.raises(InputError, match="samples beside it"):
        tk.neighbors(as_operator(torch.eye(3)), x, x, 1)
    with pytest.raises(InputError, match="expected a kernel or an operator, got Linear"):
        tk.neighbors(nn.Linear(3, 2), x, x, 1)
    bad = torch.zeros(4, 4)
    bad[1, 2] = torch.nan
    with pytest.raises(NumericalError, match=r"\[\(1, 2\)\]"):
        tk.neighbors(Table(bad), numbers(4), numbers(4), 2)
