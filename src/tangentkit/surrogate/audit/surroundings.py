"""The surroundings of every sample: its nearest neighbors, and the laws of their distances.

Where the density is nearly constant, volumes up to the neighbors of a sample are points of a Poisson process. With m
dimensions and distances d_1 <= ... <= d_k the spacings j (log d_{j+1} - log d_j), j = 1..k-1, are then independent
and exponential, all with the mean 1/m. So one spacing over the mean of the others has an F law, whatever m is.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy import optimize, stats
from torch import Tensor

from tangentkit.core.memory import Budget
from tangentkit.core.progress import Progress
from tangentkit.linalg.operators.matrices import FactorOperator
from tangentkit.surrogate.audit.evidence import strips
from tangentkit.surrogate.nearest import neighbors

NEIGHBORS = 25
"""Neighbors that are looked at."""
ROUNDING = 1e-6
"""Distances below which float32 features are equal."""
SLOWEST, FASTEST = 1e-6, 700.0
"""Rates times the length of the shoulder, beyond which there is none to speak of."""
SHOULDER = (0.8, 0.95)
"""The quantiles between which the fall of a law is measured: what is beyond may be what is sought."""


@dataclass(frozen=True, eq=False)
class Surroundings:
    """Distances to the nearest samples, the nearest first, and their numbers."""

    distances: Float[np.ndarray, "n k"]
    indices: Int[np.ndarray, "n k"]


def surroundings(
    points: Float[Tensor, "n d"], *, budget: Budget, progress: bool | Progress = False
) -> Surroundings:
    """The nearest other points of every point on a sphere, as many as `NEIGHBORS`."""
    n = len(points)
    k = min(NEIGHBORS, n - 1)
    found = neighbors(FactorOperator(points), k=k + 1, progress=progress).indices
    others = _without_self(found)
    # Of near points 2 - 2 cos is all rounding; the difference of their features is not.
    distances = torch.empty(n, k, dtype=torch.float64)
    for rows in strips(n, k * points.shape[1], budget):
        gaps = points[rows, None] - points[others[rows]]
        distances[rows] = torch.linalg.vector_norm(gaps.double(), dim=2)
    order = distances.argsort(1)
    return Surroundings(
        distances.gather(1, order).clamp_min(ROUNDING).numpy(), others.gather(1, order).numpy()
    )


def _without_self(found: Int[Tensor, "n l"]) -> Int[Tensor, "n k"]:
    """Without the point itself; where equal points have crowded it out, without the last."""
    n, size = found.shape
    own = found == torch.arange(n)[:, None]
    own[~own.any(1), -1] = True
    return found[~own].reshape(n, size - 1)


def closeness(
    distances: Float[np.ndarray, "n k"], largest: int
) -> tuple[Float[np.ndarray, " n"], Int[np.ndarray, " n"]]:
    """How likely it is that a sample has so close a group of neighbors by chance, and the size of that group.

    The p-value is that of the widest gap, relative to the other spacings, after the first 1, ..., `largest`
    neighbors, times their number (Bonferroni).

    Example:
        >>> near = np.sort(np.random.default_rng(0).random((1, 24)) ** (1 / 5))
        >>> p, size = closeness(np.insert(near, 0, 1e-3, axis=1), 4)
        >>> bool(p[0] < 1e-4), int(size[0])
        (True, 1)
    """
    k = distances.shape[1]
    largest = min(largest, k - 2)
    if largest < 1:
        return np.ones(len(distances)), np.zeros(len(distances), int)
    spacings = np.arange(1, k) * np.diff(np.log(distances), axis=1)
    total = spacings.sum(1, keepdims=True)
    rest = (total - spacings[:, :largest]) / (k - 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(
            rest > 0, spacings[:, :largest] / rest, np.where(spacings[:, :largest] > 0, np.inf, 0.0)
        )
    p = stats.f.sf(ratio, 2, 2 * (k - 2))
    best = p.argmin(1)
    return np.minimum(1.0, largest * p[np.arange(len(p)), best]), best + 1


def remoteness(values: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """P(a value at least as large) under the law of most values, as far as it can be bounded.

    Where a density is log-concave, as those of normal, gamma and Gumbel laws are, it falls ever faster: beyond its
    shoulder it is below the exponential that fits the shoulder. So with q the quantile at which that begins and the
    rate λ of the values from there to where strangers may begin,

        p = 0.2 exp(-λ (value - q)),

    at least as large as the true probability; below q it is the share of larger values.

    Example:
        >>> values = np.random.default_rng(0).normal(size=4000)
        >>> p = remoteness(np.append(values, 12.0))
        >>> bool(p[-1] < 1e-6), 0 < (p < 0.01).mean() < 0.01
        (True, True)
    """
    begin, end = np.quantile(values, SHOULDER)
    beyond = 1 - SHOULDER[0]
    order = np.sort(values)
    shares = 1 - np.searchsorted(order, values) / len(values)
    if not end > begin:
        return shares
    inside = values[(values >= begin) & (values <= end)] - begin
    rate = _exponential_rate(float(inside.mean()), float(end - begin))
    return np.where(values > begin, beyond * np.exp(-rate * (values - begin)), np.maximum(shares, beyond))


def _exponential_rate(mean: float, end: float) -> float:
    """The rate of an exponential law, of whose values between 0 and an end the mean is known; 0 if it would rise."""
    if mean >= end / 2:
        return 0.0

    def gap(u: float) -> float:  # of the mean, for the rate u / end
        return 1 / u - 1 / np.expm1(u) - mean / end

    if not gap(SLOWEST) > 0 > gap(FASTEST):
        return 0.0
    found: Any = optimize.brentq(gap, SLOWEST, FASTEST)
    return found / end
