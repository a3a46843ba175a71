"""A claim, judged from several seeds: it holds, does not hold, or is not decided."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from scipy.special import stdtrit

from tangentkit.report.measured import Measured

Verdict = Literal["holds", "does not hold", "not decided"]

CONFIDENCE = 0.95
FEW_SEEDS = 5
"""Enough to see a spread."""
MOST_SEEDS = 100
"""More than that is no advice: a larger study is the cheaper way."""
COUNTED = 1000
"""So far the seeds that would decide a claim are counted."""
LARGER = "a larger --scale"
SEEDS = "seeds"


@dataclass(frozen=True)
class Interval:
    """A mean and the interval that holds it."""

    mean: float
    low: float
    high: float

    @classmethod
    def over(cls, values: Sequence[float]) -> "Interval":
        """Student's 95 % interval of the mean over seeds, infinite with fewer than two.

        Example:
            >>> Interval.over([1.0])
            Interval(mean=1.0, low=-inf, high=inf)
        """
        measured = Measured.over(values)
        if math.isnan(measured.value) or measured.error is None:
            return cls(measured.value, -math.inf, math.inf)
        half = _student(len(values)) * measured.error
        return cls(measured.value, measured.value - half, measured.value + half)


@dataclass(frozen=True)
class Claim:
    """The claim that the mean of a quantity over seeds lies strictly between `low` and `high`.

    The judge is Student's 95 % interval of this mean. Wholly inside: the claim holds; wholly
    outside: it does not hold; otherwise, and always with one seed, it is not decided. Equal values of two seeds and
    more are an interval of no width.

    Example:
        >>> Claim("tau is at least 0.7", "tau", (0.80, 0.82, 0.81), low=0.7).verdict
        'holds'
        >>> Claim("tau is at least 0.7", "tau", (0.6, 0.9, 0.8), low=0.7).verdict
        'not decided'
    """

    statement: str
    """What is claimed, in one sentence."""
    quantity: str
    """What the values are."""
    values: tuple[float, ...]
    """One value for each seed, or for each of what `over` names."""
    low: float = -math.inf
    high: float = math.inf
    published: str = ""
    """What the source reports, in words."""
    needs: str = ""
    """What would decide it, where this run cannot whatever its numbers are, such as a size; else nothing."""
    larger: str = LARGER
    """What to enlarge where seeds alone would not decide it: the fields of the study that make its spread smaller."""
    over: str = SEEDS
    """What its values are of, where these are not seeds: then there are no more of them to be had."""

    @property
    def interval(self) -> Interval:
        """The mean over seeds and its 95 % interval, infinite with fewer than two seeds."""
        return Interval.over(self.values)

    @property
    def verdict(self) -> Verdict:
        """The judgement that the numbers allow."""
        interval = self.interval
        if self.needs:
            return "not decided"
        if self.low < interval.low and interval.high < self.high:
            return "holds"
        if interval.high < self.low or self.high < interval.low:
            return "does not hold"
        return "not decided"

    @property
    def evidence(self) -> str:
        """The numbers behind the judgement, in one sentence.

        Example:
            >>> Claim("tau is at least 0.7", "tau", (0.80, 0.82, 0.81), low=0.7).evidence
            'tau: mean 0.8100, 95 % interval 0.7852 to 0.8348 over 3 seeds; needed: above 0.7'
        """
        interval, count = self.interval, len(self.values)
        if not math.isfinite(interval.low):
            spread = "no interval from one seed" if count == 1 else "no interval"
            return f"{self.quantity}: mean {interval.mean:z.4g}, {spread}; needed: {self._region}"
        half = (interval.high - interval.low) / 2
        if not half > 0:
            same = f"{interval.mean:z.4f}, the same for all {count} {self.over}"
            return f"{self.quantity}: {same}; needed: {self._region}"
        # Digits far below the uncertainty mean nothing.
        digits = max(0, 2 - math.floor(math.log10(half)))
        mean, low, high = (f"{value:z.{digits}f}" for value in (interval.mean, interval.low, interval.high))
        return (
            f"{self.quantity}: mean {mean}, 95 % interval {low} to {high} over {count} {self.over}; "
            f"needed: {self._region}"
        )

    @property
    def seeds_needed(self) -> int | None:
        """How many seeds would decide it if mean and spread stayed as they are.

        The least n, more than were run, with t(n) s / √n < |mean - bound|. One seed has no spread; five show it. None
        for a claim that is decided, for values of other things than seeds, and where no n up to 100 would do.

        Example:
            >>> Claim("tau is at least 0.7", "tau", (0.6, 0.9, 0.8), low=0.7).seeds_needed
            23
        """
        seeds = self._seeds_counted
        return seeds if seeds is not None and seeds <= MOST_SEEDS else None

    @property
    def _seeds_counted(self) -> int | None:
        """The same, up to 1,000."""
        n = len(self.values)
        if self.needs or self.over != SEEDS or self.verdict != "not decided":
            return None
        if math.isnan(mean := self.interval.mean):
            return None
        if n < 2:
            return FEW_SEEDS
        spread = (Measured.over(self.values).error or 0.0) * math.sqrt(n)
        distance = min(abs(mean - self.low), abs(mean - self.high))
        more = range(n + 1, COUNTED + 1)
        return next((k for k in more if _student(k) * spread < distance * math.sqrt(k)), None)

    @property
    def remedy(self) -> str:
        """What would decide a claim that is not decided, in one sentence; nothing for others.

        Example:
            >>> Claim("tau is at least 0.7", "tau", (0.6, 0.9, 0.8), low=0.7).remedy
            'about 23 seeds would decide it if mean and spread stay as they are'
        """
        if self.verdict != "not decided":
            return ""
        if self.needs:
            return self.needs
        if self.over != SEEDS:
            return f"there are no more {self.over}, but {self.larger} may decide it"
        if len(self.values) < 2:
            words = "one seed decides nothing" if self.values else "no seed has a value"
            return f"{words}: {FEW_SEEDS} seeds show the spread, and how many more it takes"
        seeds = self._seeds_counted
        if seeds is not None and seeds <= MOST_SEEDS:
            return f"about {seeds} seeds would decide it if mean and spread stay as they are"
        words = f"not even {COUNTED:,}" if seeds is None else f"about {seeds}"
        return f"seeds alone will not at this size ({words} if mean and spread stay), but {self.larger} may"

    @property
    def _region(self) -> str:
        if math.isfinite(self.low) and math.isfinite(self.high):
            return f"between {self.low:g} and {self.high:g}"
        return f"above {self.low:g}" if math.isfinite(self.low) else f"below {self.high:g}"


def _student(n: int) -> float:
    """Half the width of the 95 % interval of a mean of n values, in standard errors."""
    return float(stdtrit(n - 1, (1 + CONFIDENCE) / 2))
