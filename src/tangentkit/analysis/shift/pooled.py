"""Two samples pooled to one: principal components, distances and similarities of all pairs, in blocks of rows.

Whatever is chosen here (components, the width of a kernel) is chosen without looking at which sample a point is from:
under no shift every division of the points is then as likely as the true one, which permutation tests rest on.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray

from tangentkit.analysis.features import read_features
from tangentkit.analysis.half_precision import at_least_float32
from tangentkit.compute.gram import gram
from tangentkit.compute.kernel import Kernel
from tangentkit.core.batches import Batch, as_batch, batch_size, concatenate
from tangentkit.core.errors import InputError, NumericalError
from tangentkit.core.memory import Budget
from tangentkit.core.seeds import Key
from tangentkit.linalg.operators.spans import spans
from tangentkit.linalg.spectra.labels import near_one

Matrix = NDArray[np.float64]

FOR_WIDTH = 1000
"""Points whose distances give the width of the Gaussian kernel."""
COPIES = 6
"""Strips that are there at once: distances, similarities, and what they are made of."""


@dataclass(frozen=True, eq=False)
class Strip:
    """Some rows of the matrices of all pairs."""

    rows: slice
    distances: Float[np.ndarray, "b n"]
    similarities: Float[np.ndarray, "b n"]


class Pooled(Protocol):
    """Points of two samples, those of P first."""

    sizes: tuple[int, int]
    similarity: str
    """What similarities are, in words."""

    def components(self, most: int) -> tuple[Matrix, NDArray]:
        """Scores (n, r) along the first principal components, and the share of variance of each (r,)."""
        ...

    def strips(self, budget: Budget) -> Iterator[Strip]:
        """All pairs, as many rows at a time as fit the budget."""
        ...


class PooledFeatures:
    """Points with features: Euclidean distances, and a Gaussian kernel as wide as their median.

    Args:
        P: (n, d).
        M: (m, d).
        seed: of the points that give the width.
    """

    def __init__(self, P: Any, M: Any, seed: int):
        p, m = read_features(P, "features of P"), read_features(M, "features of M")
        if p.shape[1] != m.shape[1]:
            raise InputError(
                "P and M do not have the same features",
                expected=f"(m, {p.shape[1]}) as of P",
                got=tuple(m.shape),
            )
        self.sizes = len(p), len(m)
        points = torch.cat([p.double(), m.double()])
        self.points: Matrix = near_one(points).numpy()
        self.unit = float(points.abs().max() / (np.abs(self.points).max() or 1.0))
        """What the points are measured in: squares of distances must stay within the range of numbers."""
        # About the mean, where squares of distances keep their digits.
        self.points -= self.points.mean(0)
        if not np.any(np.ptp(self.points, axis=0) > 8 * np.finfo(np.float32).eps * np.abs(self.points).max()):
            raise NumericalError("features are constant", expected="points that differ")
        self.width = self._median_distance(seed) * self.unit
        self.similarity = f"Gaussian kernel of width {self.width:.3g}, the median distance"

    def components(self, most: int) -> tuple[Matrix, NDArray]:
        """The principal components of the pooled points."""
        from sklearn.decomposition import PCA

        n, d = self.points.shape
        most = min(most, n - 1, d)
        tall, few = d <= n, most < min(n, d)
        solver = "covariance_eigh" if tall else "arpack" if few else "full"
        pca = PCA(most, svd_solver=solver, random_state=0).fit(self.points)
        scores, shares = _of_variance(pca.transform(self.points), pca.explained_variance_ratio_)
        return scores * self.unit, shares

    def strips(self, budget: Budget) -> Iterator[Strip]:
        """Euclidean distances D and exp(-D²/2w²)."""
        from sklearn.metrics import pairwise_distances

        n = len(self.points)
        for rows in spans(n, budget.rows(8 * n, copies=COPIES)):
            D = pairwise_distances(self.points[rows], self.points)
            D[np.arange(rows.stop - rows.start), np.arange(rows.start, rows.stop)] = 0.0
            D *= self.unit
            yield Strip(rows, D, np.exp(-0.5 * np.square(D / self.width)))

    def _median_distance(self, seed: int) -> float:
        from scipy.spatial.distance import pdist

        n = len(self.points)
        some = Key(seed).fold("width").numpy().choice(n, min(n, FOR_WIDTH), replace=False)
        found = pdist(self.points[some])
        # Where most points are equal the median is 0, and any other distance says more.
        return float(np.median(found)) or float(found.mean()) or 1.0


class PooledKernel:
    """Points known by a kernel: its values, and the distances that it induces, √(k(x, x) + k(y, y) - 2 k(x, y)).

    Args:
        kernel: of one number for each pair.
        P: a batch that the kernel takes.
        M: likewise.
    """

    def __init__(self, kernel: Kernel, P: Batch, M: Batch):
        p, m = as_batch(P), as_batch(M)
        self.sizes = batch_size(p), batch_size(m)
        operator = gram(at_least_float32(kernel), concatenate([p, m]), progress=False)
        n = sum(self.sizes)
        if operator.shape != (n, n):
            raise InputError(
                "a comparison needs one number for each pair of samples",
                expected='a kernel such as outputs="trace"',
                got="a kernel between outputs",
            )
        self.K: Matrix = operator.dense().detach().cpu().double().numpy()
        self.similarity = repr(kernel)

    def components(self, most: int) -> tuple[Matrix, NDArray]:
        """The kernel's principal components."""
        from sklearn.decomposition import KernelPCA

        n = len(self.K)
        total = float(np.trace(self.K) - self.K.sum() / n)
        if not total > 8 * n * np.finfo(np.float32).eps * np.abs(self.K).max():
            raise NumericalError(
                "the kernel is constant over all samples", expected="samples that it tells apart"
            )
        pca = KernelPCA(min(most, n - 1), kernel="precomputed", eigen_solver="dense")
        return _of_variance(pca.fit_transform(self.K), np.asarray(pca.eigenvalues_) / total)

    def strips(self, budget: Budget) -> Iterator[Strip]:
        """Kernel values and the distances that they induce."""
        diagonal = self.K.diagonal()
        for rows in spans(len(self.K), budget.rows(8 * len(self.K), copies=COPIES)):
            squares = diagonal[rows, None] + diagonal[None] - 2 * self.K[rows]
            yield Strip(rows, np.sqrt(np.maximum(squares, 0.0)), self.K[rows])


def _of_variance(scores: Matrix, shares: NDArray) -> tuple[Matrix, NDArray]:
    """The components that have a variance beyond rounding."""
    # Kernels of float32 models have its rounding.
    real = int((shares > 8 * np.finfo(np.float32).eps * shares[0]).sum())
    return scores[:, :real], shares[:real]
