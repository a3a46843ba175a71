"""Shares: how many of how many, with the interval that the truth is in."""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool

from tangentkit.core.errors import InputError
from tangentkit.report.claim import CONFIDENCE


@dataclass(frozen=True)
class Share:
    """hits / of, with the exact 95 % interval of Clopper and Pearson.

    Of nothing it is not a number, and may be anything from 0 to 1.

    Example:
        >>> found = Share(9, 10)
        >>> found.value, [round(end, 3) for end in found.interval]
        (0.9, [0.555, 0.997])
        >>> print(found)
        90.0 % (55.5 to 99.7 %), 9 of 10
    """

    hits: int
    of: int

    def __post_init__(self) -> None:
        if not 0 <= self.hits <= self.of:
            raise InputError("bad share", expected="0 <= hits <= of", got=f"{self.hits} of {self.of}")

    @property
    def value(self) -> float:
        """The share itself."""
        return self.hits / self.of if self.of else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """The shares that a binomial law with these hits does not rule out, either side at 2.5 %."""
        from scipy.stats import binomtest

        if not self.of:
            return 0.0, 1.0
        ends = binomtest(self.hits, self.of).proportion_ci(CONFIDENCE, method="exact")
        return float(ends.low), float(ends.high)

    def __str__(self) -> str:
        if not self.of:
            return "none of none"
        low, high = self.interval
        return f"{self.value:.1%} ({100 * low:.1f} to {high:.1%}), {self.hits} of {self.of}".replace(
            "%", " %"
        )

    def to_dict(self) -> dict[str, float | int | None]:
        """Plain numbers; a share of nothing is None."""
        low, high = self.interval
        return {
            "value": self.value if self.of else None,
            "low": low,
            "high": high,
            "hits": self.hits,
            "of": self.of,
        }


def precision_and_recall(
    flagged: Bool[np.ndarray, " n"], true: Bool[np.ndarray, " n"]
) -> tuple[Share, Share]:
    """The share of flags that are right, and the share of the true ones that are flagged.

    Example:
        >>> precision, recall = precision_and_recall(np.array([True, True, False]), np.array([True, False, True]))
        >>> precision.value, recall.value
        (0.5, 0.5)
    """
    hits = int((flagged & true).sum())
    return Share(hits, int(flagged.sum())), Share(hits, int(true.sum()))
