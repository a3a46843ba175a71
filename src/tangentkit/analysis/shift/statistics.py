"""Statistics of a division of points into two samples, for many divisions at once, and p-values by permutation.

A division is a column of 0 and 1; the first column is the true one. All divisions have as many points of either
sample in every fold as the true one, so that each is as likely under no shift, and cross-validation is fair to each.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from scipy import stats

from tangentkit.analysis.shift.pooled import Strip
from tangentkit.core.seeds import Key

FOLDS = 5
TOGETHER = 64
"""Divisions whose distribution functions are compared at a time."""


def folds_of(sizes: tuple[int, int], seed: int) -> list[NDArray[np.int64]]:
    """The points of every fold: an equal part of both samples, by chance."""
    from sklearn.model_selection import StratifiedKFold

    labels = np.repeat([1, 0], sizes)
    state = int(Key(seed).fold("folds").entropy % 2**32)
    splits = StratifiedKFold(FOLDS, shuffle=True, random_state=state).split(labels, labels)
    return [test for _, test in splits]


def divisions(
    sizes: tuple[int, int], folds: Sequence[NDArray], count: int, seed: int
) -> Bool[np.ndarray, "n t"]:
    """The true division and `count` others, points exchanged at random within every fold: (n, 1 + count)."""
    true = np.repeat([True, False], sizes)
    found = np.repeat(true[:, None], 1 + count, axis=1)
    for i, fold in enumerate(folds):
        chance = Key(seed).fold("divisions", i).numpy()
        found[fold, 1:] = chance.permuted(found[fold, 1:], axis=0)
    return found


def largest_ks(scores: Float[np.ndarray, "n r"], Z: Bool[np.ndarray, "n t"]) -> Float[np.ndarray, " t"]:
    """max over components of sup |F_P - F_M|, the Kolmogorov-Smirnov statistic, of every division."""
    found = np.zeros(Z.shape[1])
    n = Z[:, 0].sum()
    m = len(Z) - n
    for score in scores.T:
        order = np.argsort(score, kind="stable")
        last = np.append(np.diff(score[order]) > 0, True)  # of equal scores the last
        below = np.arange(1, len(Z) + 1)[last, None]
        for start in range(0, Z.shape[1], TOGETHER):
            part = slice(start, start + TOGETHER)
            P = np.cumsum(Z[order, part], axis=0, dtype=np.int64)[last]
            found[part] = np.maximum(found[part], np.abs(P / n - (below - P) / m).max(0))
    return found


class PairSums:
    """Sums of a symmetric matrix A over pairs of points, within and between the samples of every division.

    From them the statistic mean_PP + mean_MM - 2 mean_PM, without the pairs of a point with itself: the unbiased
    squared MMD where A is a kernel, the energy distance where A is minus a distance.
    """

    def __init__(self, Z: Float[np.ndarray, "n t"]):
        self.Z = Z
        n, t = Z.shape
        self.n, self.m = int(Z[:, 0].sum()), int(n - Z[:, 0].sum())
        self.within_P, self.of_P, self.own_P = np.zeros(t), np.zeros(t), np.zeros(t)
        self.total = self.own = 0.0
        self.to_P, self.to_all, self.diagonal = np.zeros(n), np.zeros(n), np.zeros(n)

    def add(self, rows: slice, A: Float[np.ndarray, "b n"]) -> None:
        """Adds some rows of the matrix."""
        Z, to_P, to_all = self.Z[rows], A @ self.Z, A.sum(1)
        own = A[np.arange(len(A)), np.arange(rows.start, rows.stop)]
        self.within_P += np.einsum("bt,bt->t", Z, to_P)
        self.of_P += to_all @ Z
        self.own_P += own @ Z
        self.total += float(to_all.sum())
        self.own += float(own.sum())
        self.to_P[rows], self.to_all[rows], self.diagonal[rows] = to_P[:, 0], to_all, own

    def statistic(self) -> Float[np.ndarray, " t"]:
        """mean_PP + mean_MM - 2 mean_PM of every division."""
        n, m = self.n, self.m
        between = self.of_P - self.within_P
        PP = self.within_P - self.own_P
        MM = self.total - 2 * self.of_P + self.within_P - (self.own - self.own_P)
        return PP / (n * (n - 1)) + MM / (m * (m - 1)) - 2 * between / (n * m)

    def witness(self) -> Float[np.ndarray, " n"]:
        """mean_P A(x, ·) - mean_M A(x, ·) at every point, which is itself left out: where P has more mass than M."""
        z = self.Z[:, 0]
        P = (self.to_P - z * self.diagonal) / (self.n - z)
        M = (self.to_all - self.to_P - (1 - z) * self.diagonal) / (self.m - (1 - z))
        return P - M


def pair_sums(strips: Iterator[Strip], Z: Bool[np.ndarray, "n t"]) -> tuple[PairSums, PairSums]:
    """Sums of similarities, and of negative distances, in one walk over all pairs."""
    numbers = Z.astype(np.float64)
    similar, near = PairSums(numbers), PairSums(numbers)
    for strip in strips:
        similar.add(strip.rows, strip.similarities)
        near.add(strip.rows, -strip.distances)
    return similar, near


def cross_validated_auc(
    scores: Float[np.ndarray, "n r"], Z: Bool[np.ndarray, "n t"], folds: Sequence[NDArray]
) -> Float[np.ndarray, "f t"]:
    """The area under the ROC curve in every fold of a linear classifier trained on the others, for every division.

    The classifier is ridge regression to 0 and 1 on whitened components, which is Fisher's discriminant but for the
    ridge: one factorization serves all divisions.
    """
    from sklearn.linear_model import Ridge

    white = scores / np.abs(scores).max(0)  # whose squares are within the range of numbers
    white /= white.std(0)
    areas = []
    for fold in folds:
        others = np.setdiff1d(np.arange(len(Z)), fold)
        machine = Ridge(alpha=1.0).fit(white[others], Z[others].astype(np.float64))
        ranks = stats.rankdata(machine.predict(white[fold]).reshape(len(fold), -1), axis=0)
        n = int(Z[fold, 0].sum())
        above = (ranks * Z[fold]).sum(0) - n * (n + 1) / 2
        areas.append(above / (n * (len(fold) - n)))
    return np.stack(areas)


def permutation_p_values(statistics: Float[np.ndarray, "k t"]) -> tuple[Float[np.ndarray, " k"], float]:
    """The p-value of every statistic for the first division, and one for all of them.

    p = #{divisions with a statistic at least as large} / #{divisions}, the true one counted. The one for all is that
    of the smallest p-value over statistics, referred to the smallest of every division (Westfall, Young 1993): exact,
    however the statistics depend on each other, where Bonferroni's correction would lose power.

    Example:
        >>> each, one = permutation_p_values(np.array([[3.0, 1.0, 2.0, 0.0], [1.0, 2.0, 3.0, 4.0]]))
        >>> each.tolist(), one
        ([0.25, 1.0], 0.5)
    """
    # Sums in another order differ by rounding: equal divisions must be equal.
    scale = np.abs(statistics).max(1, keepdims=True)
    rounded = np.round(statistics / np.where(scale > 0, scale, 1.0), 10)
    p = stats.rankdata(-rounded, method="max", axis=1) / statistics.shape[1]
    smallest = p.min(0)
    return p[:, 0], float((smallest <= smallest[0]).mean())
