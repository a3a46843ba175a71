"""Each formula gives what torch gives."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import nn
from torch.nn import functional as F

from tangentkit.linearized.substitutes import Substitutes


def draws(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).double()


def agree(function):
    """Whether a function is the same, to rounding, with substitutes."""
    with Substitutes():
        found = function()
    torch.testing.assert_close(found, function(), rtol=1e-12, atol=1e-13)


@given(
    bags=st.lists(st.lists(st.integers(0, 5), min_size=0, max_size=4), min_size=1, max_size=4),
    mode=st.sampled_from(["sum", "mean", "max"]),
    padding=st.sampled_from([None, 0, 3, -1]),
    last=st.booleans(),
    weighted=st.booleans(),
)
@settings(deadline=None, max_examples=60)
def test_embedding_bag_with_offsets(bags, mode, padding, last, weighted):
    table, flat = draws(6, 3), torch.tensor([i for bag in bags for i in bag], dtype=torch.long)
    ends = torch.tensor([0, *[len(bag) for bag in bags]]).cumsum(0)
    weights = draws(len(flat), seed=1) if weighted and mode == "sum" else None
    offsets = ends if last else ends[:-1]
    agree(
        lambda: F.embedding_bag(
            flat,
            table,
            offsets,
            mode=mode,
            padding_idx=padding,
            include_last_offset=last,
            per_sample_weights=weights,
        )
    )


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 2])
def test_embedding_bag_of_rows(mode, padding):
    indices = torch.tensor([[0, 2, 2], [1, 4, 2], [2, 2, 2]])
    agree(lambda: F.embedding_bag(indices, draws(5, 3), mode=mode, padding_idx=padding))


@pytest.mark.parametrize("p", [0.5, 1.0, 2.0, 3.0, float("inf")])
def test_derivatives_of_distances_agree(p):
    a, b = draws(2, 4, 3), draws(2, 5, 3, seed=1)
    agree(lambda: torch.cdist(a, b, p=p))
    agree(lambda: torch.cdist(a[0], a[0], p=p, compute_mode="donot_use_mm_for_euclid_dist"))


def test_distance_zero_has_derivative_zero():
    a = draws(3, 2).requires_grad_()
    with Substitutes():
        (gradient,) = torch.autograd.grad(torch.cdist(a, a.detach()).diagonal().sum(), a)
    assert torch.equal(gradient, torch.zeros(3, 2).double())


@pytest.mark.parametrize("dim", [0, 1, None])
def test_derivatives_of_weight_norm_agree(dim):
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(4, 3).double(), dim=dim)
    agree(lambda: layer(draws(2, 4)))


@pytest.mark.parametrize(
    "layer",
    [
        nn.LayerNorm(4), nn.LayerNorm((3, 4), bias=False), nn.LayerNorm(4, elementwise_affine=False, eps=0.1),
        nn.InstanceNorm1d(3, affine=True), nn.InstanceNorm1d(3), nn.InstanceNorm1d(3, track_running_stats=True),
        nn.GLU(-1), nn.GLU(2), nn.LSTM(4, 2, bidirectional=True), nn.GRU(4, 2, 2), nn.RNN(4, 3),
    ],
    ids=str,
)  # fmt: skip
def test_derivatives_of_layers_agree(layer):
    layer = layer.double().eval()
    for p in layer.parameters():
        nn.init.normal_(p)
    agree(lambda: layer(draws(2, 3, 4)))


@pytest.mark.parametrize("padding", [0, -1])
def test_embedding_with_padding(padding):
    layer = nn.Embedding(5, 3, padding_idx=padding).double()
    nn.init.normal_(layer.weight)
    agree(lambda: layer(torch.tensor([[0, 4], [1, 0]])))


def test_the_switches_of_torch_are_put_back_even_after_an_error():
    before = torch.backends.mkldnn.enabled, torch.backends.cudnn.enabled
    with Substitutes(), pytest.raises(RuntimeError):
        nn.LSTM(4, 2)(torch.ones(2, 3, 5))
    assert (torch.backends.mkldnn.enabled, torch.backends.cudnn.enabled) == before
