"""Whose matrix is it? A store of another one is an error that says what differs."""

import os
import re
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import tangentkit as tk
from compute.toy_kernels import Gaussian
from tangentkit.compute import gram, open_gram
from tangentkit.core.errors import DataError


def samples(n: int = 7, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def contents(store: Path) -> dict[str, bytes]:
    return {str(p.relative_to(store)): p.read_bytes() for p in sorted(store.rglob("*")) if p.is_file()}


class Net(nn.Module):
    """A network with an option that its printed form does not show."""

    def __init__(self, slope: float = 1.0, seed: int = 0):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.first = nn.Linear(3, 4, dtype=torch.float64)
        self.last = nn.Linear(4, 2, dtype=torch.float64)
        self.slope = slope
        self.register_buffer("shift", torch.zeros(4, dtype=torch.float64))
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(torch.randn(p.shape, generator=generator, dtype=p.dtype))

    def forward(self, x):
        return self.last(torch.tanh(self.slope * self.first(x)) + self.shift)


class OtherNet(Net):
    """The same parameters, other code."""

    def forward(self, x):
        return self.last(torch.sin(self.slope * self.first(x)) + self.shift)


OtherNet.__qualname__ = "Net"
OtherNet.__name__ = "Net"


def shifted_net() -> Net:
    net = Net()
    net.shift += 1
    return net


FACTOR = 2.0


def doubled(model, batch):
    return FACTOR * model(batch)


def tangent(net: nn.Module | None = None, *args, **options) -> tk.TangentKernel:
    return tk.TangentKernel(net or Net(), *args, memory="100MB", **options)


ELSE = "same weights, but the model computes something else: probe entries differ by"
OTHERS = {
    "another model": (
        (tangent(Net(seed=1)), samples()),
        "the weights differ (4 of 4 parameters, first: first.weight)",
    ),
    "other buffers": (
        (tangent(shifted_net()), samples()),
        "the buffers differ (1 of 1 buffers, first: shift)",
    ),
    "other code": ((tangent(OtherNet()), samples()), ELSE),
    "a hidden option": ((tangent(Net(slope=2.0)), samples()), ELSE),
    "other outputs": ((tangent(None, "pseudo"), samples()), "kernel.outputs was trace, is pseudo"),
    "other parameters": (
        (tangent(params=["last.weight"]), samples()),
        "kernel.function.params was all, is ['last.weight']",
    ),
    "another forward": ((tangent(forward=doubled), samples()), ELSE),
    "another seed": (
        (tangent(probes=3, seed=1), samples()),
        "kernel.probes was None, is 3; kernel.seed was 0, is 1",
    ),
    "another kernel": (
        (tangent().normalized(), samples()),
        "kernel was a TangentKernel, is a NormalizedKernel",
    ),
    "another factor": ((2.0 * tangent(), samples()), "kernel was a TangentKernel, is a ScaledKernel"),
    "another dtype": ((tangent().to(torch.float32), samples()), "dtype was float64, is float32"),
    "other data": ((tangent(), samples(seed=1)), "the samples differ: x has other values"),
    "more data": (
        (tangent(), samples(8)),
        "the samples differ: x was 7 of float64 (n, 3), is 8 of float64 (n, 3)",
    ),
    "other form": (
        (tangent(forward=lambda model, x: model(x.flatten(1))), samples().reshape(7, 1, 3)),
        "the samples differ: x was 7 of float64 (n, 3), is 7 of float64 (n, 1, 3)",
    ),
    "another order": ((tangent(), samples().flip(0)), "the samples differ: x has another order"),
    "two sides": (
        (tangent(), samples(), samples()),
        "the samples differ: the store has no y; symmetric was True, is False",
    ),
}


@pytest.fixture(scope="module")
def tangent_store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whose") / "k.zarr"
    gram(tangent(), samples(), store=folder, tile=4)
    return folder


@pytest.mark.parametrize("case", OTHERS)
def test_another_matrix_is_an_error_that_says_what_differs(tangent_store, case):
    (kernel, *data), words = OTHERS[case]
    before = contents(tangent_store)
    with pytest.raises(DataError, match=f"another Gram matrix: .*{re.escape(words)}"):
        gram(kernel, *data, store=tangent_store)
    assert contents(tangent_store) == before


def test_another_tile_size_is_an_error(tangent_store):
    with pytest.raises(DataError, match="another Gram matrix: tile was 4, is 3"):
        gram(tangent(), samples(), store=tangent_store, tile=3)


@pytest.mark.parametrize("library", ["tangentkit", "torch"])
def test_another_version_is_an_error(tangent_store, monkeypatch, library):
    monkeypatch.setattr(sys.modules[library], "__version__", "99")
    with pytest.raises(DataError, match=rf"library\.{library} was .*, is 99"):
        gram(tangent(), samples(), store=tangent_store)
    assert open_gram(tangent_store).shape == (7, 7)  # to read it needs no agreement


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"seed": 1}, "seed"),
        ({"dim": 64}, "dim"),
        ({"sketch": "count"}, "sketch"),
        ({"outputs": 1}, "outputs"),
    ],
)
def test_seed_and_options_of_a_sketch_count(tmp_path, options, name):
    def sketched(**options):
        return tk.SketchedTangentKernel(Net(), **{"dim": 32, "sketch": "tensor", **options})

    gram(sketched(), samples(), store=tmp_path / "k", tile=4)
    with pytest.raises(DataError, match=rf"another Gram matrix: .*kernel\.{name} was"):
        gram(sketched(**options), samples(), store=tmp_path / "k")
    gram(sketched(), samples(), store=tmp_path / "k")


def test_the_same_matrix_from_new_objects_is_the_same(tangent_store):
    before = contents(tangent_store)
    gram(tangent(Net()), samples().clone(), store=tangent_store)
    assert contents(tangent_store) == before


def test_training_the_model_later_does_not_change_a_kernel(tangent_store):
    net = Net()
    kernel = tangent(net)
    with torch.no_grad():
        net.first.weight.zero_()
    before = contents(tangent_store)
    gram(kernel, samples(), store=tangent_store)
    assert contents(tangent_store) == before


def test_a_kernel_need_not_say_what_it_is(tmp_path):
    """Its values do; see also the tests of probes."""
    kernel = Gaussian()
    with open(os.devnull) as kernel.source:
        gram(kernel, samples(), store=tmp_path / "k")
        gram(kernel, samples(), store=tmp_path / "k")
