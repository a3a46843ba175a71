"""Initializations by their moments, with bounds from the standard error."""

from functools import partial
from math import sqrt
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import nn

from tangentkit.core import InputError, Key, ModelError
from tangentkit.models import inits

LAYERS = {
    "linear": (partial(nn.Linear, 300, 400), 300, 400),
    "conv": (partial(nn.Conv2d, 12, 500, 5), 300, 12_500),
    "groups": (partial(nn.Conv2d, 24, 800, 3, groups=2), 108, 7_200),
    "conv1d": (partial(nn.Conv1d, 100, 400, 3), 300, 1_200),
}
"""Layers, their fan_in and fan_out."""

TRUNCATED = stats.truncnorm(-2, 2)
KURTOSIS = {"uniform": 1.8, "normal": 3.0, "truncated": float(TRUNCATED.stats("k")) + 3}


class Promise(NamedTuple):
    """What an init promises of a layer."""

    init: inits.Init
    shape: str
    weight_variance: float
    bias_variance: float = 0.0
    bound: float | None = None


def promises(i, o):
    """The promise of each init for a layer of fan_in `i` and fan_out `o`."""
    yang_salman = partial(inits.yang_salman, sigma_w=1.5, sigma_b=0.3)
    small = partial(inits.truncated_normal, std=0.02)
    return {
        "pytorch_default": Promise(inits.pytorch_default, "uniform", 1 / (3 * i), 1 / (3 * i), 1 / sqrt(i)),
        "lecun_normal": Promise(inits.lecun_normal, "truncated", 1 / i, bound=2 / sqrt(i) / 0.87963),
        "glorot": Promise(inits.glorot, "normal", 2 / (i + o)),
        "yang_salman": Promise(yang_salman, "normal", 1.5**2 / i, 0.3**2),
        "standard_normal": Promise(inits.standard_normal, "normal", 1.0, 1.0),
        "truncated_normal": Promise(small, "truncated", (0.02 * 0.87963) ** 2, bound=2 * 0.02),
    }


INITS = {name: promise.init for name, promise in promises(1, 1).items()}


def check_moments(values, variance, kurtosis):
    """Mean 0 and the variance within 5 standard errors: s/√N, and s² √((κ - 1)/N)."""
    n = values.numel()
    assert values.mean().abs() <= 5 * sqrt(variance / n)
    assert abs(values.var() - variance) <= 5 * variance * sqrt((kurtosis - 1) / n)


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("name", INITS)
def test_weights_have_the_moments_that_are_promised(name, layer):
    build, *fans = LAYERS[layer]
    promise = promises(*fans)[name]
    module = promise.init(build(dtype=torch.float64), Key(0))
    check_moments(module.weight.detach(), promise.weight_variance, KURTOSIS[promise.shape])
    check_moments(module.bias.detach(), promise.bias_variance, KURTOSIS[promise.shape])
    if promise.bound is not None:
        largest = module.weight.abs().max().item()
        assert 0.99 * promise.bound < largest <= 1.00001 * promise.bound


def test_arora_is_standard_normal_without_biases():
    module = inits.arora_ntk(nn.Linear(300, 400, bias=False, dtype=torch.float64), Key(0))
    check_moments(module.weight.detach(), 1.0, 3.0)
    model = nn.Sequential(nn.Linear(2, 3, bias=False), nn.Linear(3, 1))
    before = model[0].weight.clone()
    with pytest.raises(ModelError, match="'1' has a bias"):
        inits.arora_ntk(model, Key(0))
    assert torch.equal(model[0].weight, before)


def test_the_truncated_constant():
    assert abs(TRUNCATED.std() - inits.TRUNCATED_STD) < 1e-12


@pytest.mark.parametrize("seed", [5, Key(5), Key(5, ("run", 1))])
def test_reproducible_and_independent(seed):
    def build(seed):
        return inits.standard_normal(nn.Sequential(*(nn.Linear(200, 200) for _ in range(3))).double(), seed)

    first, again, other = build(seed), build(seed), build(Key(6))
    for a, b in zip(first.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b)
    # Correlations of independent N(0, 1) samples have standard error 1/√N.
    weights = [layer.weight.detach().flatten() for layer in (*first, *other)]
    correlations = torch.corrcoef(torch.stack(weights)) - torch.eye(6)
    assert correlations.abs().max() < 5 / sqrt(200 * 200)


def test_streams_belong_to_names():
    """A layer keeps its weights when others come or go, or when the dtype of others changes."""
    small = nn.ModuleDict({"b": nn.Linear(4, 4)})
    large = nn.ModuleDict({"a": nn.Linear(7, 2), "b": nn.Linear(4, 4), "c": nn.Conv2d(1, 2, 3)})
    inits.glorot(small, 9)
    inits.glorot(large, 9)
    assert torch.equal(small["b"].weight, large["b"].weight)


def test_generators_are_drawn_from_in_turn():
    def draw(rng):
        return inits.glorot(nn.Linear(4, 4), rng).weight.detach()

    rng, twin = (torch.Generator().manual_seed(2) for _ in range(2))
    first, second = draw(rng), draw(rng)
    assert torch.equal(first, draw(twin))
    assert torch.equal(second, draw(twin))
    assert not torch.equal(first, second)


@pytest.mark.parametrize("name", INITS)
def test_norms_stay_and_modules_come_back(name):
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.GroupNorm(2, 4), nn.LayerNorm(5))
    norms = list(model[1:].parameters())
    for p in norms:
        nn.init.uniform_(p)
    before, convolution = [p.clone() for p in norms], model[0].weight.clone()
    global_state = torch.get_rng_state()
    assert INITS[name](model, 1) is model
    assert not torch.equal(model[0].weight, convolution)
    assert all(torch.equal(p, q) for p, q in zip(norms, before, strict=True))
    assert torch.equal(torch.get_rng_state(), global_state)
    assert all(p.requires_grad and p.grad_fn is None for p in model.parameters())


def test_embeddings_are_drawn_with_the_stated_moments_and_padding_stays_zero():
    table = inits.lecun_normal(nn.Embedding(1000, 50, padding_idx=3, dtype=torch.float64), 0).weight.detach()
    assert (table[3] == 0).all()
    check_moments(table[torch.arange(1000) != 3], 1.0, 3.0)
    small = inits.truncated_normal(nn.Embedding(1000, 50, dtype=torch.float64), 0).weight.detach()
    check_moments(small, (0.02 * inits.TRUNCATED_STD) ** 2, KURTOSIS["truncated"])


def test_tied_weights_are_drawn_once():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    alone = inits.glorot(nn.Sequential(nn.Linear(3, 3)), 0)
    assert torch.equal(inits.glorot(model, 0)[1].weight, alone[0].weight)


def test_unknown_parameters_are_refused_before_anything_is_drawn():
    model = nn.Sequential(nn.Linear(3, 4), nn.GRU(4, 2))
    before = model[0].weight.clone()
    with pytest.raises(ModelError, match=r"weight_ih_l0.*GRU '1'"):
        inits.lecun_normal(model, 0)
    assert torch.equal(model[0].weight, before)


def test_bad_seeds_are_refused():
    with pytest.raises(InputError, match="seed"):
        inits.glorot(nn.Linear(2, 2), -1)


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 3), st.sampled_from(sorted(INITS)))
def test_layers_of_any_shape_get_finite_numbers(channels, outputs, window, name):
    layer = INITS[name](nn.Conv2d(channels, outputs, window), 0)
    assert layer.weight.isfinite().all()
    assert layer.bias.isfinite().all()
