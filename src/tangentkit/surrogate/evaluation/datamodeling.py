"""The linear datamodeling score: do sums of scores predict what networks trained on subsets say?

For every test sample, the scores of the training samples of a subset are added up, and compared over subsets with the
margin ln p/(1 - p) of the true class, p the probability that a network trained on that subset gives it. The score is
Spearman's rank correlation of the two, in the mean over test samples: 1 for scores that put all subsets in the right
order, 0 for scores without meaning. No method reaches 1 on real networks: two networks trained on the same subset
differ, too.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.stats import spearmanr
from scipy.stats import t as student
from torch import Tensor

from tangentkit.core.errors import InputError
from tangentkit.core.seeds import Key
from tangentkit.report import Interval
from tangentkit.surrogate.evaluation.outcome import LEVEL, Outcome, mean_interval
from tangentkit.surrogate.evaluation.retraining import Retrained
from tangentkit.surrogate.evaluation.scores import Scores, scores_for

FEWEST = 3
"""Subsets, below which there is nothing to rank."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class DatamodelingScore(Outcome):
    """A linear datamodeling score (LDS). Its interval is that of other subsets, by the bootstrap over subsets."""

    name = "LDS"
    points_interval: Interval
    """The interval of other test samples, with these very networks."""
    draws: Float[np.ndarray, " b"]
    """The score of every draw of the bootstrap; with one seed, methods on the same networks have the same draws."""
    subsets: int
    undefined: int
    """Test samples whose sums of scores, or whose margins, are equal for all subsets; they count as 0."""

    @property
    def note(self) -> str:
        """What it was measured on, in a sentence."""
        text = f"{len(self.each):,} test samples, {self.subsets:,} networks trained on subsets."
        return text + f" {self.undefined:,} samples without any difference count as 0." * (self.undefined > 0)

    def difference(self, other: "DatamodelingScore") -> Interval:
        """By how much this score is above another's of the same networks: pairs of draws tell more than two do alone.

        Raises:
            InputError: the other is of other subsets, or of another seed.
        """
        if self.subsets != other.subsets or len(self.draws) != len(other.draws):
            raise InputError(
                "the scores are of different networks",
                expected="the same subsets and the same bootstrap for both",
                got=f"{self.subsets} and {other.subsets} subsets",
            )
        return _interval(self.value - other.value, self.draws - other.draws, self.subsets, 2)

    def to_dict(self) -> dict[str, Any]:
        """The results as plain numbers."""
        points = {"points low": self.points_interval.low, "points high": self.points_interval.high}
        return super().to_dict() | points | {"subsets": self.subsets, "undefined": self.undefined}


def linear_datamodeling_score(
    scores: Scores,
    retrained: Retrained,
    labels: Int[Tensor, " n"],
    *,
    bootstrap: int = 1000,
    seed: int = 0,
) -> DatamodelingScore:
    """The mean over test samples of Spearman's correlation between sums of scores and margins, over subsets.

    The interval is value ± t σ, σ the standard deviation over draws of subsets with replacement and t Student's
    quantile: quantiles of the draws themselves would miss high correlations, since a draw has ties. Scores without
    meaning have a true value of about 1/√m, so that it takes many more training samples than subsets to see a 0.

    Args:
        scores: of n test samples and m training samples.
        retrained: networks trained on subsets of these.
        labels: the true classes of the test samples.
        bootstrap: how many times the subsets are drawn anew.
        seed: of these draws.

    Raises:
        InputError: scores, networks and labels do not go together, or there are fewer than three networks.

    Example:
        >>> import torch
        >>> from tangentkit.surrogate.evaluation import random_subsets
        >>> scores, masks = torch.randn(4, 20), random_subsets(20, 30)
        >>> margins = masks.float() @ scores.T
        >>> planted = Retrained(masks, torch.stack([margins, 0 * margins], 2))
        >>> round(linear_datamodeling_score(scores, planted, torch.zeros(4, dtype=int)).value, 3)
        1.0
    """
    own, margins = scores_for(scores, labels), retrained.margins(labels)
    masks = retrained.masks.numpy()
    m = masks.shape[1]
    if own.shape[1] != m:
        raise InputError(
            "scores and networks are of different training samples",
            expected=f"scores of {m} training samples",
            got=own.shape[1],
        )
    return _ranked(masks @ own.T, margins, bootstrap, seed)


