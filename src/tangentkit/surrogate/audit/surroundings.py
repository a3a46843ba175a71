"""The surroundings of every sample: its nearest neighbors, and the laws of their distances.

Where the density is nearly constant, volumes up to the neighbors of a sample are the points of a Poisson process. Then
with m dimensions and distances d_1 <= ... <= d_k the spacings j (log d_{j+1} - log d_j), j = 1..k-1, are independent
and exponential, all with the mean 1/m. So one spacing over the mean of the others has an F law, whatever m is.
"""

from dataclasses import dataclass

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
CENTER = (0.05, 0.95)
"""The quantiles between which the law of distances is fitted: what is beyond may be what is sought."""


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
    return Surroundings(distances.gather(1, order).clamp_min(ROUNDING).numpy(), others.gather(1, order).numpy())


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

    The p-value is that of the widest gap, relative to the other spacings, after the first 1, ..., `largest` neighbors,
    times their number (Bonferroni).

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
        ratio = np.where(rest > 0, spacings[:, :largest] / rest, np.where(spacings[:, :largest] > 0, np.inf, 0.0))
    p = stats.f.sf(ratio, 2, 2 * (k - 2))
    best = p.argmin(1)
    return np.minimum(1.0, largest * p[np.arange(len(p)), best]), best + 1


def remoteness(values: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """P(a value at least as large) under the law of the bulk: a gamma law, shifted, scaled, also of falling skew.

    Of Gaussian clusters the logarithm of the distance to the k-th neighbor is near to such a law (Pearson's third). It
    is fitted by maximum likelihood to the values between two quantiles, as a truncated sample, so that a few
    percent of strangers do not change it.
    """
    low, high = np.quantile(values, CENTER)
    inside = values[(values >= low) & (values <= high)]
    if not high > low:
        return np.ones(len(values))
    middle, spread = float(np.median(inside)), float(inside.std())
    z = (inside - middle) / spread
    ends = (np.array([low, high]) - middle) / spread

    def loss(p: np.ndarray) -> float:
        law = stats.pearson3(p[0], loc=p[1], scale=np.exp(p[2]))
        with np.errstate(all="ignore"):
            mass = law.cdf(ends[1]) - law.cdf(ends[0])
            value = np.log(mass) - law.logpdf(z).mean() if mass > 0 else np.inf
        return float(value) if np.isfinite(value) else 1e9

    found = optimize.minimize(loss, [0.5, 0.0, 0.0], method="Nelder-Mead", options={"maxiter": 600})
    law = stats.pearson3(found.x[0], loc=found.x[1], scale=np.exp(found.x[2]))
    return np.clip(law.sf((values - middle) / spread), 0.0, 1.0)
