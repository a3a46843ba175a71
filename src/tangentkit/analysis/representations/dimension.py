"""Intrinsic dimensions of a cloud of points: by nearest neighbors (TwoNN) and by variances (participation ratio)."""

from typing import Any

import numpy as np
import torch

from tangentkit.analysis.features import read_features
from tangentkit.core.errors import InputError, NumericalError
from tangentkit.linalg.spectra.labels import near_one

BLOCK = 1024
"""Rows or columns whose products are summed at a time."""
FEWEST = 10
"""Points below which a slope through the neighbors' distances says nothing."""


def two_nn(features: Any, *, discard: float = 0.1) -> float:
    """The dimension of the set that points lie on, by their two nearest neighbors (Facco et al. 2017).

    The ratio μ = r₂/r₁ of the distances of a point's two nearest neighbors has P(μ > t) = t^(-d) where the density is
    nearly constant over that range. d is the slope, through 0, of -ln(1 - F(μ)) over ln μ without the largest ratios.
    Of points that occur more than once, one counts.

    Args:
        features: (n, d).
        discard: the share of the largest ratios that are left out.

    Raises:
        InputError: fewer than ten different points, or a bad share.
        NumericalError: features are not finite, or all ratios are 1.

    Example:
        >>> plane = torch.rand(2000, 2) @ torch.randn(2, 50)
        >>> abs(two_nn(plane) - 2) < 0.25
        True
    """
    from sklearn.neighbors import NearestNeighbors

    if not 0 <= discard < 1:
        raise InputError("bad share", expected="0 <= discard < 1", got=discard)
    points = np.unique(near_one(read_features(features)).numpy(), axis=0)
    if len(points) < FEWEST:
        raise InputError(
            "too few points for TwoNN", expected=f"{FEWEST} different points or more", got=len(points)
        )
    near = NearestNeighbors(n_neighbors=2).fit(points).kneighbors(return_distance=True)[0]
    # Equal to rounding, though not equal: distances of neighbors may be 0 all the same.
    near = near[near[:, 0] > 0]
    ratios = np.sort(np.log(near[:, 1] / near[:, 0]))
    n = len(ratios)
    kept = max(1, int(n * (1 - discard))) if discard else n - 1
    x, y = ratios[:kept], -np.log1p(-np.arange(1, kept + 1) / n)
    if not x @ x > 0:
        raise NumericalError(
            "TwoNN has no slope", got="two nearest neighbors at one distance, for every point"
        )
    return float(x @ y / (x @ x))


def participation_ratio(features: Any) -> float:
    """(Σ λ)² / Σ λ² over the eigenvalues λ of the covariance: the number of directions that share the variance.

    Args:
        features: (n, d).

    Raises:
        InputError: fewer than two points.
        NumericalError: features are not finite, or constant.

    Example:
        >>> round(participation_ratio(torch.eye(5)), 6)
        4.0
    """
    h = near_one(read_features(features))
    if len(h) < 2:
        raise InputError("too few points for a variance", expected="2 or more", got=len(h))
    mean = h.mean(0, dtype=torch.float64)
    n, d = h.shape
    # ‖XᵀX‖ = ‖XXᵀ‖: by the smaller of both, summed over blocks of the longer side.
    side, axis = (n, 1) if n < d else (d, 0)
    gram = torch.zeros(side, side, dtype=torch.float64)
    for part, middle in zip(h.split(BLOCK, axis), mean.expand(n, d).split(BLOCK, axis), strict=True):
        centered = part - middle
        gram += centered @ centered.T if axis else centered.T @ centered
    total = float(gram.trace())
    if not total > 0:
        raise NumericalError("features are constant", expected="a variance above 0")
    return total**2 / float(gram.square().sum())
