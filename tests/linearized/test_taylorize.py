"""Taylor polynomials: exact for polynomials, of the right order otherwise."""

import copy

import pytest
import torch
from torch import nn

from cases import CASES, gap
from tangentkit.core.errors import InputError, ModelError
from tangentkit.core.model.functions import call, snapshot
from tangentkit.core.seeds import Key
from tangentkit.linearized import LinearizedModel, TaylorModel, linearize, taylorize


def displace(model, scale=1.0):
    generator = Key(1).torch()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(scale * torch.randn(p.shape, generator=generator))


def moved(network, model):
    """The network itself at w0 + u."""
    there = copy.deepcopy(network)
    there.load_state_dict(model.weights())
    return there


X = torch.randn(5, 3, generator=torch.Generator().manual_seed(1)).double()


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_a_linear_network_of_k_layers_is_a_polynomial_of_degree_k(layers):
    torch.manual_seed(0)
    network = nn.Sequential(*[nn.Linear(3, 3) for _ in range(layers)]).double()
    model = taylorize(network, layers)
    displace(model)
    assert gap(model(X).detach(), moved(network, model)(X).detach()) <= 1e-12
    if layers > 1:
        lower = taylorize(network, layers - 1)
        displace(lower)
        assert gap(lower(X).detach(), moved(network, lower)(X).detach()) > 1e-3


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_the_error_is_one_order_higher_than_the_degree(degree):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.LayerNorm(8), nn.Linear(8, 2)).double()
    model, errors = taylorize(network, degree), []
    for t in (2e-2, 1e-2):
        displace(model, t)
        with torch.no_grad():
            errors.append(float((moved(network, model)(X) - model(X)).norm()))
    assert 0.7 * 2 ** (degree + 1) < errors[0] / errors[1] < 1.4 * 2 ** (degree + 1)


def test_degree_one_is_the_linearization():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)).double()
    first, second = taylorize(network, 1), linearize(network)
    displace(first)
    displace(second)
    assert isinstance(first, LinearizedModel)
    assert torch.equal(first(X), second(X))


@pytest.mark.parametrize(
    "name",
    ["mlp of many activations", "multi-head attention", "layer norm", "instance norm 1d", "batch norm 1d", "glu",
     "weight norm", "custom function", "embedding bag, mean", "cosine head", "lstm", "tied weights",
     "distances to prototypes", "soft mixture of experts", "group norm", "rms norm", "gradient of an energy"],
)  # fmt: skip
def test_second_derivatives_are_differences_of_gradients(name):
    case = CASES[name]
    network = case.model()
    model = taylorize(network, 2, **case.keywords)
    first = linearize(network, **case.keywords)
    displace(model, 0.1)
    displace(first, 0.1)
    x = case.batches()[0]
    found = call(model, x)
    v = torch.randn(found.shape, generator=Key(2).torch()).double()
    function = snapshot(network, **case.keywords)
    u = [p.detach() for p in model.parameters()]
    h = 1e-4

    def gradient(t):
        w = {k: (p + t * d).requires_grad_() for (k, p), d in zip(function.params.items(), u, strict=True)}
        value = (function(w, x) * v).sum()
        return torch.autograd.grad(value, list(w.values()), allow_unused=True, materialize_grads=True)

    curvature = [(a - b) / (2 * h) for a, b in zip(gradient(h), gradient(-h), strict=True)]
    second = sum((c * d).sum() for c, d in zip(curvature, u, strict=True))
    excess = ((found - call(first, x)).detach() * v).sum()
    assert abs(2 * excess - second) <= 1e-5 * max(abs(second), 1e-3)
    gradients = torch.autograd.grad(
        (found * v).sum(), list(model.parameters()), allow_unused=True, materialize_grads=True
    )
    expected = [g + c for g, c in zip(gradient(0), curvature, strict=True)]
    assert (
        gap(torch.cat([g.flatten() for g in gradients]), torch.cat([g.flatten() for g in expected])) <= 1e-6
    )


def test_it_is_a_module_as_the_linearization_is():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2)).double().eval()
    model = taylorize(network, 2)
    displace(model, 0.3)
    assert isinstance(model, TaylorModel)
    assert torch.equal(copy.deepcopy(model)(X), model(X))
    with torch.inference_mode():
        assert torch.equal(model(X), model.train()(X))
    loss = model(X).square().mean()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(20):
        optimizer.zero_grad()
        model(X).square().mean().backward()
        optimizer.step()
    assert model(X).square().mean() < loss


@pytest.mark.parametrize("degree", [0, -1, 1.5, True, "2"])
def test_bad_degrees_are_refused(degree):
    with pytest.raises(InputError, match="bad degree"):
        taylorize(nn.Linear(2, 2), degree)


def test_checkpointing_is_refused_beyond_the_first_order():
    case = CASES["checkpoint"]
    with pytest.raises(ModelError, match="checkpointing"):
        taylorize(case.model(), 2)(case.batches()[0])
