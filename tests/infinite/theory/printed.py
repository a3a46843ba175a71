"""What formulas of the theory page are evaluated with."""

import math

import numpy as np
import torch
from scipy import integrate

XX, XY, YY = 1.3, 0.4, 0.7


W, B = 1.3, 0.4


def doubles(*numbers: float) -> list[torch.Tensor]:
    return [torch.tensor(number, dtype=torch.float64) for number in numbers]


def normal(z: np.ndarray) -> np.ndarray:
    return np.exp(-z * z / 2) / math.sqrt(2 * math.pi)


def mean_over_plane(function, xx: float = XX, xy: float = XY, yy: float = YY) -> float:
    """E f(u, v) with v given u, by scipy."""
    slope, rest = xy / xx, math.sqrt(yy - xy * xy / xx)

    def inner(z: float) -> float:
        u = math.sqrt(xx) * z
        return integrate.quad(
            lambda w: function(u, slope * u + rest * w) * normal(w), -9, 9, points=(0,), epsabs=1e-8
        )[0]

    return integrate.quad(lambda z: inner(z) * normal(z), -9, 9, points=(0,), epsabs=1e-8)[0]


def rectifier(s: float):
    p, q, root = (1 + s) / 2, (1 - s) / 2, math.sqrt(XX * YY - XY**2)
    alpha = math.atan2(XY, root)
    return p**2 * XY + 2 / math.pi * q**2 * (root + alpha * XY), p**2 + 2 / math.pi * q**2 * alpha
