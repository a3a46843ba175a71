"""Tails: the exponent of a power law in the largest values of a spectrum, always beside a null model.

An estimator finds an exponent in any spectrum, a Gaussian one too, so that no exponent means anything alone. A
`Tail` holds the one that was found, its bootstrap interval, and those that the same estimator finds in random
matrices of the same shape.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from scipy.linalg import eigvalsh_tridiagonal
from torch import Tensor

from tangentkit.core.errors import InputError, NumericalError
from tangentkit.core.seeds import Key
from tangentkit.report.drawing import drawn
from tangentkit.report.figure import Lines, Series
from tangentkit.report.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DRAWS = 99
"""Random matrices of a null model: p-values are multiples of 1/100."""
BOOTSTRAPS = 200
LEAST_DRAWS = 19
"""With fewer no p-value is 5 % or less."""
LEVEL = 0.05
"""The share of spectra without a heavy tail that may be called heavy."""
LEAST_TAIL = 2
"""The fewest values that a tail must have for a bootstrap."""


@dataclass(frozen=True)
class PowerLawFit:
    """A density ∝ λ^(-alpha) above xmin."""

    alpha: float
    xmin: float
    size: int
    """How many values lie above xmin."""
    distance: float
    """The Kolmogorov-Smirnov distance between them and the law."""


class TailEstimator(ABC):
    """A way to fit a power law to the largest values; values come positive and in descending order."""

    name: str

    @abstractmethod
    def fit(self, values: np.ndarray) -> PowerLawFit:
        """The fit to values."""

    def alpha(self, values: np.ndarray) -> float:
        """The exponent alone."""
        return self.fit(values).alpha

    @abstractmethod
    def again(self, values: np.ndarray, draws: int, rng: np.random.Generator) -> np.ndarray:
        """Exponents of `draws` bootstrap samples."""


@dataclass(frozen=True)
class Hill(TailEstimator):
    """Hill's estimate 1 + m / Σ_{i<=m} ln(λ_i / λ_{m+1}); its bootstrap draws the m logarithms again.

    Example:
        >>> Hill(2).fit(np.exp([2.0, 1.0, 0.0])).alpha
        1.666...
    """

    m: int | None = None
    """The number of largest values that make the tail; None takes a tenth of all, and at least 2."""
    name = "Hill"

    def size(self, count: int) -> int:
        """The m of so many values."""
        return max(LEAST_TAIL, count // 10) if self.m is None else self.m

    def fit(self, values: np.ndarray) -> PowerLawFit:
        """The fit to the m largest of the values."""
        m = _checked_size(self.size(len(values)), len(values))
        alpha = self.alpha(values)
        return PowerLawFit(alpha, float(values[m]), m, law_distance(values[:m], float(values[m]), alpha))

    def alpha(self, values: np.ndarray) -> float:
        """The exponent alone."""
        m = self.size(len(values))
        return float(hill_range(values, np.array([m]))[0])

    def again(self, values: np.ndarray, draws: int, rng: np.random.Generator) -> np.ndarray:
        """Exponents of bootstrap samples of the logarithms."""
        m = self.size(len(values))
        logs = np.log(values[:m] / values[m])
        return _exponent(rng.choice(logs, (draws, m)).mean(1))


@dataclass(frozen=True, eq=False, repr=False)
class Tail:
    """The exponent of a power-law tail, with what the same estimator finds in a null model.

    A few spikes make the mean of the logarithms larger too, so that a spectrum with spikes may be called heavy: the
    plot over tail sizes tells them apart, and so does `spikes`.
    """

    fit: PowerLawFit
    low: float
    """The lower end of the 95 % bootstrap interval of the exponent.

    It treats the values as independent draws. Eigenvalues repel each other, so that it is rather too wide for them.
    """
    high: float
    """The upper end."""
    null_alphas: np.ndarray
    """The exponents that the estimator finds in each draw of the null model, (draws,)."""
    null: str
    """What the null model is."""
    estimator: str
    sizes: np.ndarray
    """The range of tail sizes m for which Hill's estimate was made as well, (s,)."""
    range: np.ndarray
    """Hill's estimate for each of these sizes, (s,)."""
    null_range: np.ndarray
    """The same of each draw of the null model, (draws, s)."""

    def __repr__(self) -> str:
        verdict = "heavy tail" if self.is_heavy else "no heavy tail"
        numbers = f"alpha {self.alpha:.3g} ({self.low:.3g} to {self.high:.3g})"
        return f"Tail({verdict}: {numbers}, null {self.null_alpha:.3g}, p = {self.p_value:.2g})"

    @property
    def alpha(self) -> float:
        """The exponent of the density; the smaller it is, the heavier the tail."""
        return self.fit.alpha

    @property
    def null_alpha(self) -> float:
        """The median exponent of the null model."""
        return float(np.median(self.null_alphas))

    @property
    def p_value(self) -> float:
        """How often the null model has a tail as heavy as this: (1 + #{α_null <= α}) / (1 + draws)."""
        return float((1 + (self.null_alphas <= self.alpha).sum()) / (1 + len(self.null_alphas)))

    @property
    def is_heavy(self) -> bool:
        """Whether the tail is heavier than that of the null model, at the level of 5 %."""
        return self.p_value <= LEVEL

    def table(self) -> Table:
        """What was found in words and numbers."""
        rows = (
            ("alpha", self.alpha),
            ("95 % interval, low", self.low),
            ("95 % interval, high", self.high),
            ("values in the tail", self.fit.size),
            ("xmin", self.fit.xmin),
            ("D", self.fit.distance),
            ("alpha of the null model", self.null_alpha),
            ("p-value", self.p_value),
            ("verdict", "heavy tail" if self.is_heavy else "no heavy tail"),
        )
        return Table(f"Tail by {self.estimator}", ("measure", "value"), rows, note=f"null model: {self.null}")

    def figure(self) -> Lines:
        """Hill's estimate over a range of tail sizes, beside the middle 95 % of the null model."""
        low, high = np.quantile(self.null_range, [0.025, 0.975], axis=0)
        return Lines(
            title="Exponent of the tail",
            caption=f"Below the band the tail is heavier than that of the null model ({self.null}).",
            x_label="values in the tail m",
            y_label="Hill's exponent α",
            y_scale="log",
            series={
                "spectrum": Series(self.sizes, self.range),
                "null model": Series(self.sizes, (low + high) / 2, (high - low) / 2),
            },
            markers=False,
        )

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draws `figure()`."""
        return drawn(self.figure(), ax)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and lists."""
        return {
            "alpha": self.alpha,
            "low": self.low,
            "high": self.high,
            "size": self.fit.size,
            "xmin": self.fit.xmin,
            "D": self.fit.distance,
            "estimator": self.estimator,
            "null": self.null,
            "null_alphas": self.null_alphas.tolist(),
            "p_value": self.p_value,
            "is_heavy": self.is_heavy,
            "sizes": self.sizes.tolist(),
            "range": self.range.tolist(),
        }


