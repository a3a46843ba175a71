"""The surroundings of every sample: its nearest neighbors, and the laws of their distances.

Where the density is nearly constant, volumes up to the neighbors of a sample are points of a Poisson process. With m
dimensions and distances d_1 <= ... <= d_k the spacings j (log d_{j+1} - log d_j), j = 1..k-1, are then independent
and exponential, all with the mean 1/m. So one spacing over the mean of the others has an F law, whatever m is.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy import stats
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
SHOULDER = (0.8, 0.9)
"""The quantiles between which the fall of a law is measured: what is beyond may be what is sought."""


@dataclass(frozen=True, eq=False)
class Surroundings:
    """Distances to the nearest samples, the nearest first, and their numbers."""

    distances: Float[np.ndarray, "n k"]
    indices: Int[np.ndarray, "n k"]


def surroundings(
    points: Float[Tensor, "n d"], *, budget: Budget, progress: bool | Progress = False
) -> Surroundings:
    """The nearest other points of every point, as many as `NEIGHBORS`."""
    n = len(points)
    k = min(NEIGHBORS, n - 1)
    # x·y - |y|²/2 is the larger the nearer y is to x.
    half = points.square().sum(1, keepdim=True) / 2
    nearness = FactorOperator(torch.cat([points, torch.ones_like(half)], 1), torch.cat([points, -half], 1))
    found = neighbors(nearness, k=k + 1, progress=progress).indices
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


def standardized(points: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Points less their mean, over their distance from it in the root mean square.

    Example:
        >>> standardized(torch.tensor([[1.0], [3.0]]))
        tensor([[-1.],
                [ 1.]])
    """
    centered = points - points.mean(0)
    size = centered.abs().max().clamp_min(torch.finfo(points.dtype).tiny)
    scaled = centered / size  # before squares, which would overflow
    return scaled / scaled.square().sum(1).mean().sqrt().clamp_min(torch.finfo(points.dtype).tiny)


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

    It is the p-value of the widest gap after the first 1, ..., `largest` neighbors (`widest_gap`). A gap ends, at the
    latest, where neighbors usually are, at the median of all samples: a few that are as near to each other as others
    are, and far from all others, are no copies.

    Example:
        >>> near = np.sort(np.random.default_rng(0).random((1, 24)) ** (1 / 5))
        >>> p, size = closeness(np.insert(near, 0, 1e-3, axis=1), 4)
        >>> bool(p[0] < 1e-4), int(size[0])
        (True, 1)
    """
    return widest_gap(distances, largest, np.median(distances, axis=0))


def widest_gap(
    distances: Float[np.ndarray, "n k"], largest: int, usual: Float[np.ndarray, " k"] | None = None
) -> tuple[Float[np.ndarray, " n"], Int[np.ndarray, " n"]]:
    """The p-value of the widest gap after the first 1, ..., `largest` neighbors, and after how many it comes.

    The gap is measured by the other spacings, and its p-value counts as often as there are gaps (Bonferroni).

    Args:
        distances: of the neighbors, the nearest first.
        largest: the last neighbor after which there may be a gap.
        usual: distances at which gaps end; None for those of the next neighbors.
    """
    k = distances.shape[1]
    largest = min(largest, k - 2)
    if largest < 1:
        return np.ones(len(distances)), np.zeros(len(distances), int)
    logs = np.log(distances)
    spacings = np.arange(1, k) * np.diff(logs, axis=1)
    rest = (spacings.sum(1, keepdims=True) - spacings[:, :largest]) / (k - 2)
    inner, outer = logs[:, :largest], logs[:, 1 : largest + 1]
    if usual is not None:
        outer = np.clip(np.log(usual[1 : largest + 1]), inner, outer)
    gaps = np.arange(1, largest + 1) * (outer - inner)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(rest > 0, gaps / rest, np.where(gaps > 0, np.inf, 0.0))
    p = stats.f.sf(ratio, 2, 2 * (k - 2))
    best = p.argmin(1)
    return np.minimum(1.0, largest * p[np.arange(len(p)), best]), best + 1


def remoteness(values: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """P(a value at least as large) under the law of most values, as far as it can be bounded.

    Where a density is log-concave, as those of normal, gamma and Gumbel laws are, the logarithm of P(X > t) falls
    ever faster. So beyond its shoulder, from the quantile a at 80 % to b at 90 %, it is below the line through both:

        p = 0.1 exp(-λ (value - b)),  λ = log 2 / (b - a).

    Up to b it is the share of larger values. Strangers beyond b, up to a tenth of all, only make it larger.

    Example:
        >>> values = np.random.default_rng(0).normal(size=4000)
        >>> p = remoteness(np.append(values, 9.0))
        >>> bool(p[-1] < 1e-5), bool((p < 0.01).mean() < 0.01)
        (True, True)
    """
    order = np.sort(values)
    shares = 1 - np.searchsorted(order, values) / len(values)
    a, b = np.quantile(values, SHOULDER)
    if not b > a:
        return shares
    above = 1 - np.array(SHOULDER)
    rate = np.log(above[0] / above[1]) / (b - a)
    return np.where(values > b, above[1] * np.exp(-rate * (values - b)), shares)
