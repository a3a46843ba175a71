"""What an evaluation of attributions gives: a number, its 95 % interval, and what chance would give."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Float
from scipy.stats import binomtest

from tangentkit.report import Column, Figure, Histogram, Interval, Table, drawn

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEVEL = 0.95
"""Of all intervals."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Outcome(ABC):
    """The answer to one question about a method of attribution."""

    name: ClassVar[str]
    """What the number is called."""
    better: ClassVar[str] = "high"
    """Whether a good method has a "high" or a "low" number."""
    value: float
    interval: Interval
    """The 95 % interval of the value."""
    chance: float
    """What scores without meaning give on average; nan where only the random baseline tells."""
    each: Float[np.ndarray, " n"]
    """The numbers that the value sums up, one for each sample."""

    @property
    @abstractmethod
    def note(self) -> str:
        """What it was measured on, in a sentence."""

    def __repr__(self) -> str:
        chance = "" if math.isnan(self.chance) else f", by chance {self.chance:.3g}"
        return f"{self.name} {self.value:.3f}, 95 % interval {self.interval_text()}{chance}"

    def interval_text(self) -> str:
        """The ends of the interval as people write them."""
        return f"{self.interval.low:.3f} to {self.interval.high:.3f}"

    def table(self) -> Table:
        """One row a number."""
        rows = (
            (self.name, self.value),
            ("95 % interval, from", self.interval.low),
            ("95 % interval, to", self.interval.high),
            ("by chance", self.chance),
        )
        return Table(self.name, ("number", Column("value", ".3f")), rows, note=self.note)

    def figure(self) -> Figure:
        """How the numbers of single samples are spread."""
        return Histogram(
            title=self.name,
            caption=f"{self.name} of single samples. {self.note}",
            samples={self.name: self.each},
            x_label=f"{self.name} of a sample",
            y_label="density",
        )

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draws the figure on axes, new ones where none are given."""
        return drawn(self.figure(), ax)

    def to_dict(self) -> dict[str, Any]:
        """The results as plain numbers."""
        ends = {"low": self.interval.low, "high": self.interval.high}
        chance = None if math.isnan(self.chance) else self.chance
        return {"name": self.name, "value": self.value, **ends, "chance": chance, "note": self.note}


def share_interval(hits: int, n: int) -> Interval:
    """A share of n independent samples, with Wilson's interval.

    Example:
        >>> found = share_interval(0, 20)
        >>> found.mean, round(found.high, 3)
        (0.0, 0.161)
    """
    ends = binomtest(hits, n).proportion_ci(LEVEL, method="wilson")
    return Interval(hits / n, float(ends.low), float(ends.high))


def mean_interval(values: Float[np.ndarray, " n"], low: float, high: float) -> Interval:
    """The mean of independent numbers that lie between two bounds, with Student's interval within them.

    Example:
        >>> mean_interval(np.array([0.0, 1.0]), 0.0, 1.0)
        Interval(mean=0.5, low=0.0, high=1.0)
    """
    found = Interval.over(values.tolist())
    return Interval(found.mean, max(low, found.low), min(high, found.high))


def harmonic(m: int) -> float:
    """1 + 1/2 + ... + 1/m.

    Example:
        >>> round(harmonic(4), 4)
        2.0833
    """
    return math.fsum(1 / k for k in range(1, m + 1))
