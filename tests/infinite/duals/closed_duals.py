"""Every dual in closed form, with its function and the kinks of it."""

import math

import torch
from torch.nn import functional as F

from tangentkit.infinite.duals.closed_forms import (
    Erf,
    Exponential,
    Gelu,
    Monomial,
    Rectifier,
    Sign,
    Sine,
)
from tangentkit.infinite.duals.piecewise_linear import PiecewiseLinear

CLOSED = {
    "relu": (Rectifier(), torch.relu, (0.0,)),
    "leaky": (Rectifier(0.2), lambda u: F.leaky_relu(u, 0.2), (0.0,)),
    "abs": (Rectifier(-1.0), torch.abs, (0.0,)),
    "line": (Rectifier(1.0), lambda u: 1.0 * u, ()),
    "sign": (Sign(), torch.sign, (0.0,)),
    "erf": (Erf(), torch.erf, ()),
    "erf scaled": (Erf(0.6), lambda u: torch.erf(0.6 * u), ()),
    "gelu": (Gelu(), F.gelu, ()),
    "sin": (Sine(), torch.sin, ()),
    "cos": (Sine(phase=math.pi / 2), torch.cos, ()),
    "sine": (Sine(1.3, 0.4), lambda u: torch.sin(1.3 * u + 0.4), ()),
    "exp": (Exponential(0.7), lambda u: torch.exp(0.7 * u), ()),
    "constant": (Monomial(0), lambda u: 0.0 * u + 1.0, ()),
    "identity": (Monomial(1), lambda u: 1.0 * u, ()),
    "cube": (Monomial(3), lambda u: u**3, ()),
    "fourth": (Monomial(4), lambda u: u**4, ()),
    "hardtanh": (PiecewiseLinear((-1.0, 1.0), (0.0, 1.0, 0.0), -1.0), F.hardtanh, (-1.0, 1.0)),
    "three lines": (
        PiecewiseLinear((-0.5, 2.0), (-1.0, 0.5, 3.0), 0.3),
        lambda u: 0.3 - u + 1.5 * F.relu(u + 0.5) + 2.5 * F.relu(u - 2),
        (-0.5, 2.0),
    ),
}


AWKWARD = [
    (1.0, 1.0, 1.0),
    (2.0, -2.0, 2.0),
    (1.0, 1 - 1e-15, 1.0),
    (1.0, 1e-15 - 1, 1.0),
    (0.0, 0.0, 1.0),
    (1.0, 0.0, 0.0),
    (0.0, 0.0, 0.0),
    (1e-30, 1e-30, 1e-30),
    (1e-18, 0.3e-18, 1e-18),
    (3.0, 0.0, 2.0),
]


def tensors(*numbers: float, dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    return [torch.tensor(number, dtype=dtype) for number in numbers]
