"""How faithfully a surrogate repeats a network: rank correlation, accuracy, agreement, calibration, and a map."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from torch import Tensor

from tangentkit.core.errors import InputError, UnknownNameError
from tangentkit.core.seeds import Key
from tangentkit.report import Column, Measured, Table
from tangentkit.surrogate.invertible_map import (
    FLATTEST,
    InvertibleMap,
    fit_invertible_map,
    interior,
    paired,
)

BINS = 15
"""Bins of confidence in the calibration error."""
TAUS = ("true-class", "predicted", "class-1")
SATURATED = ("rank", "remove")
TIES = ("drop", "b")


def kendall_tau(a: ArrayLike, b: ArrayLike) -> float:
    """τ = (NC - ND) / (NC + ND) over all pairs of points; pairs tied in a or in b count for neither.

    NC pairs are ordered alike by a and b, ND oppositely. Without ties this is the usual τ; with ties it
    differs from scipy's τ-b, which keeps them in the denominator. O(n log n).

    Returns:
        A number in [-1, 1], or nan if every pair is tied.

    Raises:
        InputError: the lengths differ, there are fewer than two points, or a number is nan.

    Example:
        >>> kendall_tau([1, 2, 3, 3], [1, 3, 2, 5])
        0.6
    """
    a, b = paired(a, b)
    if len(a) < 2:
        raise InputError("no pairs to compare", expected="at least 2 points", got=len(a))
    pairs = len(a) * (len(a) - 1) // 2
    tied_a, tied_b, tied_both = _tied(a), _tied(b), _tied(np.stack([a, b], axis=1))
    untied = pairs - tied_a - tied_b + tied_both
    if untied == 0:
        return float("nan")
    # scipy counts NC - ND in O(n log n), but hands it out divided by the denominator of τ-b.
    tau_b = float(stats.kendalltau(a, b)[0])  # pyright: ignore[reportArgumentType]
    concordant_excess = round(tau_b * float(np.sqrt(float(pairs - tied_a)) * np.sqrt(float(pairs - tied_b))))
    return concordant_excess / untied


def accuracy_difference(surrogate: ArrayLike, network: ArrayLike, targets: ArrayLike) -> float:
    """TAD = accuracy of the surrogate - accuracy of the network, in percentage points.

    Args:
        surrogate: classes that the surrogate predicts.
        network: classes that the network predicts.
        targets: the true classes.

    Raises:
        InputError: the lengths differ, or there is no point.

    Example:
        >>> accuracy_difference([0, 1, 1, 1], [0, 1, 0, 1], [0, 1, 0, 0])
        -25.0
    """
    surrogate, _ = paired(surrogate, targets)
    network, targets = paired(network, targets)
    excess = np.count_nonzero(surrogate == targets) - np.count_nonzero(network == targets)
    return float(100 * excess / len(targets))


def calibration_error(probabilities: Float[np.ndarray, "n c"], labels: Int[np.ndarray, " n"]) -> float:
    """The expected calibration error Σ_b (n_b / n) |accuracy_b - confidence_b| over bins of confidence.

    Example:
        >>> calibration_error(np.array([[0.75, 0.25]] * 4), np.array([0, 0, 0, 1]))
        0.0
    """
    confidence, right = probabilities.max(1), probabilities.argmax(1) == labels
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gaps = np.bincount(bins, weights=right - confidence, minlength=BINS)
    return float(np.abs(gaps).sum() / len(labels))


@dataclass(frozen=True)
class Faithfulness:
    """How faithfully a surrogate repeats its network on test points; each number with its standard error."""

    kendall_tau: Measured
    """Kendall's τ between the two, of the probability of the true class."""
    accuracy_difference: Measured
    """TAD: accuracy of the surrogate - accuracy of the network, in percentage points."""
    agreement: Measured
    """Share of points where both predict the same class, in percent."""
    calibration_difference: Measured
    """Calibration error of the surrogate - that of the network, in percentage points."""
    r2: Measured
    """R² of the invertible map from the surrogate's log-odds to the network's, at points where neither is 0 or 1.

    It is nan where no increasing map fits them."""
    network_accuracy: Measured
    """In percent."""
    points: int
    """Test points."""
    saturated: int
    """Of these, points where a probability is 0 or 1 to the last bit."""
    curve: InvertibleMap | None = None
    """The map itself; None where no increasing one fits, or over several networks."""

    @classmethod
    def over(cls, repeats: "Sequence[Faithfulness]") -> "Faithfulness":
        """The mean over networks (seeds), with standard errors from their scatter.

        Raises:
            InputError: there are fewer than two.
        """
        if len(repeats) < 2:
            raise InputError("no scatter to tell", expected="two networks or more", got=len(repeats))
        numbers: dict[str, Any] = {
            one.name: Measured.over([getattr(f, one.name).value for f in repeats])
            for one in fields(cls)
            if isinstance(getattr(repeats[0], one.name), Measured)
        }
        return cls(**numbers, points=repeats[0].points, saturated=sum(f.saturated for f in repeats))

    def table(self) -> Table:
        """One row a number."""
        rows = (
            ("Kendall's τ", self.kendall_tau),
            ("TAD (percentage points)", self.accuracy_difference),
            ("agreement (%)", self.agreement),
            ("calibration difference (percentage points)", self.calibration_difference),
            ("R² of the invertible map", self.r2),
            ("accuracy of the network (%)", self.network_accuracy),
        )
        note = f"{self.points:,} test points, {self.saturated:,} of them with a probability of 0 or 1 in float64."
        if math.isnan(self.kendall_tau.value):
            note += " There is no τ: all pairs of points are tied."
        if math.isnan(self.r2.value):
            note += " There is no R²: no increasing map leads from the surrogate's log-odds to the network's."
        return Table("How faithful the surrogate is", ("measure", Column("value", ".3f")), rows, note=note)

    def to_dict(self) -> dict[str, Any]:
        """Names -> numbers; a measured one as its value, None where it has none, and its error."""
        found = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "curve"}
        return {
            name: {"value": None if math.isnan(v.value) else v.value, "error": v.error}
            if isinstance(v, Measured)
            else v
            for name, v in found.items()
        }

    def __str__(self) -> str:
        return str(self.table())


