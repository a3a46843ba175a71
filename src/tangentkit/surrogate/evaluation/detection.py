"""Training samples that should stand out: wrong labels by self-scores, marked groups by the scores of others."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike
from scipy.integrate import trapezoid
from scipy.special import ndtri
from scipy.stats import rankdata
from sklearn.metrics import average_precision_score
from torch import Tensor

from tangentkit.core.errors import InputError
from tangentkit.report import Figure, Interval, Lines, Series
from tangentkit.surrogate.evaluation.outcome import LEVEL, Outcome, harmonic, mean_interval
from tangentkit.surrogate.evaluation.scores import Scores, scores_for


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class MislabelDetection(Outcome):
    """How well self-scores find wrong labels: AUROC, with DeLong's interval."""

    name = "mislabel AUROC"
    wrong: Bool[np.ndarray, " m"]
    """Whose labels are wrong; `each` are the self-scores."""

    @property
    def note(self) -> str:
        """What it was measured on, in a sentence."""
        return f"{self.wrong.sum():,} wrong labels among {len(self.wrong):,} training samples."

    @cached_property
    def curve(self) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
        """The detection curve: shares of samples, largest scores first, and of the wrong labels among them."""
        order = np.argsort(-self.each, kind="stable")
        # Samples of equal scores are looked at together, in any order.
        ends = np.flatnonzero(np.append(np.diff(self.each[order]) != 0, True))
        found = np.cumsum(self.wrong[order])[ends] / self.wrong.sum()
        return np.append(0.0, (ends + 1) / len(order)), np.append(0.0, found)

    @property
    def area(self) -> float:
        """A, the area under the detection curve. AUROC = (A - p/2) / (1 - p), with p the share of wrong labels."""
        return float(trapezoid(self.curve[1], self.curve[0]))

    def figure(self) -> Figure:
        """The detection curve as data of a figure."""
        return Lines(
            title="Wrong labels found",
            caption=f"The share of wrong labels among the samples of largest self-scores. {self.note}",
            series={"self-scores": Series(*self.curve), "chance": Series([0, 1], [0, 1])},
            x_label="share of samples looked at",
            y_label="share of wrong labels found",
            markers=False,
        )

    def to_dict(self) -> dict[str, Any]:
        """The results as plain numbers."""
        return super().to_dict() | {"area": self.area, "wrong": int(self.wrong.sum())}


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class GroupDetection(Outcome):
    """Whether marked training samples come first in the scores of samples that follow them: average precision."""

    name = "average precision"
    marked: int
    training_samples: int

    @property
    def note(self) -> str:
        """What it was measured on, in a sentence."""
        return f"{self.marked:,} marked of {self.training_samples:,} training samples; {len(self.each):,} samples."


def mislabel_auroc(self_scores: ArrayLike | Tensor, wrong: ArrayLike | Tensor) -> MislabelDetection:
    """How well large self-scores tell training samples of wrong labels from those of right ones.

    AUROC = P(score of a wrong one > score of a right one), ties counting half. The interval is DeLong's on the scale
    of ln(A/(1 - A)). Where no wrong one is below a right one, that variance is 0, and the interval is Newcombe's.

    Args:
        self_scores: how much each training sample speaks for its own label, (m,), as `Surrogate.self_attribution()`.
        wrong: whose labels are wrong, (m,) of booleans.

    Raises:
        InputError: their numbers differ, or all labels are wrong, or none is.

    Example:
        >>> found = mislabel_auroc([0.1, 0.2, 0.3, 0.9], [False, False, True, True])
        >>> found.value, round(found.interval.low, 2)
        (1.0, 0.39)
    """
    scores, wrong = np.asarray(self_scores, dtype=float), np.asarray(wrong)
    if (
        scores.ndim != 1
        or scores.shape != wrong.shape
        or wrong.dtype != bool
        or not np.isfinite(scores).all()
    ):
        raise InputError(
            "self-scores and wrong labels do not match",
            expected="m finite numbers and m booleans",
            got=f"{scores.shape} and {wrong.dtype} {wrong.shape}",
        )
    if not 0 < wrong.sum() < len(wrong):
        raise InputError(
            "nothing to tell apart",
            expected="some wrong labels and some right ones",
            got=f"{wrong.sum()} wrong",
        )
    interval = auroc(scores[wrong], scores[~wrong])
    return MislabelDetection(value=interval.mean, interval=interval, chance=0.5, each=scores, wrong=wrong)


