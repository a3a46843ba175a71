"""How a scalar kernel spreads its variance over polynomial degrees, on the cube and on the sphere.

On a space of which every point looks like every other, the kernel φ(<x, y>/d) has one eigenspace per degree.
Let P_k(t) be its zonal polynomial with P_k(1) = 1. Then φ = Σ_k v_k P_k, where v_k = (eigenvalue) × (size of
the eigenspace) is the variance in degree k, and Σ_k v_k = φ(1). Multiplication by t moves one degree up or
down with probabilities that sum to one,

    t P_k = up_k P_{k+1} + (1 - up_k) P_{k-1},

so t^j spreads over degrees like a walk of j steps that starts at degree 0, and v = φ(A) e_0 with A the matrix
of the walk. Two routes compute it, each with an error for each degree; the better one is taken:

- *series*: v = Σ_j a_j A^j e_0 with a_j >= 0. Nothing cancels: every number in it is positive.
- *direct*: the spectral form of A, which is a sum of φ over nodes. It needs only real t, but v_k inherits the
  rounding of φ times the square root of the size of the eigenspace, 2.6e17 at d = 1024, k = 16.
"""

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from tangentkit.core.errors import NumericalError
from tangentkit.core.whole_numbers import as_count
from tangentkit.infinite.scalar.series import PowerSeries, ScalarKernel, evaluate, power_series
from tangentkit.linalg.operators.checks import rounding

HIDDEN = 1e-6  # a share of the variance that rounding may hide without a warning


class ResolutionWarning(UserWarning):
    """Rounding of the scalar kernel hides some degrees; they come as 0."""


@dataclass(frozen=True)
class Space(ABC):
    """A space of dimension d whose points all look alike, as the degrees of its functions see it."""

    d: int
    """The dimension of the space around it: points are vectors of d numbers."""

    def __post_init__(self) -> None:
        d = as_count(self.d, f"dimension of a {type(self).__name__.lower()}", least=self.smallest)
        object.__setattr__(self, "d", d)

    smallest = 1

    @property
    @abstractmethod
    def highest(self) -> int | None:
        """The highest degree, or None where there is none."""

    @abstractmethod
    def sizes(self, top: int) -> list[int]:
        """The sizes of the eigenspaces of degree 0..top: their multiplicities, exact."""

    @abstractmethod
    def up(self, k: np.ndarray) -> np.ndarray:
        """The probability that multiplication by t takes degree k to k + 1."""

    @abstractmethod
    def steps(self, top: int) -> int:
        """The number of steps after which the walk has left the degrees up to `top`, or forgotten its start."""

    @abstractmethod
    def rest(self, top: int) -> np.ndarray:
        """Where walks of very many steps, all even or all odd, end among the degrees of their parity."""

    @abstractmethod
    def direct(self, phi: ScalarKernel, top: int) -> tuple[np.ndarray, np.ndarray]:
        """The variances of degree 0..top from φ at real nodes, and their errors (inf where none are left)."""


@dataclass(frozen=True)
class DegreeVariances:
    """The variance v_k of each degree, with the error of each, and the total φ(1).

    A degree whose value is not larger than its error is 0.
    """

    values: Float[Tensor, " k"]
    errors: Float[Tensor, " k"]
    total: float

    @property
    def shares(self) -> Float[Tensor, " k"]:
        """v_k / φ(1)."""
        return self.values / self.total


def degree_variances(phi: ScalarKernel, space: Space, *, top: int) -> DegreeVariances:
    """v_0..v_top of φ(t) = Σ_k v_k P_k(t).

    Args:
        phi: the kernel as an elementwise function of t = <x, y>/d. Where it also takes complex tensors every
            degree is accurate to about 1e-12 of the total, or better; otherwise see `direct` above. The errors
            count the rounding of φ, not what else may be wrong with it (a quadrature inside, say).
        space: `Cube(d)` or `Sphere(d)`.
        top: the highest degree.

    Raises:
        InputError: top is out of range, or φ changes the shape of its argument.
        NumericalError: φ is not finite, or not a kernel: a degree has negative variance.

    Example:
        >>> from tangentkit.infinite.scalar.cube import Cube
        >>> degree_variances(lambda t: t**2, Cube(4), top=2).values
        tensor([0.2500, 0.0000, 0.7500], dtype=torch.float64)
    """
    top = as_count(top, "highest degree", least=0, most=space.highest)
    total = float(evaluate(phi, np.array([1.0]))[0][0])
    values, errors = space.direct(phi, top)
    series = power_series(phi, space.steps(top) + 1)
    if series is not None:
        others, their_errors = _spread(series, space, top)
        # Trust, then verify: a φ that is patched together of several formulas may have a series of only one.
        if (np.abs(others - values) <= 100 * (their_errors + errors) + 1e-10 * abs(total)).all():
            values = np.where(their_errors < errors, others, values)
            errors = np.minimum(their_errors, errors)
    _check_kernel(values, errors, total)
    _warn_of_hidden(errors, total)
    values = np.where(values > errors, values, 0.0)
    return DegreeVariances(torch.from_numpy(values), torch.from_numpy(errors), total)


