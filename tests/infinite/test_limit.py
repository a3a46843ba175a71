"""Finite networks approach their infinite-width kernel, and the faster the wider they are."""

import time
from math import sqrt

import pytest
import torch
from torch import nn

import tangentkit as tk
import tangentkit.nn as tknn
from tangentkit.infinite import InfiniteKernel

W, B = 1.3, 0.4


class Residual(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.first = tknn.Linear(4, width, w_std=W, b_std=B)
        self.inner = tknn.Linear(width, width, w_std=W, b_std=B)
        self.last = tknn.Linear(width, 2, w_std=W, b_std=B)

    def forward(self, x):
        h = self.first(x)
        return self.last(torch.tanh(h + 0.5 * self.inner(torch.relu(h))))


class Dense(nn.Module):
    """Channels of two kinds side by side, normalized."""

    def __init__(self, width: int):
        super().__init__()
        self.a = tknn.Linear(4, width, w_std=W, b_std=B)
        self.b = tknn.Linear(4, 3 * width, w_std=W, b_std=B)
        self.c = tknn.Linear(4 * width, width, w_std=W, b_std=B)
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.last = tknn.Linear(width, 2, w_std=W, b_std=B)

    def forward(self, x):
        h = torch.cat([torch.relu(self.a(x)), torch.erf(self.b(x))], 1)
        return self.last(torch.sin(self.norm(self.c(h))))


def convolutional(width: int) -> nn.Module:
    return nn.Sequential(
        tknn.Conv2d(1, width, 3, padding=1, w_std=W, b_std=B),
        nn.ReLU(),
        nn.AvgPool2d(2),
        tknn.Conv2d(width, width, 2, w_std=W, b_std=B, padding=1, padding_mode="circular"),
        nn.GELU(),
        nn.AdaptiveAvgPool2d((1, 2)),
        nn.Flatten(),
        tknn.Linear(2 * width, 2, w_std=W, b_std=B),
    )


def perceptron(width: int) -> nn.Module:
    return nn.Sequential(
        tknn.Linear(4, width, w_std=W, b_std=B), nn.ReLU(), tknn.Linear(width, 2, w_std=W, b_std=B)
    )


NETWORKS = {"perceptron": perceptron, "residual": Residual, "dense": Dense, "convolutional": convolutional}


@pytest.mark.parametrize("name", NETWORKS)
def test_the_mean_kernel_of_wide_networks_is_the_limit(name):
    make = NETWORKS[name]
    x = torch.randn(3, 1, 4, 4).double() if name == "convolutional" else torch.randn(3, 4).double()
    exact = InfiniteKernel(make(8))(x)
    width = 64 if name == "convolutional" else 256
    kernel = tk.MonteCarloKernel(lambda: make(width).double(), samples=24, seed=1)
    mean, error = kernel.with_error(x)
    # The trace is over two outputs. The mean of finite networks is off by O(1/width) besides chance.
    deviation = (mean / 2 - exact).abs()
    assert (deviation <= 4.5 * error / 2 + 3 * exact.max() / width).all()
    assert error.max() < 0.2 * exact.max()


def test_one_network_deviates_by_one_over_the_root_of_its_width():
    x = torch.randn(4, 4).double()
    exact = InfiniteKernel(perceptron(8))(x)
    deviations = []
    for width in (64, 1024):
        models = tk.MonteCarloKernel(lambda width=width: perceptron(width).double(), samples=40, seed=2)
        _, error = models.with_error(x)
        deviations.append(float((error * sqrt(40) / 2).norm() / exact.norm()))
    # 16 times the width: a quarter of the deviation.
    assert deviations[0] / deviations[1] == pytest.approx(4, rel=0.25)


def test_the_covariance_of_outputs_is_the_nngp():
    x = torch.randn(3, 4).double()
    exact = InfiniteKernel(Residual(8), "nngp")(x)
    torch.manual_seed(3)
    outputs = []
    with torch.no_grad():
        for _ in range(600):
            model = Residual(128).double()
            outputs.append(model(x))
    products = torch.einsum("sic,sjc->scij", *[torch.stack(outputs)] * 2).flatten(0, 1)
    error = products.std(0) / sqrt(len(products))
    assert ((products.mean(0) - exact).abs() <= 4.5 * error + 3 * exact.max() / 128).all()


def test_the_standard_parameterization_counts_the_widths():
    # Θ of a standard network grows with its width; the formula says by how much.
    x = torch.randn(3, 4).double()
    width = 256

    def make() -> nn.Module:
        model = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 1)).double()
        for layer in (model[0], model[2]):
            nn.init.normal_(layer.weight, std=W / sqrt(layer.in_features))
            nn.init.normal_(layer.bias, std=B)
        return model

    exact = InfiniteKernel(make(), w_std=W, b_std=B, parameterization="standard")(x)
    mean, error = tk.MonteCarloKernel(make, samples=40, seed=4).with_error(x)
    assert ((mean - exact).abs() <= 4.5 * error + 3 * exact.max() / width).all()


def test_a_converted_model_has_the_limit_of_the_plain_one():
    plain = nn.Sequential(nn.Linear(4, 256), nn.ReLU(), nn.Linear(256, 2)).double()
    x = torch.randn(3, 4).double()
    exact = InfiniteKernel(plain, w_std=W, b_std=B)(x)
    converted = tknn.ntk_parameterize(plain, w_std=W, b_std=B)
    torch.testing.assert_close(InfiniteKernel(converted)(x), exact)
    seeds = iter(range(24))
    kernel = tk.MonteCarloKernel(
        lambda: tknn.ntk_parameterize(plain, w_std=W, b_std=B, seed=next(seeds)), samples=24
    )
    mean, error = kernel.with_error(x)
    assert ((mean / 2 - exact).abs() <= 4.5 * error / 2 + 3 * exact.max() / 256).all()


@pytest.mark.parametrize("pooled", [True, False])
def test_the_plan_shows_pairs_positions_and_about_the_time(pooled):
    pool = [nn.AdaptiveAvgPool2d(1)] if pooled else []
    layers = [nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), *pool, nn.Flatten()]
    model = nn.Sequential(*layers, nn.Linear(4 if pooled else 4 * 36, 1))
    x = torch.randn(20, 3, 6, 6)
    kernel = InfiniteKernel(model)
    plan, across = kernel.plan(x), kernel.plan(x, x[:5])
    assert (plan.shape, plan.pairs, plan.positions, plan.all_positions) == ((20, 20), 210, (6, 6), pooled)
    assert (across.shape, across.pairs, across.nbytes) == ((20, 5), 100, 400)
    assert ("all pairs of positions" in str(plan)) == pooled
    kernel(x)
    start = time.perf_counter()
    kernel(x)
    assert 0.02 <= plan.seconds / (time.perf_counter() - start) <= 50  # a busy machine, and milliseconds
