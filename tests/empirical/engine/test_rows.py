"""Tiles of one row: the left side goes through the model once."""

import pytest
import torch

from cases import CASES, gap
from tangentkit import gram
from tangentkit.compute.probes import SAMPLES
from tangentkit.core.batches import batch_size, take
from tangentkit.empirical.engine import engine
from tangentkit.empirical.passes.batching import Batching
from tangentkit.empirical.passes.recording import Recording

NAMES = [
    "mlp", "conv2d groups", "linear over tokens", "embedding", "tied embedding and head", "weight norm", "gru",
    "bilinear",
]  # fmt: skip


@pytest.fixture
def passes(monkeypatch):
    """Samples that went backward, in every direction."""
    counted, real = [], Recording.backward

    def backward(self, directions, *layers):
        counted.append(self.n * len(directions))
        return real(self, directions, *layers)

    monkeypatch.setattr(Recording, "backward", backward)
    return counted


def in_pieces_of(samples, monkeypatch, directions=None):
    monkeypatch.setattr(
        engine, "batching", lambda _foot, work, *_: Batching(samples, directions or work.r, samples)
    )


@pytest.mark.parametrize("outputs", ["trace", "full"])
@pytest.mark.parametrize("name", NAMES)
def test_a_row_is_what_the_kernel_gives(name, outputs):
    case = CASES[name]
    kernel, (x, y) = case.kernel(outputs), case.batches()
    row = kernel.row(x)
    ends = [slice(0, 1), slice(1, batch_size(y)), slice(0, 2)]
    for part in (take(y, end) for end in ends):
        assert gap(row(part), kernel(x, part)) <= 1e-12
    assert gap(row(), kernel(x)) <= 1e-12
    assert gap(row(y), kernel(x, y)) <= 1e-12


def test_a_row_goes_through_the_model_once(passes):
    kernel, (x, y) = CASES["mlp"].kernel(), CASES["mlp"].batches()
    kernel(x, y)
    passes.clear()  # those of learning the model
    kernel(x, y)
    both = sum(passes)
    row = kernel.row(x)
    row(y)
    passes.clear()
    row(y)
    assert sum(passes) * (len(x) + len(y)) == both * len(y)


def test_pieces_of_a_kernel_go_through_the_model_once_a_row(passes, monkeypatch):
    """Three pieces: three on the diagonal, and three right sides below it."""
    kernel, (x, _) = CASES["mlp"].kernel(), CASES["mlp"].batches()
    x = torch.cat([x, 2 * x, -x])  # repeated samples would prove nothing of their order
    whole = kernel(x)
    passes.clear()
    in_pieces_of(-(-len(x) // 3), monkeypatch)
    assert gap(kernel(x), whole) <= 1e-12
    assert sum(passes) == 6 * len(x) // 3 * whole_outputs(kernel, x)


def test_groups_of_directions_are_not_remembered(passes, monkeypatch):
    kernel, (x, y) = CASES["mlp"].kernel(), CASES["mlp"].batches()
    expected = kernel(x, y)
    in_pieces_of(len(x), monkeypatch, directions=1)
    row = kernel.row(x)
    for _ in range(2):
        assert gap(row(y), expected) <= 1e-12
    assert len(passes) >= 4


def test_a_stored_matrix_takes_its_rows_from_left_to_right(passes, tmp_path):
    kernel, (x, _) = CASES["mlp"].kernel(), CASES["mlp"].batches()
    x = torch.cat([x, 2 * x, -x])  # repeated samples would prove nothing of their order
    whole, outputs = kernel(x), whole_outputs(kernel, x)
    passes.clear()
    size = -(-len(x) // 3)
    found = gram(kernel, x, store=tmp_path / "k.zarr", tile=size)
    assert gap(found.dense(), whole) <= 1e-12
    # Three on the diagonal, three right sides; others tell the form of the matrix, or are probes of the store.
    assert passes.count(size) == 6 * outputs
    assert set(passes) <= {1, size, SAMPLES // 2, SAMPLES}


def whole_outputs(kernel, x):
    return kernel.function(kernel.function.params, x).shape[1]
