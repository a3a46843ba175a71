"""The invertible map between a surrogate and its network: a curve from log-odds z to probabilities q.

The network gives each test point a probability q of its true class, the surrogate a log-odds z.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize

from tangentkit.core.errors import InputError

Vector = NDArray[np.float64]

POWERS = (0.2, 2.0)
"""The range in which the power ν of an invertible map is sought."""
FLATTEST = 1e-3
"""The least scale of a map, as a share of the standard deviation of z: there the best line does not increase."""


def interior(*probabilities: ArrayLike) -> NDArray[np.bool_]:
    """The points where every probability is strictly between 0 and 1: the others have no log-odds.

    Example:
        >>> interior([0.2, 1.0, 0.5], [0.1, 0.3, 0.0]).tolist()
        [True, False, False]
    """
    table = np.stack([np.asarray(p, dtype=np.float64) for p in probabilities])
    return np.all((table > 0) & (table < 1), axis=0)


def log_odds(probabilities: ArrayLike) -> Vector:
    """ln(q / (1 - q)).

    Example:
        >>> log_odds([0.5, 0.75]).round(4).tolist()
        [0.0, 1.0986]
    """
    q = np.asarray(probabilities, dtype=np.float64)
    return np.log(q) - np.log1p(-q)


@dataclass(frozen=True)
class InvertibleMap:
    """q = (s / (1 + s))^(1/ν) with s = exp((z - A) / K): from a surrogate's z to a network's probability q.

    Strictly increasing for K, ν > 0, so it changes no ranks; ν = 1 is the logistic function.

    Example:
        >>> curve = InvertibleMap(shift=0.0, scale=2.0, power=1.0)
        >>> curve.forward([0.0]).tolist(), curve.inverse([0.5]).tolist()
        ([0.5], [0.0])
    """

    shift: float
    """A."""
    scale: float
    """K."""
    power: float
    """ν."""

    def forward(self, z: ArrayLike) -> Vector:
        """The probability q of z."""
        return np.exp(self._log_forward(z))

    def inverse(self, q: ArrayLike) -> Vector:
        """K (ν ln q - ln(1 - q^ν)) + A, for q strictly between 0 and 1."""
        log_power = self.power * np.log(np.asarray(q, dtype=np.float64))
        return self.scale * (log_power - np.log(-np.expm1(log_power))) + self.shift

    def forward_log_odds(self, z: ArrayLike) -> Vector:
        """ln(q / (1 - q)) of the probability of z, also where q rounds to 1."""
        log_q, u = self._log_forward(z), self._argument(z)
        # Far out ln q underflows to 0, and 1 - q = exp(-u)/ν to one rounding error.
        far = u > 40
        return log_q - np.where(far, -u - np.log(self.power), np.log(-np.expm1(np.where(far, -1.0, log_q))))

    def r2(self, z: ArrayLike, q: ArrayLike) -> float:
        """R² = 1 - Σ (l - l̂)² / Σ (l - mean l)², where l is the log-odds of q and l̂ that of forward(z)."""
        z, q = paired(z, q)
        truth = log_odds(q)
        residual = truth - self.forward_log_odds(z)
        return float(1 - np.square(residual).sum() / np.square(truth - truth.mean()).sum())

    def _log_forward(self, z: ArrayLike) -> Vector:
        return -np.logaddexp(0, -self._argument(z)) / self.power

    def _argument(self, z: ArrayLike) -> Vector:
        return (np.asarray(z, dtype=np.float64) - self.shift) / self.scale


def fit_invertible_map(z: ArrayLike, q: ArrayLike) -> InvertibleMap:
    """The map whose inverse of q is nearest to z in the mean square.

    For a given ν, z = K g(q) + A is a line in g(q) = ν ln q - ln(1 - q^ν) and its A and K have a closed form;
    ν is sought in `POWERS` alone. (A Nelder-Mead search over A, K and ν, as published, has the same minimum
    but can stall where ν meets the end of its range.)

    Args:
        z: log-odds of the surrogate.
        q: probabilities of the network, strictly between 0 and 1 (see `interior`).

    Raises:
        InputError: there are fewer than three points, z or q is constant, or a q is not inside (0, 1).

    Example:
        >>> z = np.linspace(-4, 4, 50)
        >>> truth = InvertibleMap(shift=0.5, scale=1.5, power=0.8)
        >>> round(fit_invertible_map(z, truth.forward(z)).power, 3)
        0.8
    """
    z, q = paired(z, q)
    if not interior(q).all():
        raise InputError(
            "a probability has no log-odds", expected="0 < q < 1", hint="interior(q) tells which"
        )
    if len(z) < 3 or np.ptp(z) == 0 or np.ptp(q) == 0:
        raise InputError("nothing to fit", expected="3 points or more, z and q not constant", got=len(z))

    def best_line(power: float) -> InvertibleMap:
        g = InvertibleMap(0.0, 1.0, power).inverse(q)
        slope = np.cov(g, z, bias=True)[0, 1] / g.var()
        scale = max(float(slope), FLATTEST * float(z.std()))  # an increasing map, whatever the data
        return InvertibleMap(float(z.mean() - scale * g.mean()), scale, float(power))

    def error(power: float) -> float:
        return float(np.square(best_line(power).inverse(q) - z).mean())

    grid = np.linspace(*POWERS, 19)
    near = int(np.argmin([error(power) for power in grid]))
    around = (grid[max(near - 1, 0)], grid[min(near + 1, len(grid) - 1)])
    found = optimize.minimize_scalar(error, bounds=around, method="bounded", options={"xatol": 1e-10})
    return best_line(min((found.x, grid[near]), key=error))  # pyright: ignore[reportAttributeAccessIssue]


def paired(a: ArrayLike, b: ArrayLike) -> tuple[Vector, Vector]:
    """Two vectors of one length, without nan.

    Raises:
        InputError: they are not.
    """
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if a.ndim != 1 or a.shape != b.shape or a.size == 0:
        raise InputError("bad points", expected="two vectors of one length", got=f"{a.shape} and {b.shape}")
    if np.isnan(a).any() or np.isnan(b).any():
        raise InputError("bad points", expected="numbers", got="nan")
    return a, b
