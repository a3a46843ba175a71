"""The way from independence to a given correlation, along which Price's theorem integrates.

The probability that two Gaussian variables exceed κ and λ changes with their covariance as their density p(κ, λ)
does. Along xy = sqrt(xx yy) sin t,

    dP(u > κ, v > λ) / dt = exp(-Q) / 2π,      Q = (k² - 2 k l sin t + l²) / (2 cos² t),
    k = κ/sqrt(xx),  l = λ/sqrt(yy)

which is smooth, but for layers as thin as |k - l| at |sin t| = 1. In w = tan(π/4 - |t|/2) it needs no trigonometric
function.
"""

from functools import cache

import numpy as np
import torch
from torch import Tensor

NODES = 48
"""Of the Gauss-Legendre rule along the way."""
FAR = 1e3
"""Kinks further out, in standard deviations, count as this far: exp(-FAR²/2) is 0 in any case."""


def std_of(xx: Tensor) -> Tensor:
    """sqrt(xx); its gradient at 0, which is infinite, counts as 0."""
    return torch.where(xx > 0, torch.where(xx > 0, xx, 1).sqrt(), 0)


def place_of(kink: float, xx: Tensor) -> Tensor:
    """The kink in standard deviations."""
    return (kink / std_of(xx).clamp(min=torch.finfo(xx.dtype).tiny)).clamp(-FAR, FAR)


def kept_inside(xx: Tensor, xy: Tensor, yy: Tensor) -> Tensor:
    """xy, a little off correlations ±1 where gradients are wanted: there some are infinite, times what is 0."""
    if not (torch.is_grad_enabled() and (xx.requires_grad or xy.requires_grad or yy.requires_grad)):
        return xy
    most = std_of(xx) * std_of(yy) * (1 - torch.finfo(xy.dtype).eps ** 0.75 / 2)
    return xy * torch.where(xy.abs() > most, most / xy.abs(), 1).nan_to_num(1.0).detach()


def end_of_path(xx: Tensor, xy: Tensor, yy: Tensor) -> Tensor:
    """w = tan(π/4 - t/2) where sin t >= 0 is the correlation."""
    tiny = torch.finfo(xx.dtype).tiny
    rest, scale = remaining(xx, xy, yy), std_of(xx) * std_of(yy)
    return torch.where(scale > 0, std_of(xx) * std_of(rest) / (scale + xy).clamp(min=tiny), 1)


def remaining(xx: Tensor, xy: Tensor, yy: Tensor) -> Tensor:
    """The variance of v that u does not explain, yy - xy²/xx."""
    return (yy - xy * (xy / xx.clamp(min=torch.finfo(xx.dtype).tiny))).clamp(min=0)


@cache
def legendre(nodes: int) -> tuple[list[float], list[float]]:
    """Nodes and weights of the Gauss-Legendre rule on [0, 1]."""
    x, w = np.polynomial.legendre.leggauss(nodes)
    return ((x + 1) / 2).tolist(), (w / 2).tolist()
