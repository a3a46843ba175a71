"""How finite networks approach the limit: their mean with 1/width, its error with 1/sqrt(draws)."""

from functools import cache
from math import sqrt

import pytest
import torch
from torch import nn

from infinite.finite_networks import finite_kernels
from tangentkit.infinite import InfiniteKernel

SCALES = {"w_std": 1.3, "b_std": 0.4}


def fully_connected(width: int) -> nn.Module:
    return Layers(
        nn.Linear(4, width), nn.ReLU(), nn.Linear(width, width), nn.GELU(), head=nn.Linear(width, 1)
    )


class Layers(nn.Module):
    def __init__(self, *layers: nn.Module, head: nn.Module):
        super().__init__()
        self.layers, self.head = nn.Sequential(*layers), head

    def forward(self, x):
        return self.head(self.layers(x))


def convolutional(width: int, *pool: nn.Module, features: int) -> nn.Module:
    return Layers(
        nn.Conv2d(1, width, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(width, width, 2, padding=1, padding_mode="circular", stride=2),
        nn.ReLU(),
        *pool,
        nn.Flatten(),
        head=nn.Linear(features, 1),
    )


class Residual(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.first, self.inner = nn.Linear(4, width), nn.Linear(width, width)
        self.last, self.head = nn.Linear(width, width), nn.Linear(width, 1)

    def forward(self, x):
        h = self.first(x)
        h = h + 0.7 * self.inner(torch.relu(h))
        return self.head(torch.erf(self.last(torch.relu(h))))


def normalized(width: int) -> nn.Module:
    norm = nn.LayerNorm(width, elementwise_affine=False)
    return Layers(
        nn.Linear(4, width), norm, nn.ReLU(), nn.Linear(width, width), nn.ReLU(), head=nn.Linear(width, 1)
    )


NETWORKS = {
    "fully connected": fully_connected,
    "convolutions, flatten": lambda width: convolutional(width, features=9 * width),
    "convolutions, global pooling": lambda width: convolutional(
        width, nn.AdaptiveAvgPool2d(1), features=width
    ),
    "residual": Residual,
    "LayerNorm": normalized,
}


def inputs(name: str) -> torch.Tensor:
    generator = torch.Generator().manual_seed(4)
    shape = (2, 1, 4, 4) if name.startswith("conv") else (2, 4)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


@cache
def deviations(
    name: str, width: int, draws: int, *, standard: bool = False
) -> dict[str, tuple[float, float]]:
    """How far the mean of finite kernels is from the limit, relative to it, and the standard error of that."""
    x, model = inputs(name), NETWORKS[name](width)
    parameterization = "standard" if standard else "ntk"
    found = {}
    for kind, kernels in finite_kernels(model, x, draws=draws, standard=standard, **SCALES).items():
        exact = InfiniteKernel(model, kind, parameterization=parameterization, **SCALES)(x)
        relative = kernels.sum((1, 2)) / exact.sum() - 1
        found[kind] = float(relative.mean()), float(relative.std()) / sqrt(draws)
    return found


@pytest.mark.parametrize("standard", [False, True], ids=["ntk", "standard"])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_mean_of_finite_networks_approaches_the_limit_with_one_over_their_width(name, standard):
    draws = 2000 if name.startswith("conv") else 4000  # whose many positions average out more of the chance
    narrow, wide = (deviations(name, width, draws, standard=standard) for width in (8, 32))
    for kind in ("nngp", "ntk"):
        (bias, error), (less, finer) = narrow[kind], wide[kind]
        # Four times the width: a quarter of the bias. b/n + c/n² is half as much again, or half as little.
        chance = 4.5 * sqrt(finer**2 + (error / 4) ** 2)
        assert abs(less - bias / 4) <= abs(bias) / 8 + chance
        # What is extrapolated to infinite width is the limit, but for c/n².
        assert abs(4 * less - bias) / 3 <= abs(bias) / 6 + 4 / 3 * chance
        assert finer < 0.01


@pytest.mark.parametrize("kind", ["nngp", "ntk"])
def test_the_bias_is_there_and_falls_with_one_over_the_width(kind):
    (narrow, error), (wide, finer) = (deviations("residual", n, 20_000)[kind] for n in (8, 32))
    assert abs(narrow) > 10 * error
    assert abs(wide) > 3 * finer
    assert narrow / wide == pytest.approx(4, rel=0.3 + 4 * finer / abs(wide))


def test_the_error_of_the_mean_falls_with_one_over_the_root_of_the_draws():
    """With one hidden layer finite networks are right on average, at any width: only chance is left."""
    x = inputs("fully connected")
    model = Layers(nn.Linear(4, 16), nn.ReLU(), head=nn.Linear(16, 1))
    for kind, kernels in finite_kernels(model, x, draws=64 * 512, **SCALES).items():
        exact = InfiniteKernel(model, kind, **SCALES)(x)
        misses = [
            (kernels.unflatten(0, (-1, draws)).mean(1) - exact).square().mean().sqrt() for draws in (8, 512)
        ]
        # 64 means of 512 draws know their spread to 9 percent.
        assert float(misses[0] / misses[1]) == pytest.approx(8, rel=0.35)
