"""How long the pieces of work take on this machine, by trial tiles of a few samples."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from tangentkit.compute.finite_tiles import made
from tangentkit.compute.kernel import Kernel
from tangentkit.compute.sources import SampleSource
from tangentkit.compute.terms import HasRows, Range, Row
from tangentkit.core.batches import Batch

SMALLEST, LARGEST = 4, 1024
"""Samples along the side of a trial."""
ENOUGH = 0.5
"""Seconds of a trial that need no larger one. After shorter ones noise grows with the square of what is left to
extrapolate; and most tiles that are so quick are tried as they are."""


@dataclass(frozen=True)
class Tried:
    """The largest trials of a kernel that were needed."""

    part: float
    """Seconds of all parts of a sample: features, diagonals."""
    tiles: dict[int, float]
    """Samples along the side of a tile whose row was begun -> seconds."""
    trial: "Trial"
    """The last of them."""

    @property
    def side(self) -> int:
        """Samples along the side of the last trial."""
        return max(self.tiles)


def tried(kernel: Kernel, source: SampleSource, most: int, *, quick: float = 0.0) -> Tried:
    """Trials of a kernel on some samples, growing until they take long enough.

    Args:
        kernel: any.
        source: the samples.
        most: samples along the side of the largest tile that is of interest.
        quick: seconds. It ends as soon as it is certain that the largest tile takes less: it grows with the square of
            its side at most.
    """
    most = min(most, len(source))
    part, known = _parts(kernel, source, most, quick)
    side, times = min(SMALLEST, most), {}
    while True:
        trial = Trial.between(kernel, source, side, known)
        times[side] = timed(trial.tile)
        certain = times[side] * (most / side) ** 2 <= quick
        if certain or times[side] >= ENOUGH or side == min(most, LARGEST):
            return Tried(part, times, trial)
        side = min(2 * side, most, LARGEST)


def _parts(kernel: Kernel, source: SampleSource, most: int, quick: float) -> tuple[float, dict[str, Tensor]]:
    """Seconds of the parts of a sample, and the parts of the first samples."""
    if not list(kernel.term().parts()):
        return 0.0, {}
    side = min(SMALLEST, most)
    while True:
        trial = Trial.between(kernel, source, side, {})
        seconds = timed(trial.parts)
        if seconds >= ENOUGH or seconds / side * most <= quick or side == min(most, LARGEST):
            return seconds / side, trial.known
        side = min(2 * side, most, LARGEST)


@dataclass(frozen=True, eq=False)
class Trial:
    """A small tile: the first samples against the last, which are never the same, so that no half is saved."""

    kernel: Kernel
    places: tuple[Range, Range]
    batches: tuple[Batch, Batch]
    known: dict[str, Tensor]
    """Parts of some samples: for any others they would take as long to multiply."""
    begun: dict[int, Row] = field(default_factory=dict)

    @classmethod
    def between(cls, kernel: Kernel, source: SampleSource, side: int, known: dict[str, Tensor]) -> "Trial":
        """The trial with so many samples a side."""
        n = len(source)
        places = Range("x", 0, slice(0, side)), Range("x", 1, slice(n - side, n))
        return cls(kernel, places, (source.read(places[0].span), source.read(places[1].span)), known)

    def tile(self) -> Tensor:
        """The tile of samples that the trial times."""
        return made(lambda: self.kernel.term().tile(self, *self.places), self.kernel, self, *self.places)

    def anew(self) -> Tensor:
        """The tile with no row begun."""
        self.begun.clear()
        return self.tile()

    def parts(self) -> None:
        """All parts of the first samples, computed now."""
        self.known.clear()
        place = self.places[0]
        for name, part in self.kernel.term().parts():
            self.known[name] = made(lambda part=part: part(self, place), self.kernel, self, place)

    def samples(self, where: Range) -> Batch:
        """The samples of a side."""
        return self.batches[where.i]

    def part(self, name: str, where: Range) -> Tensor:
        """A part, of those that are known in turn."""
        known = self.known[name]
        return known[torch.arange(where.span.stop - where.span.start, device=known.device) % len(known)]

    def row(self, kernel: HasRows, where: Range) -> Row:
        """The tiles of a kernel in the row of the first samples."""
        if id(kernel) not in self.begun:
            self.begun[id(kernel)] = kernel.row(self.samples(where))
        return self.begun[id(kernel)]


def timed(work: Callable[[], Any]) -> float:
    """Seconds of one call, the first left out: it learns the model."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
        if len(times) > 1 and times[-1] >= ENOUGH:
            break
    return min(times[1:])
