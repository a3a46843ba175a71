"""What a Gram matrix will cost, from a look at a few samples."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from tangentkit.compute.files import as_folder
from tangentkit.compute.kernel import Kernel, Row
from tangentkit.compute.layout import GRAM, Layout, make_layout
from tangentkit.compute.sources import Source, sources_of
from tangentkit.compute.store import is_store, read_manifest
from tangentkit.compute.terms import Range, Term, as_term
from tangentkit.compute.tiles import Index
from tangentkit.core.batches import Batch, take
from tangentkit.core.memory import format_bytes

SMALLEST, LARGEST = 16, 1024
"""Samples along the side of a trial."""
ENOUGH = 0.3
"""Seconds of a trial that need no larger one. After shorter ones noise grows with the square of what is left to
extrapolate; and most tiles that are so quick are tried as they are."""
WRITING = 1e9
"""Bytes a second for a tile to be checked and written, assumed."""


@dataclass(frozen=True)
class Cost:
    """Tiles, bytes and seconds of a Gram matrix."""

    shape: tuple[int, int]
    tile: int
    """Samples along the side of a tile."""
    tiles: int
    """In all."""
    done: int
    """Tiles that the store has already."""
    nbytes: int
    """On disk, parts included, when all is there."""
    seconds: float
    """For what is missing, by one worker."""

    def __str__(self) -> str:
        done = f", {self.done} of them there," if self.done else ""
        return (
            f"{self.shape[0]} x {self.shape[1]}: {self.tiles} tiles of {self.tile} samples a side{done or ','} "
            f"{format_bytes(self.nbytes)}, about {duration(self.seconds)} of one worker"
        )


def gram_cost(
    kernel: Kernel, x: Any, y: Any = None, *, store: str | Path | None = None, tile: int | None = None
) -> Cost:
    """The cost of `gram(kernel, x, y, store=store, tile=tile)`, estimated; of a store that is begun, the rest.

    Small tiles are timed. What grows with the samples (passes through a model) and with the pairs (products) is
    told apart by their sizes, and extrapolated: t(s) = a s + b s².

    Raises:
        DataError: the manifest of the store is damaged.

    Example:
        >>> import torch
        >>> from tangentkit import ConjugateKernel
        >>> cost = gram_cost(ConjugateKernel(torch.nn.Linear(3, 2)), torch.randn(100, 3), tile=10)
        >>> cost.tiles, cost.seconds > 0
        (55, True)
    """
    sources = sources_of(kernel, x, y)
    begun = None if store is None or not is_store(as_folder(store)) else read_manifest(as_folder(store))
    layout = make_layout(kernel, sources, begun.identity["tile"] if begun and tile is None else tile)
    there = {} if begun is None else begun.arrays
    missing = {
        name: [index for index in layout.indices(name) if name not in there or not there[name].has(index)]
        for name in layout.arrays
    }
    seconds = _seconds(_rates(as_term(kernel), sources["x"], layout.tile), layout, missing)
    shape, tiles = layout.arrays[GRAM].shape, len(layout.indices(GRAM))
    return Cost(shape, layout.tile, tiles, tiles - len(missing[GRAM]), layout.nbytes, seconds)


def duration(seconds: float) -> str:
    """A time as people say it.

    Example:
        >>> duration(0.02), duration(90), duration(40_000)
        ('0.02 s', '1.5 min', '11.1 h')
    """
    if seconds < 60:
        return f"{seconds:.2g} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


@dataclass(frozen=True)
class Rates:
    """Seconds of the pieces of work."""

    part: float
    """All parts of a sample: features, diagonals."""
    left: float
    """A sample on the left of a row of tiles, once for the row."""
    right: float
    """A sample on the right of a tile."""
    pair: float
    """A pair of samples."""


def _seconds(rates: Rates, layout: Layout, missing: dict[str, list[Index]]) -> float:
    """The time of what is missing."""
    total, begun = 0.0, set()
    for name, indices in missing.items():
        array = layout.arrays[name]
        per_sample = layout.outputs if name == GRAM else 1
        for i, j in indices:
            n, m = ((span.stop - span.start) / per_sample for span in array.span((i, j)))
            total += array.file_bytes / WRITING
            if name != GRAM:
                continue
            # On the diagonal both sides are one, which goes through the model once.
            one = layout.symmetric and i == j
            total += rates.pair * n * m + (max(0.0, rates.right - rates.left) / 2 if one else rates.right) * m
            total += 0 if i in begun else rates.left * n
            begun.add(i)
    parts = [name for name in layout.arrays if name != GRAM]
    if parts:
        share = sum(len(missing[name]) for name in parts) / sum(len(layout.indices(name)) for name in parts)
        samples = sum(layout.arrays[GRAM].shape[: 1 if layout.symmetric else 2]) / layout.outputs
        total += rates.part * samples * share
    return total


def _rates(term: Term, source: Source, tile: int) -> Rates:
    """The rates on this machine, by tiles that grow until they take long enough."""
    most = min(tile, len(source), LARGEST)
    side = min(SMALLEST, most)
    while True:
        # The last samples against the first: never the same, so that no half is saved, unless there is but one.
        batches = source.read(slice(0, side)), source.read(slice(len(source) - side, len(source)))
        trial = Trial(term, batches, side)
        large = _timed(trial.tile)
        if large >= ENOUGH or side == most:
            break
        side = min(2 * side, most)
    half = max(1, side // 2)
    small = _timed(Trial(term, batches, half).tile)
    pair = max(0.0, (large / side - small / half) / (side - half)) if side > half else 0.0
    return Rates(
        part=_timed(Trial(term, batches, side).parts) / side,
        left=max(0.0, _timed(lambda: trial.anew().tile()) - large) / side,
        right=max(0.0, large / side - pair * side),
        pair=pair,
    )


@dataclass(frozen=True, eq=False)
class Trial:
    """A small tile between two batches; parts and rows are computed when they are first asked for."""

    term: Term
    batches: tuple[Batch, Batch]
    size: int
    """Samples of each batch that take part."""
    known: dict[tuple[str, int], Tensor] = field(default_factory=dict)
    begun: dict[int, Row] = field(default_factory=dict)

    def tile(self) -> Tensor:
        """The tile."""
        return self.term.tile(self, self._range(0), self._range(1))

    def parts(self) -> None:
        """All parts of the first batch."""
        self.known.clear()
        for name, _ in self.term.parts():
            self.part(name, self._range(0))

    def anew(self) -> "Trial":
        """The same with no row begun."""
        return replace(self, begun={})

    def samples(self, where: Range) -> Batch:
        """The samples of a batch."""
        return take(self.batches[where.i], where.span)

    def part(self, name: str, where: Range) -> Tensor:
        """A part for a batch."""
        if (name, where.i) not in self.known:
            self.known[name, where.i] = dict(self.term.parts())[name](self, where)
        return self.known[name, where.i]

    def row(self, kernel: Kernel, where: Range) -> Row:
        """The tiles of a kernel in the row of a batch."""
        if id(kernel) not in self.begun:
            self.begun[id(kernel)] = kernel.row(self.samples(where))
        return self.begun[id(kernel)]

    def _range(self, i: int) -> Range:
        return Range("x", i, slice(0, self.size))


def _timed(work: Callable[[], Any]) -> float:
    """Seconds of one call, the first left out: it learns the model."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times[1:])
