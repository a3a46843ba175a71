"""Small layers that several networks share: a fixed scale, and normalized activations."""

from collections.abc import Callable
from math import pi, sqrt

import torch
from torch import Tensor, nn

Activation = Callable[[], nn.Module]
"""Makes an activation: a class such as `nn.ReLU`, or a function such as `normalized_tanh`."""


class Scale(nn.Module):
    """x -> factor · x.

    Example:
        >>> Scale(0.5)(torch.ones(2))
        tensor([0.5000, 0.5000])
    """

    def __init__(self, factor: float):
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        """The scaled input."""
        return self.factor * x

    def extra_repr(self) -> str:
        """The factor, for printing."""
        return f"{self.factor:g}"


class Normalized(nn.Module):
    """x -> (σ(x) - mean) / std: of mean 0 and variance 1 on z ~ N(0, 1) if these are the moments of σ(z)."""

    def __init__(self, activation: nn.Module, *, mean: float, std: float):
        super().__init__()
        self.activation, self.mean, self.std = activation, mean, std

    def forward(self, x: Tensor) -> Tensor:
        """The normalized activation."""
        return (self.activation(x) - self.mean) / self.std

    def extra_repr(self) -> str:
        """The moments, for printing."""
        return f"mean={self.mean:g}, std={self.std:g}"


def normalized_tanh() -> Normalized:
    """tanh(x) / 0.62793.

    Example:
        >>> normalized_tanh()(torch.tensor([1.0]))
        tensor([1.2129])
    """
    return Normalized(nn.Tanh(), mean=0.0, std=0.6279287303491067)


def normalized_softplus() -> Normalized:
    """(log(1 + eˣ) - 0.80606) / 0.52107.

    Example:
        >>> normalized_softplus()(torch.tensor([0.0]))
        tensor([-0.2167])
    """
    return Normalized(nn.Softplus(), mean=0.8060591833474398, std=0.5210705343814393)


def normalized_relu() -> Normalized:
    """√(2π/(π-1)) (max(x, 0) - 1/√(2π)).

    Example:
        >>> normalized_relu()(torch.tensor([0.0]))
        tensor([-0.6833])
    """
    return Normalized(nn.ReLU(), mean=1 / sqrt(2 * pi), std=sqrt((pi - 1) / (2 * pi)))


def normalized_sigmoid() -> Normalized:
    """(1/(1 + e⁻ˣ) - 1/2) / 0.20828.

    Example:
        >>> normalized_sigmoid()(torch.tensor([0.0]))
        tensor([0.])
    """
    return Normalized(nn.Sigmoid(), mean=0.5, std=0.20827634493166276)


def second_moment(activation: Callable[[Tensor], Tensor]) -> float:
    """E σ(z)² for z ~ N(0, 1), by the trapezoid rule in float64.

    Exact to about 1e-12 for smooth σ and for ReLU, to 1e-6 for others with a kink.

    Example:
        >>> f"{second_moment(torch.relu):.12f}"
        '0.500000000000'
    """
    # The device is named since the model may be under construction on the meta device.
    z = torch.linspace(-10, 10, 10_001, dtype=torch.float64, device="cpu")
    density = torch.exp(-(z**2) / 2)
    return float((activation(z) ** 2 * density).sum() / density.sum())
