"""Two samples compared: one p-value, the tests behind it, and the points that make the difference."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy import stats
from torch.utils.data import DataLoader, Dataset

from tangentkit.analysis.kolmogorov_smirnov import kolmogorov_smirnov
from tangentkit.analysis.shift.figures import DensityContours, DensityCurves, density
from tangentkit.analysis.shift.pooled import Pooled, PooledFeatures, PooledKernel
from tangentkit.analysis.shift.statistics import (
    cross_validated_auc,
    divisions,
    folds_of,
    largest_ks,
    pair_sums,
    permutation_p_values,
)
from tangentkit.compute.kernel import Kernel
from tangentkit.compute.sources import as_source, first_part
from tangentkit.core.errors import InputError, briefly
from tangentkit.core.memory import memory_budget
from tangentkit.report import Column, Measured, Table, drawn

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FEWEST = 10
"""Points of either sample: two in every fold."""
EXACT = 1000
"""Points up to which p-values of single components are exact; beyond it asymptotic ones agree."""

DIVISION = 16
"""Bytes for a point in one division: whether it is in P, the same as a number, and its products."""


@dataclass(frozen=True)
class ShiftTest:
    """One test of no shift."""

    statistic: float
    p_value: float
    """By permutation; not corrected for the other tests."""
    what: str


@dataclass(frozen=True)
class ComponentTest:
    """The Kolmogorov-Smirnov test along one principal component."""

    variance: float
    """The component's share of the variance."""
    statistic: float
    p_value: float
    false_discovery: float
    """The p-value adjusted over components (Benjamini, Hochberg): the share of false ones among all up to here."""


