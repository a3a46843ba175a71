"""The bulk of a spectrum, which noise alone would give, and the spikes that stand out of it."""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from scipy.linalg import eigvalsh_tridiagonal
from scipy.optimize import brentq
from scipy.stats import gamma
from torch import Tensor

from tangentkit.core.errors import InputError, NumericalError
from tangentkit.core.seeds import Key
from tangentkit.linalg import Spectrum, spectrum
from tangentkit.report.drawing import drawn
from tangentkit.report.figure import Lines, Series
from tangentkit.report.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEVEL = 0.05
"""The share of spectra of pure noise in which a spike may be seen."""
SURE = 1e-3
"""The level beyond which a value does not count into the variance of the bulk."""
TRACY_WIDOM = gamma(46.446, loc=-9.84801, scale=0.186054)
"""The Tracy-Widom law of real matrices, by the shifted gamma law with its first three moments (Chiani 2014)."""
EDGE_VALUES = (3, 10)
"""The fewest and the most values of an initial spectrum that its edge is read from."""
EDGE_SHARE = 20
"""One of so many values: deeper in the bulk its density is no square root any more."""
EDGE_DRAWS, EDGE_SIZE = 1000, 1000
"""Random matrices, and their size, that show how far from the truth an edge is read."""
EDGE_SHIFT = 0.73
"""The i-th largest eigenvalue of noise stands where i - 0.73 are expected: so do the known means of the first two."""


def bulk_edge(n: int, d: int, variance: float = 1.0) -> tuple[float, float]:
    """The ends of the Marchenko-Pastur law: variance (1 ∓ √(d/n))².

    Between them lie the eigenvalues of Xᵀ X / n, apart from zeros, for X (n, d) of independent entries.

    Args:
        n: samples.
        d: features.
        variance: of the entries.

    Raises:
        InputError: a size or the variance is not positive.

    Example:
        >>> bulk_edge(400, 100)
        (0.25, 2.25)
    """
    if n < 1 or d < 1 or not (variance > 0 and math.isfinite(variance)):
        raise InputError(
            "no bulk", expected="n, d >= 1 and a positive variance", got=f"n={n}, d={d}, variance={variance}"
        )
    root = math.sqrt(d / n)
    return variance * (1 - root) ** 2, variance * (1 + root) ** 2


@dataclass(frozen=True)
class Bulk:
    """Where the eigenvalues of noise end, and how far the largest of them moves from draw to draw."""

    low: float
    high: float
    """The edge in the limit of large matrices, or the largest value of an initial spectrum."""
    center: float
    scale: float
    """(λ_max - center) / scale has the Tracy-Widom law."""
    source: str
    read_from: int = 0
    """The number of values of one spectrum that center and scale were read from; 0 where they are known."""

    def distance(self, values: np.ndarray) -> np.ndarray:
        """(λ - center) / scale: how far beyond the edge, in units of how far the largest value of noise moves."""
        return (np.asarray(values, dtype=float) - self.center) / self.scale

    def p_value(self, values: np.ndarray) -> np.ndarray:
        """How often the largest eigenvalue of noise lies beyond each value."""
        return _beyond(self.distance(values), self.read_from)

    def threshold(self, level: float = LEVEL) -> float:
        """The value that the largest eigenvalue of noise exceeds at this rate, and at least the edge."""
        return max(self.high, self.center + self.scale * _quantile(level, self.read_from))

    def count(self, values: np.ndarray, level: float = LEVEL) -> int:
        """How many of the values are spikes: beyond the threshold."""
        return int((np.asarray(values) > self.threshold(level)).sum())


def marchenko_pastur(n: int, d: int, variance: float = 1.0) -> Bulk:
    """The bulk of Xᵀ X / n for a Gaussian X (n, d), with the center and scale of its largest eigenvalue (Ma 2012).

    Example:
        >>> bulk = marchenko_pastur(400, 100)
        >>> bulk.high, round(bulk.threshold(), 3)
        (2.25, 2.283)
    """
    low, high = bulk_edge(n, d, variance)
    a, b = math.sqrt(n - 0.5), math.sqrt(d - 0.5)
    center, scale = (a + b) ** 2, (a + b) * (1 / a + 1 / b) ** (1 / 3)
    return Bulk(
        low,
        high,
        variance * center / n,
        variance * scale / n,
        f"Marchenko-Pastur, {n} x {d}, variance {variance:.4g}",
    )


