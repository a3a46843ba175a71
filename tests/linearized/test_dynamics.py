"""Gradient descent on the linearization is kernel gradient descent; wide networks come to it."""

import pytest
import torch
from torch import nn

from cases import gap
from tangentkit import reference
from tangentkit.core.seeds import Key
from tangentkit.linearized import Training, linearize, train
from tangentkit.models import arora_mlp


def problem(outputs: int) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, outputs)).double()
    generator = Key(0).torch()
    return (
        network,
        torch.randn(8, 3, generator=generator).double(),
        torch.randn(8, outputs, generator=generator).double(),
    )


@pytest.mark.parametrize("outputs", [1, 3])
def test_small_steps_follow_the_closed_form(outputs):
    network, x, y = problem(outputs)
    j = reference.jacobian(network, x)
    k = reference.full_kernel(j, j).reshape(8 * outputs, -1)
    f0 = network(x).detach()
    # The loss (1/n) Σ |f - y|² has gradient (2/n) Jᵀ (f - y): a step of it is a time 2 lr / n of the flow.
    rate = 2e-3 / float(torch.linalg.eigvalsh(k)[-1])
    model = linearize(network)
    for steps in (50, 500):
        settings = Training(epochs=steps, learning_rate=rate * 8 / 2, batch=None, loss="l2")
        train(model, x, y, settings, key=Key(0))
        done = rate * (steps if steps == 50 else 550)
        truth = reference.gradient_flow(k, y.flatten(), done, f0=f0.flatten()).view(8, outputs)
        assert gap(model(x).detach() - f0, truth - f0) <= 1e-3


def test_discrete_steps_are_those_of_the_kernel():
    network, x, y = problem(2)
    j = reference.jacobian(network, x).flatten(0, 1)
    k, f = j @ j.T, network(x).detach().flatten()
    rate = 0.5 / float(torch.linalg.eigvalsh(k)[-1])
    for _ in range(30):
        f = f - rate * k @ (f - y.flatten())
    model = linearize(network)
    # The mean over samples and outputs: a step of the sum of squares / 2 is n c / 2 times as long.
    settings = Training(epochs=30, learning_rate=rate * 16 / 2, batch=None, loss="l2-mean")
    train(model, x, y, settings, key=Key(0))
    assert gap(model(x).detach().flatten(), f) <= 1e-12


def test_long_training_ends_at_kernel_regression():
    network, x, y = problem(1)
    x_test = torch.randn(5, 3, generator=Key(1).torch()).double()
    j, j_test = reference.jacobian(network, x)[:, 0], reference.jacobian(network, x_test)[:, 0]
    f0, f0_test = network(x).detach(), network(x_test).detach()
    expected = f0_test + reference.kernel_regression(j @ j.T, y - f0, j_test @ j.T)
    model = linearize(network)
    optimizer = torch.optim.LBFGS(
        model.parameters(), max_iter=500, tolerance_grad=1e-12, tolerance_change=1e-16
    )

    def loss():
        optimizer.zero_grad()
        value = (model(x) - y).square().sum()
        value.backward()
        return value

    optimizer.step(loss)
    # L-BFGS from u = 0 never leaves the span of the gradients, so it ends at the solution of least norm.
    assert gap(model(x_test).detach(), expected) <= 1e-4


def test_wide_networks_train_as_their_linearization():
    x = torch.randn(10, 4, generator=Key(0).torch()).double()
    y = torch.sin(2 * x[:, :1])
    mean = []
    for width in (16, 64, 256, 1024):
        gaps = []
        for seed in range(6):
            network = arora_mlp((4, width, 1), activation=nn.Tanh, seed=seed).double()
            model, f0 = linearize(network), network(x).detach()
            settings = Training(epochs=20, learning_rate=0.5, batch=None)
            for module in (network, model):
                train(module, x, y, settings, key=Key(seed))
            with torch.no_grad():
                gaps.append(float((network(x) - model(x)).norm() / (model(x) - f0).norm()))
        mean.append(sum(gaps) / len(gaps))
    # The distance falls like 1 / sqrt(width) at least: by 8 in all.
    assert mean == sorted(mean, reverse=True)
    assert mean[-1] < mean[0] / 4
