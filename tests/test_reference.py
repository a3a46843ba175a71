"""The oracle itself, against closed forms, torch.func and its defining identities."""

import pytest
import torch
from torch import nn

from tangentkit import reference


def network(outputs=3):
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, outputs)).double()


X, Y = torch.linspace(-1, 1, 20).reshape(5, 4).double(), torch.linspace(0, 2, 12).reshape(3, 4).double()


def test_jacobian_of_a_linear_map_is_its_input():
    model = nn.Linear(4, 2)
    j = reference.jacobian(model, X.float())
    weight = torch.einsum("ab,id->iabd", torch.eye(2).double(), X.float().double()).reshape(5, 2, 8)
    assert torch.equal(j, torch.cat([weight, torch.eye(2).double().expand(5, 2, 2)], 2))


def test_jacobian_agrees_with_torch_func():
    model = network()
    params = dict(model.named_parameters())
    other = torch.func.jacrev(lambda p: torch.func.functional_call(model, p, (X,)))(params)
    other = torch.cat([g.detach().flatten(2) for g in other.values()], 2)
    torch.testing.assert_close(reference.jacobian(model, X), other, rtol=1e-12, atol=1e-14)


def test_jacobian_agrees_with_finite_differences():
    model, eps = network(1), 1e-6
    j = reference.jacobian(model, X)
    direction = [torch.randn_like(p) for p in model.parameters()]
    flat = torch.cat([d.flatten() for d in direction])
    with torch.no_grad():
        values = []
        for sign in (1, -2):
            for p, d in zip(model.parameters(), direction, strict=True):
                p += sign * eps * d
            values.append(model(X))
    torch.testing.assert_close(j @ flat, (values[0] - values[1]) / (2 * eps), rtol=1e-8, atol=1e-8)


def test_kernels_are_contractions_of_the_full_kernel():
    jx, jy = reference.jacobian(network(), X), reference.jacobian(network(), Y)
    full = reference.full_kernel(jx, jy)
    v = torch.tensor([0.5, -1.0, 2.0]).double()
    close = lambda a, b: torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-13)  # noqa: E731
    close(reference.trace_kernel(jx, jy), torch.einsum("iaja->ij", full))
    close(reference.pseudo_kernel(jx, jy), full.sum((1, 3)) / 3)
    close(reference.vector_kernel(jx, jy, v), torch.einsum("iajb,a,b->ij", full, v, v))
    k = reference.trace_kernel(jx, jx)
    close(reference.normalize(k, k.diagonal(), k.diagonal()).diagonal(), torch.ones(5).double())


def test_the_last_layer_of_the_tangent_kernel_is_the_conjugate_kernel():
    model = network(1)
    j = reference.jacobian(model, X, params=["2.weight", "2.bias"])
    features = model[:2](X).detach()
    expected = reference.conjugate_kernel(features, features, bias=True)
    torch.testing.assert_close(reference.trace_kernel(j, j), expected)


def test_regression_interpolates_and_is_the_limit_of_gradient_flow():
    j = reference.jacobian(network(1), X)
    k, y = reference.trace_kernel(j, j), torch.randn(5, 2).double()
    torch.testing.assert_close(reference.kernel_regression(k, y, k), y)
    torch.testing.assert_close(reference.gradient_flow(k, y, 1e9), y)
    torch.testing.assert_close(reference.gradient_flow(k, y, 0.0, f0=2 * y), 2 * y)


def test_gradient_flow_solves_its_equation():
    j = reference.jacobian(network(1), X)
    k, y, eps = reference.trace_kernel(j, j), torch.randn(5).double(), 1e-5
    f = [reference.gradient_flow(k, y, 0.1 + s * eps) for s in (-1, 0, 1)]
    torch.testing.assert_close((f[2] - f[0]) / (2 * eps), -k @ (f[1] - y), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("ridge", [1e-3, 1e-1])
def test_the_glm_is_where_its_gradient_vanishes(ridge):
    a = torch.randn(30, 4).double()
    k, y = a @ a.T, torch.arange(30) % 3
    w, b = reference.kernel_glm(k, y, ridge=ridge)
    residual = torch.softmax(k @ w + b, 1) - nn.functional.one_hot(y, 3)
    assert (k @ residual / 30 + ridge * w).abs().max() < 1e-6
    assert residual.mean(0).abs().max() < 1e-6
