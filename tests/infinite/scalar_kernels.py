"""Scalar kernels for tests, each twice: in torch for the library, in mpmath for the oracle."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import mpmath as mp
import torch


@dataclass(frozen=True)
class Case:
    torch: Callable
    mpmath: Callable


def relu_mlp(depth: int, sw: float, sb: float, kind: str) -> Case:
    """The recursion of SPEC S4-K3 with arc-cosines, written for any number type."""

    def kernel(t, acos, sqrt, pi):
        q, sigma = sw + sb, sw * t + sb
        theta = sigma
        for _ in range(depth):
            rho = sigma / q
            angle = pi - acos(rho)
            value, slope = q * (sqrt(1 - rho * rho) + rho * angle) / (2 * pi), angle / (2 * pi)
            q, sigma = sw * q / 2 + sb, sw * value + sb
            theta = sigma + sw * theta * slope
        return theta if kind == "ntk" else sigma

    # A real arc-cosine wants its argument guarded against rounding beyond ±1; so does the root.
    return Case(
        lambda t: kernel(t, lambda r: r.clamp(-1, 1).acos(), lambda s: s.clamp(min=0).sqrt(), math.pi),
        lambda t: kernel(mp.mpmathify(t), mp.acos, mp.sqrt, mp.pi),
    )


def erf_mlp(depth: int, sw: float, sb: float, kind: str) -> Case:
    def kernel(t, asin, sqrt, pi):
        q, sigma = sw + sb, sw * t + sb
        theta = sigma
        for _ in range(depth):
            rho = 2 * sigma / (1 + 2 * q)
            value = 2 / pi * asin(rho)
            slope = 4 / pi / (1 + 2 * q) / sqrt(1 - rho * rho)
            q, sigma = sw * 2 / math.pi * math.asin(2 * q / (1 + 2 * q)) + sb, sw * value + sb
            theta = sigma + sw * theta * slope
        return theta if kind == "ntk" else sigma

    return Case(
        lambda t: kernel(t, torch.asin, torch.sqrt, math.pi),
        lambda t: kernel(mp.mpmathify(t), mp.asin, mp.sqrt, mp.pi),
    )


CASES = {
    "relu ck": relu_mlp(2, 2.0, 2.0, "nngp"),
    "relu ntk": relu_mlp(3, 2.0, 1.0, "ntk"),
    "relu ntk without bias": relu_mlp(1, 2.0, 0.0, "ntk"),
    "erf ntk": erf_mlp(2, 2.0, 0.5, "ntk"),
    "exp": Case(torch.exp, mp.exp),
    "rbf": Case(lambda t: torch.exp(-8 * (1 - t)), lambda t: mp.exp(-8 * (1 - mp.mpmathify(t)))),
    "laplace": Case(
        lambda t: torch.exp(-torch.sqrt(4 * (1 - t))), lambda t: mp.exp(-mp.sqrt(4 * (1 - mp.mpmathify(t))))
    ),
    "geometric": Case(lambda t: 1 / (1.25 - t), lambda t: 1 / (mp.mpf(1.25) - t)),
}


def real_only(phi: Callable) -> Callable:
    """The same kernel for a caller who cannot take complex numbers."""

    def guarded(t):
        if t.is_complex():
            raise TypeError("real numbers only")
        return phi(t)

    return guarded
