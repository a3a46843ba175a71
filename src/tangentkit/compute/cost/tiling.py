"""How large tiles are: as memory allows, and so that each takes seconds."""

import math
from collections.abc import Mapping

from tangentkit.compute.cache import CACHE_SHARE
from tangentkit.compute.cost.trials import Tried, tried
from tangentkit.compute.kernel import Kernel
from tangentkit.compute.sources import SampleSource
from tangentkit.compute.store.layout import COLUMNS, GRAM, Form, Tiling
from tangentkit.compute.store.store import Store
from tangentkit.core.errors import InputError
from tangentkit.core.memory import Budget, memory_budget
from tangentkit.linalg.operators.operator import MAX_SIDE

SECONDS = 5.0
"""Of a tile, or of the parts of a piece, about: what an interrupt may lose."""
OVERHEAD = 1.5
"""How many times as long as with the largest tiles the whole matrix may take. With smaller ones a sample stands on
the right of more of them, and goes through the model each time."""
LONG, MORE_OVERHEAD = 60.0, 3.0
"""Seconds of a tile that are too many to lose, and how many times as long the whole may take to avoid such tiles."""

RANGES = 1024
"""Rows and columns of tiles, at most: half a million files of a symmetric matrix are enough for any file system."""


def known_tiling(tile: object, begun: Store | None, sizes: Mapping[str, int]) -> Tiling | None:
    """The tiling that was asked for, or that a store has; None where it is still to be chosen.

    Raises:
        InputError: what was asked for is no number of samples.
    """
    if tile is None or isinstance(tile, Tiling):
        return tile or (None if begun is None else _of_store(begun))
    if isinstance(tile, bool) or not isinstance(tile, int) or tile < 1:
        raise InputError("bad tile size", expected="a number of samples, at least 1", got=repr(tile))
    side = min(tile, max(sizes.values()))
    known = _of_store(begun) if begun else None
    return known if known and known.side == side else Tiling(side, side)


def _of_store(store: Store) -> Tiling:
    side = store.identity["tile"]
    return Tiling(side, next((a.tile[0] for name, a in store.arrays.items() if name != GRAM), side))


def measured_tiling(kernel: Kernel, source: SampleSource, form: Form, sizes: Mapping[str, int]) -> Tiling:
    """Tiles that take seconds: a few small ones are timed first."""
    most = largest_tiling(memory_budget(kernel.working_memory(), device=form.device), form, sizes).side
    return fitting(kernel, tried(kernel, source, most, quick=SECONDS), most, sizes)


def largest_tiling(budget: Budget, form: Form, sizes: Mapping[str, int], *, kept: bool = True) -> Tiling:
    """The largest tiles: of about `MAX_SIDE` rows, less where memory is short, and all alike.

    Args:
        budget: bytes.
        form: of the matrix.
        sizes: the samples of "x" and "y".
        kept: whether parts are; otherwise those of a few ranges are to fit the cache.
    """
    # Producing, checking and writing a tile take a few times its bytes; so do the parts of its two sides.
    rows = budget.side(form.dtype.itemsize, copies=16, most=MAX_SIDE)
    piece = _piece_within(budget, form) // (1 if kept else COLUMNS + 1)
    n, most = max(sizes.values()), max(1, min(rows // form.outputs, piece))
    side = math.ceil(n / math.ceil(n / most))
    return Tiling(side, side)


def one_tile(budget: int, form: Form, sizes: Mapping[str, int]) -> Tiling:
    """One tile for all: a single call of the kernel, which has tiles of its own, or product of its parts."""
    n = max(sizes.values())
    piece = min(n, _piece_within(budget, form))
    return Tiling(math.ceil(n / piece) * piece, piece)


def _piece_within(budget: int, form: Form) -> int:
    """Samples whose parts take as much of a memory budget as may be cached."""
    return max(1, int(CACHE_SHARE * budget) // max(1, form.part_bytes))


def fitting(kernel: Kernel, found: Tried, most: int, sizes: Mapping[str, int]) -> Tiling:
    """The tiling of about `SECONDS`, by trials.

    The time of the last trial grows as the kernel says that its work does. The largest tiles are halved as long as
    they take longer, and the whole matrix, whose time goes as t(s) / s², no more than `OVERHEAD` times what it takes
    with the largest (`MORE_OVERHEAD` where tiles are `LONG`); and no further than to `RANGES` rows or columns.
    """
    last, batch = found.tiles[found.side], found.trial.batches[0]

    def seconds(side: int) -> float:
        if side < found.side:
            return last / kernel.growth(batch, side, found.side)
        return last * kernel.growth(batch, found.side, side)

    side, least = most, seconds(most) / most**2
    while side > 1 and seconds(side) > SECONDS:
        half, bound = math.ceil(side / 2), MORE_OVERHEAD if seconds(side) > LONG else OVERHEAD
        if seconds(half) / half**2 > bound * least or half * RANGES < max(sizes.values()):
            break
        side = half
    pieces = min(side, math.ceil(found.part * side / SECONDS) or 1)
    piece = math.ceil(side / pieces)
    return Tiling(math.ceil(side / piece) * piece, piece)