def eigenvalues(variances: Float[Tensor, " k"], sizes: list[int]) -> Float[Tensor, " k"]:
    """μ_k = v_k / size_k, rounded once: sizes beyond the range of float64 are fine.

    Example:
        >>> eigenvalues(torch.tensor([1.0, 3.0], dtype=torch.float64), [1, 3 * 10**400])
        tensor([1., 0.], dtype=torch.float64)
    """
    ratios = (float(value).as_integer_ratio() for value in variances)
    quotients = [p / (q * size) if size else 0.0 for (p, q), size in zip(ratios, sizes, strict=True)]
    return torch.tensor(quotients, dtype=torch.float64)


def resolved(sizes: list[int], eps: float) -> int:
    """The highest degree of which the direct route keeps a digit: before ε √size reaches 1."""
    return next((k for k, size in enumerate(sizes) if eps**2 * size >= 1), len(sizes)) - 1


def _spread(series: PowerSeries, space: Space, top: int) -> tuple[np.ndarray, np.ndarray]:
    """v = Σ_j a_j A^j e_0 by Horner's rule, with what the walks beyond the last step add."""
    steps = len(series.coefficients) - 1
    last, before = np.zeros(steps + 1), np.zeros(steps + 1)
    last[-1], before[-2:-1] = 1, 1
    rows = np.stack([series.coefficients, series.errors, last, before])
    degrees = np.arange(min(steps, steps if space.highest is None else space.highest) + 1)
    up, down = space.up(degrees)[:-1], 1 - space.up(degrees)[1:]

    v = np.zeros((4, len(degrees)))
    for column in rows.T[::-1]:
        moved = np.zeros_like(v)
        moved[:, 1:] = v[:, :-1] * up
        moved[:, :-1] += v[:, 1:] * down
        moved[:, 0] += column
        v = moved

    v = np.pad(v, ((0, 0), (0, max(0, top + 1 - v.shape[1]))))[:, : top + 1]
    rest = space.rest(top)
    missing = np.where(np.arange(top + 1) % 2 == 0, series.even, series.odd)
    values = v[0] + missing * rest
    unsettled = np.abs(missing) * np.abs(v[2] + v[3] - rest)
    arithmetic = 4 * np.finfo(float).eps * np.sqrt(steps + 1) * np.abs(values)
    return values, v[1] + series.tail_error * np.maximum(rest, v[2] + v[3]) + unsettled + arithmetic


def _check_kernel(values: np.ndarray, errors: np.ndarray, total: float) -> None:
    worst = int(np.argmin(values + 10 * errors))
    size = max(abs(total), float(np.abs(values[np.isfinite(errors)]).max(initial=0.0)))
    if values[worst] + 10 * errors[worst] < -rounding(torch.float64) * size:
        raise NumericalError(
            "the scalar function is not a positive semi-definite kernel",
            expected="variance >= 0 in every degree, to rounding",
            got=f"{values[worst]:.3g} in degree {worst} (φ(1) = {total:.3g})",
        )


def _warn_of_hidden(errors: np.ndarray, total: float) -> None:
    hidden = np.flatnonzero(errors > HIDDEN * abs(total))
    if len(hidden) and total:
        first = int(hidden[0])
        lower = f"top={first - 1}, or " if first else ""
        warnings.warn(
            f"rounding of the scalar kernel is {errors[first] / abs(total):.1g} of the variance in degree {first} "
            f"and more beyond; degrees that it hides come as 0. Try: {lower}a φ of float64 that takes complex "
            "tensors too",
            ResolutionWarning,
            stacklevel=4,
        )
