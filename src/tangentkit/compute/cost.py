"""What a Gram matrix will cost, from a look at a few samples."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from tangentkit.compute.kernel import Kernel
from tangentkit.compute.layout import GRAM, make_layout
from tangentkit.compute.sources import as_source
from tangentkit.compute.terms import Range, Term, as_term
from tangentkit.core.batches import Batch, take
from tangentkit.core.memory import format_bytes

TRIAL = 32
"""Samples along the side of the larger trial."""


@dataclass(frozen=True)
class Cost:
    """Tiles, bytes and seconds of a Gram matrix."""

    shape: tuple[int, int]
    tile: int
    """Samples along the side of a tile."""
    tiles: int
    nbytes: int
    """On disk, parts included."""
    part_seconds: float
    """For all parts (features, diagonals), by one worker."""
    each: float
    """Seconds of a tile for every sample along its side: passes through a model."""
    pairs: float
    """Seconds of a tile for every pair of samples: products."""

    @property
    def tile_seconds(self) -> float:
        """For one tile, by one worker, without writing it."""
        return self.each * self.tile + self.pairs * self.tile**2

    @property
    def seconds(self) -> float:
        """For all of it, by one worker."""
        return self.part_seconds + self.tiles * self.tile_seconds

    def __str__(self) -> str:
        return (
            f"{self.shape[0]} x {self.shape[1]}: {self.tiles} tiles of {self.tile} samples a side, "
            f"{format_bytes(self.nbytes)}, about {duration(self.seconds)} of one worker"
        )


def gram_cost(kernel: Kernel, x: Any, y: Any = None, *, tile: int | None = None) -> Cost:
    """The cost of `gram(kernel, x, y, tile=tile)`, estimated.

    Two small tiles are timed. What grows with the samples (passes through a model) and with the pairs (products) is
    told apart by their sizes, and extrapolated: t(s) = a s + b s².

    Example:
        >>> import torch
        >>> from tangentkit import ConjugateKernel
        >>> cost = gram_cost(ConjugateKernel(torch.nn.Linear(3, 2)), torch.randn(100, 3), tile=10)
        >>> cost.tiles, cost.seconds > 0
        (55, True)
    """
    sources = {"x": as_source(x)} | ({} if y is None else {"y": as_source(y)})
    layout = make_layout(kernel, sources, tile)
    term, first = as_term(kernel), sources["x"]
    side = min(TRIAL, layout.tile, len(first))
    # The last samples against the first: never the same, so that no half is saved, unless there is but one.
    batches = first.read(slice(0, side)), first.read(slice(len(first) - side, len(first)))
    half, whole = (Trial(term, batches, size) for size in (max(1, side // 2), side))
    small, large = _timed(half.tile), _timed(whole.tile)
    pairs = max(0.0, 2 * (large - 2 * small) / side**2) if side > 1 else 0.0
    each = max(0.0, large / side - pairs * side)
    parts = _timed(lambda: Trial(term, batches, side).parts()) / side
    return Cost(
        layout.arrays[GRAM].shape,
        layout.tile,
        len(layout.indices(GRAM)),
        layout.nbytes,
        parts * sum(map(len, sources.values())),
        each,
        pairs,
    )


def duration(seconds: float) -> str:
    """A time as people say it.

    Example:
        >>> duration(0.02), duration(90), duration(40_000)
        ('0.02 s', '1.5 min', '11.1 h')
    """
    if seconds < 60:
        return f"{seconds:.2g} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


@dataclass(frozen=True, eq=False)
class Trial:
    """A small tile between two batches; parts are computed when they are first asked for."""

    term: Term
    batches: tuple[Batch, Batch]
    size: int
    """Samples of each batch that take part."""
    known: dict[tuple[str, int], Tensor] = field(default_factory=dict)

    def tile(self) -> Tensor:
        """The tile."""
        return self.term.tile(self, self._range(0), self._range(1))

    def parts(self) -> None:
        """All parts of the first batch."""
        for name, _ in self.term.parts():
            self.part(name, self._range(0))

    def samples(self, where: Range) -> Batch:
        """The samples of a batch."""
        return take(self.batches[where.i], where.span)

    def part(self, name: str, where: Range) -> Tensor:
        """A part for a batch."""
        if (name, where.i) not in self.known:
            self.known[name, where.i] = dict(self.term.parts())[name](self, where)
        return self.known[name, where.i]

    def _range(self, i: int) -> Range:
        return Range("x", i, slice(0, self.size))


def _timed(work: Callable[[], Any]) -> float:
    work()  # the first call learns the model
    best = float("inf")
    for _ in range(2):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best