@dataclass(frozen=True, eq=False)
class Drivers:
    """The points that drive a difference, the strongest first."""

    P: Int[np.ndarray, " k"]
    """Numbers of points of P that are least like M."""
    P_scores: Float[np.ndarray, " k"]
    """By how much they are more similar to P than to M, in the mean."""
    M: Int[np.ndarray, " k"]
    """Numbers of points of M that are least like P."""
    M_scores: Float[np.ndarray, " k"]
    """By how much they are more similar to M than to P."""

    def table(self) -> Table:
        """A row for each rank: the point of P and that of M."""
        rows = zip(*(one.tolist() for one in (self.P, self.P_scores, self.M, self.M_scores)), strict=True)
        return Table(
            "Points that drive the difference",
            ("rank", "point of P", "more like P by", "point of M", "more like M by"),
            tuple((rank, *row) for rank, row in enumerate(rows, 1)),
            note="Points are numbered from 0; by how much is the difference of the mean similarities.",
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and lists."""
        return {name: value.tolist() for name, value in vars(self).items()}


@dataclass(frozen=True, eq=False, repr=False)
class DistributionComparison:
    """Whether P and M are samples of one distribution, by several tests at once."""

    p_value: float
    """That of all tests together, corrected for there being several."""
    tests: dict[str, ShiftTest]
    """Those of "KS", "energy", "MMD" and "classifier"."""
    components: tuple[ComponentTest, ...]
    auc: Measured
    """Cross-validated area under the ROC curve of a linear classifier of P against M, with its error over folds."""
    scores: Float[np.ndarray, "n r"]
    """Scores along principal components, those of P first."""
    witness: Float[np.ndarray, " n"]
    """mean_P k(x, ·) - mean_M k(x, ·) at every point: above 0 where P has more mass."""
    sizes: tuple[int, int]
    permutations: int
    similarity: str
    """The kernel of the MMD, in words."""

    def __repr__(self) -> str:
        n, m = self.sizes
        found = ", ".join(f"{name} {test.p_value:.3g}" for name, test in self.tests.items())
        return f"DistributionComparison(p={self.p_value:.3g}; {found}; {n} points of P, {m} of M)"

    def drivers(self, k: int = 10) -> Drivers:
        """The k points of either sample that are most of their own kind, by the witness function of the MMD.

        Raises:
            InputError: k is not between 1 and the size of the smaller sample.
        """
        n, m = self.sizes
        if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or not 1 <= k <= min(n, m):
            raise InputError("bad number of drivers", expected=f"1 to {min(n, m)}", got=repr(k))
        P, M = self.witness[:n], -self.witness[n:]
        first, second = (np.argsort(-scores, kind="stable")[:k] for scores in (P, M))
        return Drivers(first, P[first], second, M[second])

    def filtered(self, share: float = 0.95, components: tuple[int, ...] = (0, 1)) -> NDArray[np.int64]:
        """The points of P where M is dense: P filtered towards M.

        The density of M on some principal components is estimated (Scott's rule); points of P stay where it is at
        least as high as at the densest `share` of M's own points.

        Args:
            share: of M, above 0; less of it keeps fewer points of P.
            components: numbers of principal components, from 0.

        Returns:
            Numbers of points of P.

        Raises:
            InputError: a bad share, or components that there are not.
            NumericalError: M is on fewer dimensions than that.
        """
        if not 0 < share <= 1:
            raise InputError("bad share of M", expected="0 < share <= 1", got=share)
        P, M = self._samples(components)
        of_M = density(M, "M")
        return np.flatnonzero(of_M(P.T) >= np.quantile(of_M(M.T), 1 - share))

    def table(self) -> Table:
        """A row for each test, and the p-value of all."""
        n, m = self.sizes
        rows = [(name, test.what, test.statistic, test.p_value) for name, test in self.tests.items()]
        note = (
            f"{n} points of P, {m} of M. p-values by {self.permutations} permutations; that of all is referred to "
            f"the smallest of every permutation. AUC of the classifier: {self.auc:.3f}. MMD by: {self.similarity}."
        )
        columns = ("test", "statistic", Column("value", ".4g"), Column("p", ".4f"))
        return Table(
            "P against M",
            columns,
            (*rows, ("all", "smallest p-value", None, self.p_value)),
            note,
            (len(rows),),
        )

    def component_table(self) -> Table:
        """A row for each principal component."""
        columns = (
            "component",
            Column("variance", ".1%"),
            Column("KS", ".3f"),
            Column("p", ".3g"),
            Column("p adjusted", ".3g"),
        )
        rows = tuple(
            (i + 1, c.variance, c.statistic, c.p_value, c.false_discovery)
            for i, c in enumerate(self.components)
        )
        note = "Two-sided Kolmogorov-Smirnov tests; adjusted for false discoveries (Benjamini, Hochberg)."
        return Table("Principal components", columns, rows, note)

    def plot(self, ax: "Axes | None" = None, *, components: tuple[int, ...] | None = None) -> "Axes":
        """Densities of P and M on one principal component (curves) or two (contours).

        Args:
            ax: where; new axes by default.
            components: their numbers, from 0; the first two by default.
        """
        chosen = tuple(range(min(2, len(self.components)))) if components is None else tuple(components)
        P, M = self._samples(chosen)
        labels = [f"component {i + 1} ({self.components[i].variance:.1%} of the variance)" for i in chosen]
        words = {
            "title": "P and M",
            "caption": f"Kernel density estimates of both samples; p = {self.p_value:.3g} for no shift.",
            "samples": {"P": P, "M": M},
            "x_label": labels[0],
        }
        if len(chosen) == 1:
            return drawn(DensityCurves(**words), ax)
        return drawn(DensityContours(**words, y_label=labels[1]), ax)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and lists, without the points."""
        return {
            "p_value": self.p_value,
            "tests": {name: vars(test) for name, test in self.tests.items()},
            "components": [vars(component) for component in self.components],
            "auc": {"value": self.auc.value, "error": self.auc.error},
            "sizes": list(self.sizes),
            "permutations": self.permutations,
            "similarity": self.similarity,
        }

    def _samples(self, components: tuple[int, ...]) -> tuple[NDArray, NDArray]:
        known = len(self.components)
        if not 1 <= len(components) <= 2 or not all(0 <= i < known for i in components):
            raise InputError(
                "bad components", expected=f"one or two numbers from 0 to {known - 1}", got=components
            )
        n = self.sizes[0]
        chosen = self.scores[:, list(components)]
        return chosen[:n], chosen[n:]


@briefly
def compare_distributions(
    P: Any,
    M: Any,
    kernel: Kernel | None = None,
    seed: int = 0,
    *,
    components: int = 20,
    permutations: int = 999,
    memory: int | str | None = None,
) -> DistributionComparison:
    """Whether two samples are of one distribution, and what tells them apart.

    Four tests share the same permutations of the pooled points: the largest Kolmogorov-Smirnov statistic over
    principal components, the energy distance, the maximum mean discrepancy (MMD), and the cross-validated AUC of a
    linear classifier on the components. `.p_value` is corrected for there being four, and uniform where there is no
    shift.

    All pairs of points are looked at, (n + m)² of them: of more than some ten thousand take a random part.

    Args:
        P: features (n, d); with a kernel a batch that it takes; or a map-style data set of either, or of pairs
            (input, target), that fits in memory. Ten points or more.
        M: the other sample, likewise.
        kernel: any kernel of one number for each pair, such as `TangentKernel(model)` or `ConjugateKernel(model)`:
            MMD, distances and components are then the kernel's. None for a Gaussian kernel on features.
        seed: of permutations and folds.
        components: how many principal components of the pooled points are looked at, at most.
        permutations: p-values are multiples of 1/(1 + permutations).
        memory: working memory, in bytes or as "2GB".

    Raises:
        InputError: too few points, features that do not match, a kernel between outputs.
        NumericalError: features are constant or not finite.

    Example:
        >>> import torch
        >>> P = torch.randn(60, 3)
        >>> compare_distributions(P, torch.randn(40, 3) + 2).p_value < 0.05
        True
    """
    _check_counts(components, permutations)
    if kernel is not None and not isinstance(kernel, Kernel):
        raise InputError(
            "not a kernel", expected="a kernel of tangentkit, or None", got=type(kernel).__name__
        )
    P, M = _in_memory(P), _in_memory(M)
    pooled: Pooled = PooledFeatures(P, M, seed) if kernel is None else PooledKernel(kernel, P, M)
    if min(pooled.sizes) < FEWEST:
        n, m = pooled.sizes
        raise InputError(
            "too few points to compare",
            expected=f"{FEWEST} or more of either sample",
            got=f"{n} of P, {m} of M",
        )
    return _compared(pooled, seed, components, permutations, memory)


def _compared(
    pooled: Pooled, seed: int, components: int, permutations: int, memory: int | str | None
) -> DistributionComparison:
    budget, points = memory_budget(memory), sum(pooled.sizes)
    budget.check(
        DIVISION * points * (1 + permutations),
        f"permutations of {points} points are",
        hint="fewer permutations, fewer points, or memory=...",
    )
    scores, shares = pooled.components(components)
    folds = folds_of(pooled.sizes, seed)
    Z = divisions(pooled.sizes, folds, permutations, seed)
    similar, near = pair_sums(pooled.strips(budget), Z)
    areas = cross_validated_auc(scores, Z, folds)
    statistics = {
        "KS": (largest_ks(scores, Z), "largest Kolmogorov-Smirnov statistic over components"),
        "energy": (near.statistic(), "energy distance, unbiased"),
        "MMD": (similar.statistic(), "squared maximum mean discrepancy, unbiased"),
        "classifier": (areas.mean(0), "cross-validated AUC"),
    }
    each, together = permutation_p_values(np.stack([values for values, _ in statistics.values()]))
    return DistributionComparison(
        p_value=together,
        tests={
            name: ShiftTest(float(values[0]), float(p), what)
            for (name, (values, what)), p in zip(statistics.items(), each, strict=True)
        },
        components=_component_tests(scores, shares, pooled.sizes[0]),
        auc=Measured.over(areas[:, 0].tolist()),
        scores=scores,
        witness=similar.witness(),
        sizes=pooled.sizes,
        permutations=permutations,
        similarity=pooled.similarity,
    )


def _component_tests(scores: NDArray, shares: NDArray, n: int) -> tuple[ComponentTest, ...]:
    method = "exact" if len(scores) <= EXACT else "asymp"
    found = [kolmogorov_smirnov(score[:n], score[n:], method) for score in scores.T]
    adjusted = stats.false_discovery_control([p for _, p in found])
    return tuple(
        ComponentTest(float(share), statistic, p, float(q))
        for share, (statistic, p), q in zip(shares, found, adjusted, strict=True)
    )


def _in_memory(samples: Any) -> Any:
    """All samples of a data set, without their targets; what is no data set as it is."""
    if not isinstance(samples, (Dataset, DataLoader)):
        return samples
    source = as_source(samples)
    batch = source.read(slice(0, len(source)))
    return first_part(batch) if isinstance(batch, (tuple, list)) else batch


def _check_counts(components: int, permutations: int) -> None:
    for name, value, least in (("components", components, 1), ("permutations", permutations, 19)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
            raise InputError(f"bad {name}", expected=f"a whole number from {least}", got=repr(value))
