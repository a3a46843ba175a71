"""The power series of a scalar kernel, read off its values on circles in the complex plane.

Every kernel that depends on the normalized inner product t alone, in every dimension, is a power series
φ(t) = Σ_j a_j t^j with a_j >= 0 (Schoenberg), so it is analytic for |t| < 1. On a circle of radius r its
Fourier coefficients are a_j r^j: one FFT gives all a_j with an error of about ε max |φ| r^-j each. Values on
the real line alone cannot do that: there a_16 is lost in the rounding of φ.
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from tangentkit.core.errors import InputError, NumericalError

ScalarKernel = Callable[[Tensor], Tensor]
"""A kernel as a function φ of the normalized inner product t = <x, y>/d, from a tensor (n,) to one (n,)."""

ALIASING = 36.0  # e^-36 is ε: on the circle of radius e^(-36/n), n points do not alias
POINTS = 512
RADII = np.delete(1.2 ** np.arange(-12.0, 27.0), 12)  # 0.11 to 114, without 1
ANALYTIC = 1e-9  # the largest negative frequency, relative to max |φ|, that passes for rounding


@dataclass(frozen=True)
class PowerSeries:
    """φ(t) = Σ_j a_j t^j, cut after the last coefficient, with the error of each.

    `even` and `odd` are the sums of the even and of the odd coefficients that are cut, with their error.
    """

    coefficients: np.ndarray
    errors: np.ndarray
    even: float
    odd: float
    tail_error: float


def evaluate(phi: ScalarKernel, t: np.ndarray) -> tuple[np.ndarray, float]:
    """φ(t), and the rounding unit ε of the dtype it came in.

    Raises:
        InputError: φ(t) does not have the shape of t.
        NumericalError: φ(t) is not finite.
    """
    points = torch.as_tensor(t, device=torch.get_default_device())
    with torch.no_grad():
        values = torch.as_tensor(phi(points))
    if values.shape != points.shape:
        raise InputError(
            "the scalar kernel changes the shape of its argument",
            expected=f"φ(t) of shape {tuple(points.shape)}",
            got=tuple(values.shape),
            hint="write it elementwise; a constant is c * torch.ones_like(t)",
        )
    bad = ~torch.isfinite(values)
    if bad.any():
        where = points[bad.nonzero()[0, 0]].item()
        raise NumericalError(
            "the scalar kernel is not finite",
            expected="finite φ(t) for -1 <= t <= 1",
            got=f"{int(bad.sum())} of {len(t)} values that are NaN or infinite, the first at t = {where:.6g}",
        )
    exact = values.dtype if values.is_floating_point() or values.is_complex() else torch.float64
    return values.to(torch.promote_types(exact, torch.float64)).cpu().numpy(), torch.finfo(exact).eps


def power_series(phi: ScalarKernel, terms: int) -> PowerSeries | None:
    """The first `terms` Taylor coefficients of φ at 0, or None where φ cannot be continued to complex t.

    Two tests say whether the continuation is one: on a circle the negative frequencies of an analytic
    function vanish, and the series must give back φ on the real line. One circle just inside the unit circle
    gives every coefficient with a small absolute error. Smaller circles, and larger ones where φ is analytic
    there too (erf, polynomials, exp), give small coefficients with a small relative error.

    Args:
        phi: the scalar kernel; `clamp` and `atan2` in it are continued as well.
        terms: the number of coefficients, at least 1.

    Example:
        >>> series = power_series(lambda t: 1 / (2 - t), 4)
        >>> series.coefficients.round(12).tolist()
        [0.5, 0.25, 0.125, 0.0625]
    """
    n = max(POINTS, 1 << (4 * terms - 1).bit_length())
    inner = _circle(phi, math.exp(-ALIASING / n), n)
    if inner is None:
        return None
    a, error, _ = inner
    if not _gives_back(phi, a, error):
        return None
    a, error = a[:terms], error[:terms]
    tail_bound = math.inf
    for radius in map(float, RADII):
        circle = _circle(phi, radius, POINTS)
        if circle is None:
            break
        a, error = _better((a, error), _extend(circle, radius, terms))
        if radius > 1:
            tail_bound = min(tail_bound, circle[2] * float(_power(radius, -terms)) * radius / (radius - 1))
    return _with_tail(phi, a, error, tail_bound)


def _circle(phi: ScalarKernel, radius: float, n: int) -> tuple[np.ndarray, np.ndarray, float] | None:
    """a_j for j < n/2 from n points of a circle, their errors, and max |φ|; None where φ is not analytic."""
    z = radius * np.exp(2j * np.pi * np.arange(n) / n)
    try:
        with warnings.catch_warnings(), Continued():
            warnings.simplefilter("error")
            values, eps = evaluate(phi, z)
    except Exception:
        # Whatever φ cannot do with complex numbers, it can still be known by its real values.
        return None
    frequencies = np.fft.fft(values) / n
    size = float(np.abs(values).max())
    # The frequencies just below zero alias with a_j r^j for j near n, where r^n is ε or φ converges anyhow.
    noise = float(np.abs(frequencies[-n // 16 :]).max()) + eps * size
    if not noise <= (ANALYTIC + 64 * eps) * size:
        return None
    scale = _power(radius, -np.arange(n // 2))
    return frequencies[: n // 2].real * scale, 2 * noise * scale, size


def _gives_back(phi: ScalarKernel, a: np.ndarray, error: np.ndarray) -> bool:
    """Whether Σ_j a_j t^j is φ(t) at real t; an |z|² inside φ passes on every circle, but not here."""
    t = 0.7 * np.cos(np.pi * (np.arange(16) + 0.5) / 16)
    values, eps = evaluate(phi, t)
    short = a[:POINTS]
    tolerance = 100 * (eps * np.abs(short).sum() + error[0])
    return bool(np.abs(np.polynomial.polynomial.polyval(t, short) - values).max() <= tolerance)


def _extend(
    circle: tuple[np.ndarray, np.ndarray, float], radius: float, terms: int
) -> tuple[np.ndarray, np.ndarray]:
    """The coefficients of a circle; beyond those it gives, 0 with Cauchy's bound max |φ| r^-j."""
    a, error, size = circle
    rest = np.arange(len(a), max(terms, len(a)))
    return np.append(a, 0.0 * rest)[:terms], np.append(error, size * _power(radius, -rest))[:terms]


