"""Sketches of single parameters, against the matrices that they are."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tangentkit.core.seeds import Key
from tangentkit.empirical.passes.layer_gradients import matrix_gradients
from tangentkit.sketch import SketchedTangentKernel
from tangentkit.sketch.methods import explicit, hashes, tensor
from tangentkit.sketch.methods.coordinates import Coordinates
from tangentkit.sketch.methods.explicit import CountSketch, GaussianSketch, RademacherSketch
from tangentkit.sketch.methods.hashes import as_distinct_places, as_places, normals, signs, words
from tangentkit.sketch.methods.tensor import TensorSketch, gradient_blocks

LIKE = torch.ones((), dtype=torch.float64)


def sketched(add, n, dim):
    """What `add` adds to the coordinates of n samples."""
    out = Coordinates(n, dim, like=LIKE)
    add(out)
    return out.sums()


def written_matrix(kind, key, size, dim):
    """The matrix (size, dim) of a sketch: its image of the unit vectors."""
    eye = torch.eye(size, dtype=torch.float64)
    return sketched(lambda out: kind(key, size, dim).add(out, eye), size, dim)


def tensor_matrix(key, dim, *, r, q, p):
    """The matrix (r, q, p, dim) of a TensorSketch: its image of every e_rj ⊗ e_i."""
    g = torch.eye(r * q, dtype=torch.float64).view(r * q, 1, 1, r, 1, q).repeat(1, p, 1, 1, 1, 1)
    a = torch.eye(p, dtype=torch.float64).view(1, p, 1, 1, p).repeat(r * q, 1, 1, 1, 1)
    sketch = TensorSketch(key, dim, p=p, q=q)
    found = sketched(lambda out: sketch.add(out, g.flatten(0, 1), a.flatten(0, 1), first=0), r * q * p, dim)
    return found.view(r, q, p, dim)


def test_random_numbers_have_the_moments_that_they_should():
    n = 40_000
    for values, fourth in ((signs(Key(0), n).double(), 1.0), (normals(Key(0), n), 3.0)):
        assert abs(values.mean()) <= 4 / math.sqrt(n)
        assert abs(values.square().mean() - 1) <= 4 * math.sqrt((fourth - 1) / n) + 1e-12
    counts = as_places(words(Key(0), n), 10).bincount(minlength=10).double()
    assert ((counts - n / 10).abs() <= 4 * math.sqrt(n * 0.09)).all()


@given(n=st.integers(1, 50), below=st.integers(1, 50), seed=st.integers(0, 2**40))
def test_distinct_places_are_distinct(n, below, seed):
    found = as_distinct_places(words(Key(seed), below), min(n, below))
    assert len(found.unique()) == len(found) == min(n, below)
    assert found.min() >= 0
    assert found.max() < below


@pytest.mark.parametrize("kind", [CountSketch, GaussianSketch, RademacherSketch])
def test_a_sketch_of_explicit_gradients_is_linear(kind):
    x = torch.randn(3, 70, dtype=torch.float64)
    key = Key(3).fold("w")
    found = sketched(lambda out: kind(key, 70, 32).add(out, x), 3, 32)
    torch.testing.assert_close(found, x @ written_matrix(kind, key, 70, 32))


@settings(max_examples=25, deadline=None)
@given(size=st.integers(1, 100), dim=st.integers(8, 40), seed=st.integers(0, 2**30))
def test_count_puts_every_entry_at_one_place_and_chunks_never_meet_themselves(size, dim, seed):
    matrix = written_matrix(CountSketch, Key(seed), size, dim).abs()
    rounded = matrix.round()
    torch.testing.assert_close(matrix, rounded)
    assert (rounded.sum(1) == 1).all()
    for chunk in rounded.split(dim):
        assert (chunk.sum(0) <= 1).all()


@pytest.mark.parametrize("few", [0, 10**9])
@pytest.mark.parametrize(("n", "size", "dim", "run"), [(3, 70, 8, 20), (1, 7, 16, 64), (2, 200, 17, 17)])
def test_count_does_not_depend_on_how_it_is_added(monkeypatch, few, n, size, dim, run):
    monkeypatch.setattr(explicit, "FEW", few)
    monkeypatch.setattr(explicit, "RUN", run)
    x, sketch = torch.randn(n, size, dtype=torch.float64), CountSketch(Key(5), size, dim)
    rotations, drawn = sketch.draw()
    expected = torch.zeros(n, dim, dtype=torch.float64)
    for i in range(size):
        expected[:, (i % dim + rotations[i // dim]) % dim] += drawn[i] * x[:, i]
    torch.testing.assert_close(sketched(lambda out: sketch.add(out, x), n, dim), expected)


def test_entries_of_different_chunks_meet_once_in_dim():
    dim, seeds = 8, 4000
    meetings = sum(
        int(rotation[0] == rotation[1])
        for rotation in (CountSketch(Key(seed), 2 * dim, dim).draw()[0] for seed in range(seeds))
    )
    assert abs(meetings - seeds / dim) <= 4 * math.sqrt(seeds / dim)


def test_rows_of_a_table_are_counted_as_the_table_is():
    rows = torch.tensor([[0, 5, 5], [2, -1, 6]])
    g = torch.randn(2, 3, 4, dtype=torch.float64)
    table = torch.zeros(2, 7, 4, dtype=torch.float64)
    for i, s in itertools.product(range(2), range(3)):
        if rows[i, s] >= 0:
            table[i, rows[i, s]] += g[i, s]
    sketch = CountSketch(Key(1), 28, 16)
    torch.testing.assert_close(
        sketched(lambda out: sketch.add_rows(out, rows, g), 2, 16),
        sketched(lambda out: sketch.add(out, table.flatten(1)), 2, 16),
    )


@settings(max_examples=20, deadline=None)
@given(
    p=st.integers(1, 20),
    q=st.integers(1, 20),
    r=st.integers(1, 4),
    dim=st.integers(8, 17),
    seed=st.integers(0, 2**30),
)
def test_tensor_puts_every_product_at_one_place_and_rows_and_columns_never_meet_themselves(
    p, q, r, dim, seed
):
    matrix = tensor_matrix(Key(seed), dim, r=r, q=q, p=p)
    rounded = matrix.abs().round()
    torch.testing.assert_close(matrix.abs(), rounded, atol=1e-9, rtol=0)
    assert (rounded.sum(-1) == 1).all()
    # Entries that share i, or share (direction, j), and lie in one block.
    blocks = gradient_blocks(0, r, q, dim)
    for block, start in itertools.product(blocks, range(0, p, dim)):
        piece = rounded[block.directions, block.entries, start : start + dim].flatten(0, 1)
        assert (piece.sum(0) <= 1).all()
        assert (piece.sum(1) <= 1).all()


@pytest.mark.parametrize("h", [1, 3])
def test_tensor_is_linear_in_the_gradient_that_it_never_builds(h):
    n, r, s, q, p, dim = 2, 3, 5, 6, 21, 16
    g, a = torch.randn(n, h, r, s, q).double(), torch.randn(n, h, s, p).double()
    sketch = TensorSketch(Key(2), dim, p=p, q=q)
    found = sketched(lambda out: sketch.add(out, g, a, first=0), n, dim)
    built = matrix_gradients(g, a)  # (n, r, h, q, p)
    # Heads have placements of their own; that of the first is the matrix above.
    alone = sketched(lambda out: sketch.add(out, g[:, :1], a[:, :1], first=0), n, dim)
    matrix = tensor_matrix(Key(2), dim, r=r, q=q, p=p)
    torch.testing.assert_close(alone, torch.einsum("nrqp,rqpd->nd", built[:, :, 0], matrix))
    assert (h == 1) == torch.allclose(found, alone)


def test_directions_may_come_in_groups():
    n, r, s, q, p, dim = 2, 7, 3, 5, 9, 16
    g, a = torch.randn(n, 1, r, s, q).double(), torch.randn(n, 1, s, p).double()
    sketch = TensorSketch(Key(2), dim, p=p, q=q)

    def in_groups(out):
        for first, last in ((0, 2), (2, 3), (3, 7)):
            sketch.add(out, g[:, :, first:last], a, first=first)

    whole = sketched(lambda out: sketch.add(out, g, a, first=0), n, dim)
    torch.testing.assert_close(sketched(in_groups, n, dim), whole)


def test_a_core_is_a_sample_with_products_of_its_bases():
    k, lanes, r, q, p, n, dim = 3, 4, 2, 6, 9, 5, 16
    u, b, core = (
        torch.randn(k, r, q).double(),
        torch.randn(lanes, p).double(),
        torch.randn(n, k, lanes).double(),
    )
    sketch = TensorSketch(Key(2), dim, p=p, q=q)
    g = u.transpose(0, 1)[None, None].expand(n, -1, -1, -1, -1)
    torch.testing.assert_close(
        sketched(lambda out: sketch.add_core(out, u, b, core), n, dim),
        sketched(lambda out: sketch.add(out, g, (core @ b)[:, None], first=0), n, dim),
    )


def variance(matrices, x, y):
    """Of <Sx, Sy> over sketches."""
    return torch.stack([(x @ m) @ (y @ m) for m in matrices]).var()


def test_hash_sketches_vary_no_more_than_a_gaussian_one_even_where_factors_are_alike():
    # The case that is worst for independent hashes, which vary three times as much: x = y = g ⊗ a.
    dim, q, p, seeds = 16, 12, 12, 600
    x = torch.ones(q * p).double()
    law = 2 * (x @ x) ** 2 / dim
    tensor = variance(
        (tensor_matrix(Key(s), dim, r=1, q=q, p=p).view(q * p, dim) for s in range(seeds)), x, x
    )
    count = variance((written_matrix(CountSketch, Key(s), q * p, dim) for s in range(seeds)), x, x)
    for found in (tensor, count):
        # The standard error of a variance; tails are heavier than normal, hence the margin.
        assert found <= law * (1 + 6 * math.sqrt(2 / seeds))


def test_no_two_addresses_share_numbers_at_any_dim():
    dim = 12_000
    keys = [
        Key(0).fold("half", half).fold(name, "count", direction)
        for half in (0, 1)
        for name in ("1.weight", "11.weight", "1.weight1")
        for direction in (0, 1, 10)
    ]
    keys += [Key(1).fold("half", 0).fold("1.weight", "count", 0)]
    drawn = [CountSketch(key, 30_000, dim).draw()[1] for key in keys]
    for one, other in itertools.combinations(drawn, 2):
        # Independent signs agree in half of the places, give or take.
        assert abs(int((one == other).sum()) - 15_000) <= 6 * math.sqrt(30_000) / 2
    # Blocks of one parameter too: all chunks of its signs differ.
    for one, other in itertools.combinations(drawn[0][:24_000].view(2, dim), 2):
        assert abs(int((one == other).sum()) - dim / 2) <= 6 * math.sqrt(dim) / 2
    dense = GaussianSketch(Key(0).fold("w"), 4096, dim)
    blocks = [dense.draw(dense.key.fold("block", block), 20_000) for block in range(4)]
    for one, other in itertools.combinations(blocks, 2):
        assert abs(one @ other) <= 6 * math.sqrt(20_000)


@pytest.mark.parametrize(
    ("sketch", "inputs", "outputs"),
    [
        ("count", 13_000, "trace"),
        ("tensor", 13_000, "trace"),
        ("rademacher", 400, 0),
        ("gaussian", 30, 0),
    ],
)
def test_no_random_number_of_a_whole_model_is_used_twice(monkeypatch, sketch, inputs, outputs):
    drawn = []

    def spied(key, n):
        drawn.append(words(key, n))
        return drawn[-1]

    for module in (hashes, explicit, tensor):
        monkeypatch.setattr(module, "words", spied)
    model = nn.Sequential(nn.Linear(inputs, 3), nn.Tanh(), nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2))
    # All but the Gaussian, which would draw for minutes, cut gradients of the first weight into several blocks.
    SketchedTangentKernel(model, 10_002, outputs, sketch).features(torch.randn(3, inputs))
    assert len(drawn) >= 2 * 6 * (2 if outputs == "trace" else 1)
    together = np.concatenate(drawn)
    # Two of these 64-bit words agree by chance less than once in a hundred million runs.
    assert len(np.unique(together)) == len(together)