def bulk_variance(values: np.ndarray, n: int, d: int) -> float:
    """The variance of the entries of X (n, d) apart from spikes, from the eigenvalues of Xᵀ X / n.

    It is Σ λ / d without the values that are surely spikes, judged by the median, which spikes do not move.

    Raises:
        NumericalError: the median is zero, as of a matrix whose rank is less than half of its size.
    """
    small, large = min(n, d), max(n, d)
    values = np.sort(values)[::-1][:small]
    median = float(np.median(values))
    if not median > 0:
        raise NumericalError("no variance of a bulk", expected="a positive median eigenvalue", got=median)
    first = median * n / large / _median(small / large)
    count = int((values > marchenko_pastur(n, d, first).threshold(SURE)).sum())
    return float(values[count:].sum()) / (d * (1 - count / small))


def initial_bulk(initial: Any, *, skip: int = 0) -> Bulk:
    """The bulk that an initial spectrum shows, such as that of a kernel before training.

    Near the edge of any bulk that falls off like a square root, the i-th largest value lies at center - scale a_i
    with a_i = (3π/2 (i - 0.73))^(2/3). Center and scale are fitted to the first ones, one of twenty values, three to
    ten of them. Both are in doubt then, together: what the largest eigenvalue of another draw of noise exceeds is
    found by the same fit to random matrices. At 5 %, from 4 to 6.5 % of spectra of noise have a spike (measured on
    matrices from 30 x 30 to 1,000 x 300).

    Args:
        initial: a Spectrum, or values (r,).
        skip: how many of the largest are spikes already, such as the one that the mean of a kernel makes.

    Raises:
        InputError: there are too few values.
        NumericalError: the largest values are all equal.
    """
    values = eigenvalues_of(initial)[skip:]
    if skip < 0 or len(values) < 4:
        raise InputError(
            "too few values for an edge",
            expected="at least 4 beyond those skipped, skip >= 0",
            got=f"{len(values)}, skip={skip}",
        )
    fewest, most = EDGE_VALUES
    count = min(most, max(fewest, len(values) // EDGE_SHARE))
    center, scale = _edge(values[:count])
    if not values[0] > values[count - 1]:
        raise NumericalError("no edge", expected="values that fall", got=f"{count} equal to {values[0]:.3g}")
    source = f"initial spectrum, {skip} skipped"
    return Bulk(float(values[-1]), float(values[0]), float(center), float(scale), source, count)


@dataclass(frozen=True, eq=False)
class Spikes:
    """Eigenvalues beyond a bulk, with their eigenvectors."""

    values: np.ndarray
    """In descending order, (s,)."""
    vectors: Float[Tensor, "n s"]
    """Their eigenvectors, as columns."""
    distances: np.ndarray
    """How far beyond the edge, in units of the movement of the largest eigenvalue of noise, (s,)."""
    p_values: np.ndarray
    """How often noise alone has an eigenvalue as large, (s,)."""
    bulk: Bulk
    spectrum: np.ndarray
    """All the values that were looked at."""
    level: float = LEVEL
    """How often noise alone shows a spike."""

    def __len__(self) -> int:
        return len(self.values)

    def table(self) -> Table:
        """One row for each spike."""
        rows = tuple(
            (rank + 1, float(value), float(value) / self.bulk.high, float(distance), float(p))
            for rank, (value, distance, p) in enumerate(
                zip(self.values, self.distances, self.p_values, strict=True)
            )
        )
        columns = ("rank", "eigenvalue", "times the edge", "distance", "p-value")
        return Table("Spikes", columns, rows, note=f"bulk: {self.bulk.source}, edge {self.bulk.high:.4g}")

    def figure(self) -> Lines:
        """The eigenvalues by rank, with the edge of the bulk, and the threshold of spikes as a dashed line."""
        shown = self.spectrum[self.spectrum > 0]
        return Lines(
            title="Spikes beyond the bulk",
            caption=f"{len(self)} of {len(self.spectrum)} values stand above the dashed line, which the largest "
            f"value of noise exceeds in {self.level:.0%} of draws. The other line is the edge of the bulk of large "
            "matrices.",
            x_label="rank",
            y_label="eigenvalue",
            y_scale="log",
            series={
                "spectrum": Series(np.arange(1, len(shown) + 1), shown),
                "edge of the bulk": Series([1, max(2, len(shown))], [self.bulk.high] * 2),
            },
            level=self.bulk.threshold(self.level),
        )

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draws `figure()`."""
        return drawn(self.figure(), ax)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and lists, without the vectors."""
        return {
            "values": self.values.tolist(),
            "distances": self.distances.tolist(),
            "p_values": self.p_values.tolist(),
            "low": self.bulk.low,
            "high": self.bulk.high,
            "bulk": self.bulk.source,
        }


def spikes(K: Any, bulk: Bulk, *, level: float = LEVEL) -> Spikes:
    """The eigenvalues of K that lie beyond a bulk, and their eigenvectors.

    Args:
        K: a Spectrum, or what `tk.spectrum` takes, in the units of the bulk.
        bulk: of `marchenko_pastur` or of `initial_bulk`.
        level: how often noise alone may show a spike.

    Raises:
        InputError: the level is no probability, or every value of a partial spectrum lies beyond the bulk, so that
            more may be missing.

    Example:
        >>> import torch
        >>> K = torch.diag(torch.tensor([9.0, 1.0, 0.9, 0.8]))
        >>> spikes(K, marchenko_pastur(400, 100)).values
        array([9.])
    """
    if not 0 < level < 1:
        raise InputError("bad level", expected="a probability between 0 and 1", got=level)
    s = K if isinstance(K, Spectrum) else spectrum(K)
    values = eigenvalues_of(s)
    count = bulk.count(values, level)
    if s.is_partial and count == len(values):
        raise InputError(
            "every value that is held is a spike",
            expected="a spectrum that reaches into the bulk",
            got=f"{count} values, the smallest {values[-1]:.3g}, edge {bulk.high:.3g}",
            hint=f"spectrum(K, top={2 * count})",
        )
    found = values[:count]
    return Spikes(found, s.vectors[:, :count], bulk.distance(found), bulk.p_value(found), bulk, values, level)


def eigenvalues_of(given: Any) -> np.ndarray:
    """Eigenvalues in descending order in float64, of a Spectrum (of K, also where it is of J) or of plain values.

    Raises:
        InputError: they are not one row of numbers.
        NumericalError: one is not finite.
    """
    held = given.eigenvalues if isinstance(given, Spectrum) else given
    values = (
        held.detach().double().cpu().numpy() if isinstance(held, Tensor) else np.asarray(held, dtype=float)
    )
    if values.ndim != 1 or values.size < 1:
        raise InputError(
            "bad eigenvalues", expected="a Spectrum, or values (r,)", got=f"shape {values.shape}"
        )
    if not np.isfinite(values).all():
        raise NumericalError(
            "bad eigenvalues", expected="finite numbers", got=f"{(~np.isfinite(values)).sum()} that are not"
        )
    return np.sort(values)[::-1].copy()


def _edge(values: np.ndarray) -> np.ndarray:
    """Center and scale of the edge that the largest values show, (2,); of several spectra as columns, (2, t)."""
    places = (1.5 * np.pi * (np.arange(1, len(values) + 1) - EDGE_SHIFT)) ** (2 / 3)
    scale, center = np.polyfit(-places, values, 1)
    return np.stack([center, scale])


@lru_cache(maxsize=1)
def _edges_of_noise() -> Float[np.ndarray, "t r"]:
    """The largest eigenvalues of Gaussian orthogonal matrices about their edge, in units of its movement.

    Tridiagonal matrices have the same eigenvalues (Dumitriu, Edelman 2002), the largest of them on the first rows.
    """
    n, rng = EDGE_SIZE, Key(0).fold("edges of noise").numpy()
    rows = min(n, round(20 * n ** (1 / 3)))
    found = [
        eigvalsh_tridiagonal(
            rng.normal(0, math.sqrt(2), rows),
            np.sqrt(rng.chisquare(n - np.arange(1, rows))),
            select="i",
            select_range=(rows - EDGE_VALUES[1], rows - 1),
        )
        for _ in range(EDGE_DRAWS)
    ]
    return (np.array(found)[:, ::-1] - 2 * math.sqrt(n)) * n ** (1 / 6)


def _beyond(distances: np.ndarray, read_from: int) -> np.ndarray:
    """How often the largest eigenvalue of noise lies beyond each distance from an edge, known or read from values."""
    if not read_from:
        return TRACY_WIDOM.sf(distances)
    center, scale = _edge(_edges_of_noise()[:, :read_from].T)
    return TRACY_WIDOM.sf(center + scale * np.asarray(distances)[..., None]).mean(-1)


@lru_cache(maxsize=64)
def _quantile(level: float, read_from: int) -> float:
    """The distance that the largest eigenvalue of noise exceeds at this rate."""
    return float(np.asarray(brentq(lambda distance: _beyond(distance, read_from) - level, -9.0, 200.0)))


@lru_cache(maxsize=256)
def _median(ratio: float) -> float:
    """The median of the Marchenko-Pastur law of variance 1, for d/n = ratio <= 1."""
    # On λ = 1 + ratio + 2 √ratio cos θ the law has the smooth density 2 sin² θ / (π λ).
    θ = (np.arange(20_000) + 0.5) * np.pi / 20_000
    values = 1 + ratio + 2 * math.sqrt(ratio) * np.cos(θ)
    mass = np.cumsum(2 * np.sin(θ) ** 2 / (np.pi * values)) * np.pi / 20_000
    return float(np.interp(0.5, mass, values))