def group_detection(scores: Scores, marked: ArrayLike | Tensor, classes: Int[Tensor, " n"]) -> GroupDetection:
    """Whether marked training samples come first in the scores of samples that follow them.

    Shortcuts: the marked training samples have a mark and one class, and the samples have the mark, another class,
    and are taken for that one. Mixed data: the marked ones are of another data set, under one class of this one, and
    the samples are others of that data set that are taken for that class. Only samples that the network falls for
    belong here: of the others there is nothing to explain by the mark.

    Of every sample the average precision of the marked ones in the order of the scores is taken, and the mean over
    samples, with Student's interval over samples.

    Args:
        scores: of n such samples.
        marked: which training samples are marked, (m,) of booleans.
        classes: what the network takes the samples for.

    Raises:
        InputError: nothing is marked, or all is.
    """
    own, marked = scores_for(scores, classes), np.asarray(marked)
    m = own.shape[1]
    if marked.shape != (m,) or marked.dtype != bool or not 0 < marked.sum() < m:
        raise InputError(
            "bad marks",
            expected=f"{m} booleans, some of them True and some not",
            got=f"{marked.dtype} {marked.shape}, {np.count_nonzero(marked)} of them True",
        )
    each = np.array([float(average_precision_score(marked, row)) for row in own])
    interval = mean_interval(each, 0, 1)
    return GroupDetection(
        value=interval.mean,
        interval=interval,
        chance=chance_of_precision(int(marked.sum()), m),
        each=each,
        marked=int(marked.sum()),
        training_samples=m,
    )


def chance_of_precision(k: int, m: int) -> float:
    """The average precision of k marked ones of m in random order, in the mean over orders.

    A marked one at place i is below (i - 1)(k - 1)/(m - 1) others on average: the mean of (that + 1) / i over i.

    Example:
        >>> chance_of_precision(4, 4), round(chance_of_precision(1, 2), 2)
        (1.0, 0.75)
    """
    first = harmonic(m) / m
    return first + (k - 1) / max(m - 1, 1) * (1 - first)


def auroc(positive: Float[np.ndarray, " k"], negative: Float[np.ndarray, " j"]) -> Interval:
    """P(positive > negative), ties counting half, with its 95 % interval.

    Example:
        >>> auroc(np.array([1.0, 3.0]), np.array([0.0, 2.0])).mean
        0.75
    """
    k, j = len(positive), len(negative)
    ranks = rankdata(np.concatenate([positive, negative]))
    # The share of the other kind that each one is above: a rank among all, less the rank among its own.
    above = (ranks[:k] - rankdata(positive)) / j
    below = 1 - (ranks[k:] - rankdata(negative)) / k
    A = float(above.mean())
    if A in (0.0, 1.0):
        return _newcombe(A, k, j)
    if min(k, j) < 2:
        return Interval(A, 0.0, 1.0)
    variance = above.var(ddof=1) / k + below.var(ddof=1) / j
    half = float(ndtri((1 + LEVEL) / 2)) * np.sqrt(variance) / (A * (1 - A))
    ends = 1 / (1 + np.exp(-(np.log(A / (1 - A)) + np.array([-half, half]))))
    return Interval(A, float(ends[0]), float(ends[1]))


def _newcombe(A: float, k: int, j: int) -> Interval:
    """Newcombe's interval (2006, method 5) of a perfect A: the θ with (A - θ)² = z² V(θ), Hanley and McNeil's V."""
    from scipy.optimize import brentq

    z2, N = float(ndtri((1 + LEVEL) / 2)) ** 2, (k + j) / 2 - 1

    def excess(theta: float) -> float:
        spread = 1 + N * ((1 - theta) / (2 - theta) + theta / (1 + theta))
        return (1 - theta) - z2 * theta * spread / (k * j)

    # One factor 1 - θ is divided out: θ = A = 1 itself solves the equation.
    end = float(brentq(excess, 0.0, 1.0))  # pyright: ignore[reportArgumentType]
    return Interval(1.0, end, 1.0) if A == 1 else Interval(0.0, 0.0, 1 - end)