def noise_ceiling(
    retrained: Retrained,
    again: Retrained,
    labels: Int[Tensor, " n"],
    *,
    bootstrap: int = 1000,
    seed: int = 0,
) -> DatamodelingScore:
    """How well networks predict others that were trained on the same subsets: what training itself leaves open.

    Its value r is the linear datamodeling score of their margins. Where a margin is a mean for the subset and noise
    of the training, a method that knew the means would score about √r, and none can score more.

    Args:
        retrained: networks trained on subsets.
        again: others trained on the same subsets, with another seed.
        labels: the true classes of the test samples.
        bootstrap: how many times the subsets are drawn anew.
        seed: of these draws.

    Raises:
        InputError: the two are of different subsets, or have the same seed.
    """
    if not torch.equal(retrained.masks, again.masks):
        raise InputError("the networks are of different subsets", expected="the same masks for both")
    if torch.equal(retrained.logits, again.logits):
        raise InputError(
            "the networks are the same", expected="networks trained twice", hint="retrain_on(..., seed=1)"
        )
    return _ranked(again.margins(labels), retrained.margins(labels), bootstrap, seed)


def _ranked(
    sums: Float[np.ndarray, "s n"], margins: Float[np.ndarray, "s n"], bootstrap: int, seed: int
) -> DatamodelingScore:
    """How alike two numbers of every test sample rank the subsets."""
    s = len(sums)
    if s < FEWEST:
        raise InputError("too few networks to rank", expected=f"{FEWEST} subsets or more", got=s)
    flat = np.ptp(margins, axis=0) == 0
    if flat.all():
        raise InputError(
            "the networks of all subsets say the same",
            expected="networks that were trained on different samples",
            got=f"{s} networks with equal margins",
            hint="a `retrain` that trains a new network on the samples that it is given",
        )
    weights = Key(seed).fold("LDS").numpy().multinomial(s, np.full(s, 1 / s), size=bootstrap)
    everything = np.concatenate([np.ones((1, s)), weights])
    found = np.array([weighted_spearman(a, b, everything) for a, b in zip(sums.T, margins.T, strict=True)])
    each, draws = found[:, 0], found[:, 1:].mean(0)
    value = float(each.mean())
    return DatamodelingScore(
        value=value,
        interval=_interval(value, draws, s, 1),
        points_interval=mean_interval(each, -1, 1),
        chance=0.0,
        each=each,
        draws=draws,
        subsets=s,
        undefined=int(((np.ptp(sums, axis=0) == 0) | flat).sum()),
    )


def weighted_spearman(
    a: Float[np.ndarray, " s"], b: Float[np.ndarray, " s"], weights: Float[np.ndarray, "w s"]
) -> Float[np.ndarray, " w"]:
    """Spearman's correlation of points (a_i, b_i) that count weights_i times, for each row of weights.

    The rank of a point is the weight of what is below it and half of what equals it. Where all points of a row are
    equal in a or in b it is 0.

    Example:
        >>> a, b = np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 3.0, 2.0, 4.0])
        >>> weighted_spearman(a, b, np.array([[1.0, 1, 1, 1], [2, 0, 0, 2]])).round(3).tolist()
        [0.8, 1.0]
    """
    weights = weights.astype(float)
    total = weights.sum(1, keepdims=True)

    def centered_ranks(values: np.ndarray) -> np.ndarray:
        below = (1 + np.sign(values[None, :] - values[:, None])) / 2
        ranks = weights @ below
        return ranks - (weights * ranks).sum(1, keepdims=True) / total

    x, y = centered_ranks(a), centered_ranks(b)
    norm = np.sqrt((weights * x * x).sum(1) * (weights * y * y).sum(1))
    return np.divide((weights * x * y).sum(1), norm, out=np.zeros_like(norm), where=norm > 0)


def spearman(a: Float[np.ndarray, " s"], b: Float[np.ndarray, " s"]) -> float:
    """Spearman's correlation; 0 where all of a or all of b are equal.

    Example:
        >>> round(spearman(np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 3.0, 2.0, 4.0])), 3)
        0.8
    """
    return 0.0 if np.ptp(a) == 0 or np.ptp(b) == 0 else float(spearmanr(a, b)[0])  # pyright: ignore[reportArgumentType]


def _interval(value: float, draws: np.ndarray, subsets: int, most: float) -> Interval:
    half = float(student.ppf((1 + LEVEL) / 2, subsets - 1) * draws.std(ddof=1))
    return Interval(value, max(-most, value - half), min(most, value + half))