def tail(
    values: np.ndarray,
    estimator: TailEstimator,
    *,
    null_values: np.ndarray,
    null: str,
    key: Key,
) -> Tail:
    """The tail of a spectrum, with its bootstrap interval and its null model.

    Args:
        values: positive, in descending order, (r,).
        estimator: how the exponent is found.
        null_values: the same number of values of each draw of the null model, (draws, r), in descending order.
        null: what the null model is, in words.
        key: the address of the random numbers of the bootstrap.

    Raises:
        InputError: there are too few values.
    """
    fit = estimator.fit(values)
    low, high = _interval(values, estimator, fit.size, key)
    sizes = _range_of_sizes(fit.size, len(values))
    return Tail(
        fit=fit,
        low=low,
        high=high,
        null_alphas=np.array([estimator.alpha(one) for one in null_values]),
        null=null,
        estimator=estimator.name,
        sizes=sizes,
        range=hill_range(values, sizes),
        null_range=hill_range(null_values, sizes),
    )


@lru_cache(maxsize=16)
def gaussian_null(rows: int, columns: int, draws: int, seed: int) -> np.ndarray:
    """Squared singular values of `draws` Gaussian matrices (rows, columns) of variance 1, in descending order.

    A Gaussian matrix need not be made for it: its singular values are those of a bidiagonal matrix of χ variables
    (Dumitriu, Edelman 2002), which costs min(rows, columns)² instead of its cube.

    Returns:
        (draws, min(rows, columns)), not to be written to.

    Example:
        >>> found = gaussian_null(300, 100, draws=2, seed=0)
        >>> bool(abs(found.mean() / 300 - 1) < 0.05), float(found.max() / 300) < 1.1 * (1 + (1 / 3) ** 0.5) ** 2
        (True, True)
    """
    n, d = max(rows, columns), min(rows, columns)
    rng = Key(seed).fold("gaussian null", n, d).numpy()
    a = rng.chisquare(np.arange(n, n - d, -1), (draws, d))
    b = rng.chisquare(np.arange(d - 1, 0, -1), (draws, d - 1))
    diagonal, beside = a.copy(), np.sqrt(a[:, :-1] * b)
    diagonal[:, 1:] += b
    values = np.array(
        [
            eigvalsh_tridiagonal(*one, lapack_driver="sterf", check_finite=False)
            for one in zip(diagonal, beside, strict=True)
        ]
    )
    values = values[:, ::-1].clip(min=0)
    values.flags.writeable = False
    return values


