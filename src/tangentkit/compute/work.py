"""The work on one tile: what a worker does, wherever it runs."""

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor

from tangentkit.compute.cache import CACHE_SHARE, BoundedCache
from tangentkit.compute.finite_tiles import made
from tangentkit.compute.kernel import Kernel
from tangentkit.compute.sources import SampleSource, check_range
from tangentkit.compute.store.layout import GRAM, Tiling
from tangentkit.compute.store.tiles import Index, TileArray
from tangentkit.compute.terms import HasRows, Range, Row, Term
from tangentkit.core.batches import Batch, copied, take
from tangentkit.core.memory import memory_budget
from tangentkit.linalg.operators.spans import spans

Item = tuple[str, Index]
"""The name of an array and the index of a tile in it."""


class TileTarget(Protocol):
    """Where tiles go: a store on disk, or memory."""

    @property
    def arrays(self) -> dict[str, TileArray]:
        """Name -> shape and tiles of each array."""
        ...

    def has(self, name: str, index: Index) -> bool:
        """Whether a tile is there."""
        ...

    def rows(self, name: str, span: slice) -> Tensor:
        """Some rows of a part, whole tiles of them."""
        ...

    def put(self, name: str, index: Index, tile: Tensor) -> Any:
        """Keeps a tile, or gives what `accept` will keep."""
        ...

    def accept(self, receipt: Any) -> None:
        """Takes what `put` gave, where the matrix was asked for."""
        ...

    def missing(self, name: str, wanted: list[Index]) -> list[Index]:
        """Which tiles are not there."""
        ...


@dataclass(frozen=True, eq=False)
class SampleSide:
    """The samples of the rows ("x") or of the columns ("y")."""

    source: SampleSource
    digests: list[str] | None
    """Of every piece, where samples might change: what is stored must be of those that the store says."""


@dataclass(frozen=True, eq=False)
class TileWork:
    """Computes tiles. One that is done twice does no harm: it is found done, or comes out the same.

    Workers get it once; then an item, the name of an array and the index of a tile, is all they are sent.
    """

    kernel: Kernel
    sides: dict[str, SampleSide]
    tiling: Tiling
    target: TileTarget
    device: torch.device
    """Of the kernel."""
    memory: int | None = None
    """Bytes that the worker may use; None for a share of what is free."""

    def __call__(self, item: Item) -> Any:
        """Computes one tile and puts it where it belongs.

        Raises:
            NumericalError: the tile is not finite; with the samples.
            InputError: samples that the kernel refuses; with their range.
        """
        name, (i, j) = item
        if self.target.has(name, (i, j)):
            return item
        if name == GRAM:
            side = self.tiling.side
            where = self._range("x", i, side), self._range("y" if "y" in self.sides else "x", j, side)
            tile = made(lambda: self._term.tile(self, *where), self.kernel, self, *where)
        else:
            part, _, side = name.rpartition("-")
            tile = self._part(part, self._range(side, i, self.tiling.piece))
        return self.target.put(name, (i, j), tile)

    def group(self, item: Item) -> int:
        """The row of a tile: tiles of one row are best done by one worker, see `row`."""
        return item[1][0]

    def within(self, memory: int) -> "TileWork":
        """The work of a worker that may use this memory."""
        own = memory if self.memory is None else min(memory, self.memory)
        return replace(self, kernel=self.kernel.within(memory), memory=own)

    def samples(self, where: Range) -> Batch:
        """The samples of a range; where they might change, a copy that is checked to be what they were."""
        side = self.sides[where.side]
        if side.digests is None:
            return side.source.read(where.span)

        def read() -> Batch:
            batch = copied(side.source.read(where.span))
            start, piece = where.span.start, self.tiling.piece
            assert side.digests is not None
            for span in spans(where.span.stop - start, piece):
                here = slice(start + span.start, start + span.stop)
                check_range(take(batch, span), side.digests[here.start // piece], here)
            return batch

        return self._cache.get(("samples", where.side, where.span.start, where.span.stop), read)

    def part(self, name: str, where: Range) -> Tensor:
        """A part for a range of samples: from memory or the store, or computed where it is in neither."""
        array = f"{name}-{where.side}"

        def found() -> Tensor:
            if array in self.target.arrays:
                return self.target.rows(array, where.span).to(self.device)
            return self._part(name, where)

        return self._cache.get((array, where.span.start, where.span.stop), found)

    def row(self, kernel: HasRows, where: Range) -> Row:
        """The tiles of a kernel in one row, which it may prepare; of each kernel one row stays in memory."""
        place, row = self._rows.get(id(kernel), (None, None))
        if row is None or place != where:
            self._rows.pop(id(kernel), None)  # its memory is freed first
            row = kernel.row(self.samples(where))
            self._rows[id(kernel)] = where, row
        return row

    def __getstate__(self) -> dict:
        # What was cached stays here.
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def _term(self) -> Term:
        return self.kernel.term()

    @cached_property
    def _parts(self) -> dict:
        return dict(self._term.parts())

    @cached_property
    def _rows(self) -> dict[int, tuple[Range, Row]]:
        return {}

    @cached_property
    def _cache(self) -> BoundedCache:
        return BoundedCache(int(CACHE_SHARE * memory_budget(self.memory)))

    def _range(self, side: str, i: int, step: int) -> Range:
        n = len(self.sides[side].source)
        return Range(side, i, slice(i * step, min((i + 1) * step, n)))

    def _part(self, name: str, where: Range) -> Tensor:
        return made(lambda: self._parts[name](self, where), self.kernel, self, where)
