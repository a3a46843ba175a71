"""What a call of an infinite-width kernel will take."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from tangentkit.compute.cost.cost import duration
from tangentkit.core.memory import format_bytes

LONG_ENOUGH = 0.2
"""Seconds that a trial should take: shorter ones are mostly what a call costs at any size."""


def estimated_seconds(call: Callable[[int], object], samples: int, *, begin: int) -> float:
    """The time of a call on all samples, by calls on few, then twice as many; it grows with their square."""
    size = min(begin, samples)
    while True:
        call(size)  # tables and the like are made once
        start = time.perf_counter()
        call(size)
        seconds = time.perf_counter() - start
        if seconds >= LONG_ENOUGH or size == samples:
            return seconds * (samples / size) ** 2
        size = min(2 * size, samples)


@dataclass(frozen=True)
class InfinitePlan:
    """The size and the estimated time of k(x, y). Prints in a few lines."""

    shape: tuple[int, int]
    """Of the result."""
    pairs: int
    """Pairs of samples that are computed: of a symmetric kernel about half."""
    positions: tuple[int, ...]
    """Positions of the input, (height, width) of images; () of vectors."""
    all_positions: bool
    """Whether every position meets every other (pooling asks for it), or only itself (flatten)."""
    nbytes: int
    """Of the result."""
    seconds: float
    """Estimated from calls with few samples."""

    def __str__(self) -> str:
        n, m = self.shape
        size = " x ".join(map(str, self.positions))
        if not self.positions:
            covariances = "one covariance for each pair of samples and each layer"
        elif self.all_positions:
            covariances = (
                f"covariances of all pairs of positions ({size} each): the network averages over positions"
            )
        else:
            covariances = f"covariances of equal positions ({size})"
        return "\n".join(
            [
                f"{n} x {m} entries, {self.pairs} pairs of samples, {format_bytes(self.nbytes)}",
                covariances,
                f"about {duration(self.seconds)}",
            ]
        )