def hill(values: Float[Tensor, " r"], m: int, *, zero: float = 0.0) -> float:
    """Hill's estimate 1 + m / Σ_{i<=m} ln(λ_i / λ_{m+1}) of the exponent of a density with tail λ^(-α).

    Args:
        values: in any order.
        m: the number of largest values that make the tail; more than m are needed.
        zero: values up to this cannot be told from zero.

    Returns:
        α, infinite where the m + 1 largest values are equal.

    Raises:
        InputError: m is out of range.
        NumericalError: the tail holds a value that is not above `zero`.

    Example:
        >>> import torch
        >>> hill(torch.tensor([math.e**2, math.e, 1.0]), m=2)
        1.666...
    """
    _checked_size(m, len(values))
    largest = values.sort(descending=True).values[: m + 1]
    check_above(float(largest[-1]), zero, m)
    return float(_exponent((largest[:-1] / largest[-1]).log().mean().double().cpu().numpy()))


def hill_range(values: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Hill's estimate for each of several tail sizes, of positive values (..., r) in descending order."""
    logs = np.log(values)
    return _exponent(np.cumsum(logs, axis=-1)[..., sizes - 1] / sizes - logs[..., sizes])


def check_above(smallest: float, zero: float, m: int) -> None:
    """Refuses tails that reach down to values which cannot be told from zero.

    Raises:
        NumericalError: with the value.
    """
    if not smallest > zero:
        raise NumericalError(
            "a tail of values that are not positive beyond rounding",
            expected=f"value {m + 1} above {zero:.2g}",
            got=f"{smallest:.3g}",
            hint="take a smaller m",
        )


def check_null(m: int, count: int, draws: int) -> None:
    """Refuses null models that have too few values for a tail of m, or too few draws for a p-value of 5 %.

    Raises:
        InputError: with what came.
    """
    _checked_size(m, count)
    if draws < LEAST_DRAWS:
        raise InputError("too few draws of a null model", expected=f"at least {LEAST_DRAWS}", got=draws)


def law_distance(values: np.ndarray, xmin: float, alpha: float) -> float:
    """The Kolmogorov-Smirnov distance between values and the density ∝ λ^(-alpha) above xmin."""
    # It takes 0.6 s to import, in every process that computes a kernel; few fit a power law.
    from scipy.stats import ks_1samp, pareto

    if math.isinf(alpha):
        return 0.0 if (values == xmin).all() else 1.0
    return float(np.asarray(ks_1samp(values, pareto(alpha - 1, scale=xmin).cdf))[0])


def _exponent(mean_log: np.ndarray) -> np.ndarray:
    """1 + 1 / mean of the logarithms, infinite where they are all zero."""
    with np.errstate(divide="ignore"):
        return 1 + 1 / np.maximum(mean_log, 0.0)


def _interval(values: np.ndarray, estimator: TailEstimator, size: int, key: Key) -> tuple[float, float]:
    if size < LEAST_TAIL:
        return 1.0, math.inf  # one value excludes no exponent
    alphas = estimator.again(values, BOOTSTRAPS, key.fold("bootstrap").numpy())
    low, high = np.quantile(alphas, [0.025, 0.975], method="nearest")  # between infinities nothing can be put
    return float(low), float(high)


def _range_of_sizes(m: int, count: int) -> np.ndarray:
    """Up to 50 sizes from 2 to three times m, as far as there are values."""
    last = min(max(3 * m, 10), count - 1)
    return np.unique(np.linspace(min(LEAST_TAIL, last), last, 50).astype(int))


def _checked_size(m: int, count: int) -> int:
    if not 1 <= m < count:
        raise InputError("bad size of a tail", expected=f"1 to {count - 1}, one less than the values", got=m)
    return m
