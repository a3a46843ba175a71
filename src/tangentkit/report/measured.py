"""A number with its standard error."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Measured:
    """A value and its standard error, printed together in one format.

    Example:
        >>> f"{Measured(0.7761, 0.0031):.3f}", f"{Measured(-0.28):+.2f}"
        ('0.776 ± 0.003', '-0.28')
    """

    value: float
    error: float | None = None
    """Standard error of the mean; None where it is not known."""

    @classmethod
    def over(cls, samples: Sequence[float]) -> "Measured":
        """The mean of repeats with its standard error std / √n; one repeat has no error.

        Example:
            >>> f"{Measured.over([1.0, 2.0, 3.0]):.2f}"
            '2.00 ± 0.58'
        """
        n = len(samples)
        # As a distance from the first sample: equal samples have a mean without rounding, and no error.
        mean = samples[0] + math.fsum(sample - samples[0] for sample in samples) / n if n else math.nan
        if n < 2:
            return cls(mean)
        variance = math.fsum((sample - mean) ** 2 for sample in samples) / (n - 1)
        return cls(mean, math.sqrt(variance / n))

    def __format__(self, spec: str) -> str:
        value = format(self.value, spec)
        # A sign asked for belongs to the value alone.
        return value if self.error is None else f"{value} ± {format(self.error, spec.replace('+', ''))}"

    def __str__(self) -> str:
        return format(self, ".4g")
