"""The way from independence to a given correlation, along which Price's theorem integrates.

The probability that two Gaussian variables exceed κ and λ changes with their covariance as their density p(κ, λ)
does. Along xy = sqrt(xx yy) sin t,

    dP(u > κ, v > λ) / dt = exp(-Q) / 2π,      Q = (k² - 2 k l sin t + l²) / (2 cos² t),
    k = κ/sqrt(xx),  l = λ/sqrt(yy)

which is smooth, but for layers as thin as |k - l| at |sin t| = 1. In w = tan(π/4 - |t|/2) it needs no
trigonometric function, and w = NEAR sinh ζ resolves layers of any thickness.
"""

import math
from collections.abc import Iterator
from functools import cache

import numpy as np
import torch
from torch import Tensor

NODES, FEWER, NEAR = 48, 24, 1e-3
"""Nodes of the rule in float64 and in float32, and where near |sin t| = 1 its scale turns logarithmic."""
FAR = 1e3
"""Kinks further out, in standard deviations, count as this far: exp(-FAR²/2) is 0 in any case."""


def std_of(xx: Tensor) -> Tensor:
    """sqrt(xx); its gradient at 0, which is infinite, counts as 0."""
    return torch.where(xx > 0, torch.where(xx > 0, xx, 1).sqrt(), 0)


def place_of(kink: float, xx: Tensor) -> Tensor:
    """The kink in standard deviations."""
    return (kink / std_of(xx).clamp(min=torch.finfo(xx.dtype).tiny)).clamp(-FAR, FAR)


def end_of_path(xx: Tensor, xy: Tensor, yy: Tensor) -> tuple[Tensor, Tensor]:
    """sqrt(xx yy), and w = tan(π/4 - t/2) where sin t >= 0 is the correlation."""
    tiny = torch.finfo(xx.dtype).tiny
    rest = remaining(xx, xy, yy)
    scale = std_of(xx) * std_of(yy)
    return scale, torch.where(scale > 0, std_of(xx) * std_of(rest) / (scale + xy).clamp(min=tiny), 1)


def remaining(xx: Tensor, xy: Tensor, yy: Tensor) -> Tensor:
    """The variance of v that u does not explain, yy - xy²/xx."""
    rest = yy - xy * (xy / xx.clamp(min=torch.finfo(xx.dtype).tiny))
    # A floor keeps gradients finite at correlations ±1, where what they would multiply is 0.
    floor = torch.finfo(xx.dtype).eps ** 0.75 if rest.requires_grad else 0.0
    return torch.maximum(rest, floor * yy)


def path(end: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """|sin t|, cos t and dt along the way from t = 0 to where tan(π/4 - |t|/2) = end."""
    start, stop = torch.asinh(end / NEAR), math.asinh(1 / NEAR)
    length = stop - start
    for node, weight in zip(*legendre(NODES if end.dtype == torch.float64 else FEWER), strict=True):
        growth = torch.exp(start + length * node)
        w, dw = (growth - 1 / growth) * (NEAR / 2), (growth + 1 / growth) * (NEAR / 2) * length * weight
        inverse = 1 / (1 + w * w)
        tiny = torch.finfo(w.dtype).tiny ** 0.25
        yield (1 - w * w) * inverse, (2 * w * inverse).clamp(min=tiny), 2 * inverse * dw


@cache
def legendre(nodes: int) -> tuple[list[float], list[float]]:
    """Nodes and weights of the Gauss-Legendre rule on [0, 1]."""
    x, w = np.polynomial.legendre.leggauss(nodes)
    return ((x + 1) / 2).tolist(), (w / 2).tolist()