def measure_faithfulness(
    network: Float[Tensor, "n c"],
    surrogate: Float[Tensor, "n c"],
    labels: Int[Tensor, " n"],
    *,
    tau: str = "true-class",
    saturated: str = "rank",
    ties: str = "drop",
    bootstrap: int = 100,
    seed: int = 0,
) -> Faithfulness:
    """Compares logits of a surrogate with those of its network, with standard errors from the bootstrap over points.

    Args:
        network: logits; their softmax are the probabilities.
        surrogate: likewise.
        labels: the true classes.
        tau: whose probability is ranked: that of the "true-class" of each point; of the class that the network
            "predicted"; or of "class-1" at all points, which is what the authors' code of one-logit networks does.
        saturated: "rank" ranks log-odds, in which a probability that rounds to 1 still has its place; "remove" leaves
            out the points where a probability is 0 or 1 to the last bit, as the authors do.
        ties: pairs tied in either ranking are left out ("drop") or stay in the denominator (τ-"b", scipy's).
        bootstrap: how many times the points are drawn anew.
        seed: of these draws.

    Raises:
        InputError: shapes do not match, or there are fewer than two points.
        UnknownNameError: an option is not known.

    Example:
        >>> logits = torch.tensor([[2.0, 0.0], [1.0, 0.0], [0.0, 3.0]])
        >>> found = measure_faithfulness(logits, 2 * logits, torch.tensor([0, 0, 1]))
        >>> found.kendall_tau.value, found.agreement.value
        (1.0, 100.0)
    """
    for name, value, known in (("tau", tau, TAUS), ("saturated", saturated, SATURATED), ("ties", ties, TIES)):
        if value not in known:
            raise UnknownNameError(name, str(value), known)
    if network.shape != surrogate.shape or labels.shape != network.shape[:1] or len(labels) < 2:
        raise InputError(
            "nothing to compare",
            expected="logits (n, c) of both and n labels, n at least 2",
            got=f"{tuple(network.shape)}, {tuple(surrogate.shape)} and {tuple(labels.shape)}",
        )
    if isinstance(bootstrap, bool) or not isinstance(bootstrap, int) or bootstrap < 0:
        raise InputError("bad number of draws", expected="bootstrap=0 (none) or more", got=repr(bootstrap))
    points = _Points(network.double(), surrogate.double(), labels, tau)
    correlate = kendall_tau if ties == "drop" else _tau_b
    everything = np.arange(len(labels))
    curve = _curve(points, everything)  # its three numbers are the same for all draws
    rng = Key(seed).fold("faithfulness").numpy()
    draws = [rng.integers(len(labels), size=len(labels)) for _ in range(bootstrap)]

    def measured(statistic: "Callable[[_Points, np.ndarray], float]") -> Measured:
        value = statistic(points, everything)
        found = np.array([statistic(points, draw) for draw in draws])
        found = found[np.isfinite(found)]
        return Measured(value, float(found.std(ddof=1)) if len(found) > 1 else None)

    def rank(p: _Points, at: np.ndarray) -> float:
        at = at[p.interior[at]] if saturated == "remove" else at
        return correlate(p.of_network[at], p.of_surrogate[at]) if len(at) > 1 else float("nan")

    return Faithfulness(
        kendall_tau=measured(rank),
        accuracy_difference=measured(
            lambda p, at: 100 * float((p.surrogate_right[at] - p.network_right[at]).mean())
        ),
        agreement=measured(lambda p, at: 100 * float(p.agrees[at].mean())),
        calibration_difference=measured(
            lambda p, at: (
                100
                * (
                    calibration_error(p.surrogate[at], p.labels[at])
                    - calibration_error(p.network[at], p.labels[at])
                )
            )
        ),
        r2=measured(lambda p, at: _r2(curve, p, at)),
        network_accuracy=measured(lambda p, at: 100 * float(p.network_right[at].mean())),
        points=len(labels),
        saturated=int((~points.interior).sum()),
        curve=curve,
    )