def _better(
    one: tuple[np.ndarray, np.ndarray], two: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    return np.where(one[1] <= two[1], one[0], two[0]), np.minimum(one[1], two[1])


def _with_tail(phi: ScalarKernel, a: np.ndarray, error: np.ndarray, bound: float) -> PowerSeries:
    """The sums of the coefficients beyond the last: what is missing of φ(1) and φ(-1)."""
    (one, minus), eps = evaluate(phi, np.array([1.0, -1.0]))
    rounding = float(np.linalg.norm(error)) + eps * (abs(one) + abs(minus) + np.abs(a).sum())
    if bound <= rounding:
        return PowerSeries(a, error, 0.0, 0.0, bound)
    even, odd = (one + minus) / 2 - a[0::2].sum(), (one - minus) / 2 - a[1::2].sum()
    return PowerSeries(a, error, float(even), float(odd), rounding)


def _power(radius: float, exponents: np.ndarray | int) -> np.ndarray:
    # Kept within e^±600: products with it neither overflow nor turn 0 into NaN.
    return np.exp(np.clip(np.asarray(exponents) * math.log(radius), -600, 600))


GUARDS = {"clamp", "clip", "clamp_min", "clamp_max"}
COMPARISONS = {"gt", "ge", "lt", "le", "greater", "greater_equal", "less", "less_equal"}
EXTREMES = {"maximum": torch.ge, "minimum": torch.le}


class Continued(TorchFunctionMode):
    """Continues to complex arguments what torch defines for real ones only.

    Guards are inactive inside the disc: clamp is the identity, comparisons look at the real parts, so do maximum
    and minimum, and complex numbers pass for floating point. The angle is atan2(y, x) = -i log((x + iy)/√(x² + y²)).
    """

    def __torch_function__(self, func, types, args=(), kwargs=None):
        """Runs func, or its continuation where one of its arguments is complex."""
        name = getattr(func, "__name__", "").strip("_")  # clamp_ and __gt__ are clamp and gt
        if not any(isinstance(value, Tensor) and value.is_complex() for value in args):
            return func(*args, **(kwargs or {}))
        if name in GUARDS:
            return args[0]
        if name == "is_floating_point":
            return True
        if name in COMPARISONS:
            return func(*map(_real, args))
        if name in EXTREMES:
            one, two = args
            return torch.where(EXTREMES[name](_real(one), _real(two)), one, two)
        if name in ("atan2", "arctan2"):
            y, x = args
            return -1j * torch.log((x + 1j * y) / torch.sqrt(x * x + y * y))
        return func(*args, **(kwargs or {}))


def _real(value: Any) -> Any:
    return value.real if isinstance(value, Tensor | complex) else value