class _Points:
    """What both say of every point, as arrays."""

    def __init__(self, network: Tensor, surrogate: Tensor, labels: Tensor, tau: str):
        self.labels = labels.cpu().numpy()
        chosen = {
            "true-class": labels.to(network.device),
            "predicted": network.argmax(1),
            "class-1": torch.ones_like(labels).to(network.device),
        }[tau]
        self.of_network, self.of_surrogate = (log_odds_of(z, chosen) for z in (network, surrogate))
        self.network, self.surrogate = (z.softmax(1).cpu().numpy() for z in (network, surrogate))
        guesses = self.network.argmax(1), self.surrogate.argmax(1)
        self.network_right, self.surrogate_right = ((guess == self.labels).astype(float) for guess in guesses)
        self.agrees = (guesses[0] == guesses[1]).astype(float)
        at = np.arange(len(self.labels)), chosen.cpu().numpy()
        self.q = self.network[at]
        self.interior = interior(self.q, self.surrogate[at])


def log_odds_of(logits: Float[Tensor, "n c"], chosen: Int[Tensor, " n"]) -> np.ndarray:
    """The margin ln p/(1 - p) of one class each, z_c - ln Σ_{d≠c} exp z_d: also where p rounds to 1.

    Example:
        >>> log_odds_of(torch.tensor([[100.0, 0.0]]), torch.tensor([0]))
        array([100.], dtype=float32)
    """
    own = torch.nn.functional.one_hot(chosen, logits.shape[1]).bool()
    others = logits.masked_fill(own, float("-inf")).logsumexp(1)
    return (logits[own] - others).cpu().numpy()


def _curve(p: _Points, at: np.ndarray) -> InvertibleMap | None:
    at = at[p.interior[at]]
    z, q = p.of_surrogate[at], p.q[at]
    if len(at) < 3 or not np.ptp(z) > 0 or not np.ptp(q) > 0:
        return None
    curve = fit_invertible_map(z, q)
    return curve if curve.scale > FLATTEST * z.std() else None


def _r2(curve: InvertibleMap | None, p: _Points, at: np.ndarray) -> float:
    inside = at[p.interior[at]]
    # A draw of one point alone has no variance to explain.
    if curve is None or not np.ptp(p.q[inside]) > 0:
        return float("nan")
    return curve.r2(p.of_surrogate[inside], p.q[inside])


def _tau_b(a: np.ndarray, b: np.ndarray) -> float:
    return float(stats.kendalltau(a, b)[0])  # pyright: ignore[reportArgumentType]


def _tied(values: NDArray) -> int:
    """The number of pairs of equal rows."""
    counts = np.unique(values, axis=0, return_counts=True)[1].astype(np.int64)
    return int((counts * (counts - 1) // 2).sum())
