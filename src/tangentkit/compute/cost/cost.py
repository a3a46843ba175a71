"""What a Gram matrix will cost, from a look at a few samples."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tangentkit.compute.cost.tiling import fitting, known_tiling, largest_tiling
from tangentkit.compute.cost.trials import Tried, timed, tried
from tangentkit.compute.kernel import Kernel
from tangentkit.compute.sources import sources_of
from tangentkit.compute.store.layout import GRAM, Layout, Tiling, look, make_layout
from tangentkit.compute.store.store import is_store, read_manifest
from tangentkit.compute.store.tiles import Index
from tangentkit.core.files.safe import as_path
from tangentkit.core.memory import format_bytes, memory_budget
from tangentkit.core.text import counted

WRITING = 1e9
"""Bytes a second for a tile to be checked and written, assumed."""


@dataclass(frozen=True)
class Cost:
    """Tiles, bytes and seconds of a Gram matrix."""

    shape: tuple[int, int]
    tiling: Tiling
    """The sizes of tiles and of pieces of parts, which `gram(..., tile=)` takes."""
    tiles: int
    """In all."""
    done: int
    """Tiles that the store has already."""
    nbytes: int
    """On disk, parts included, when all is there."""
    seconds: float
    """For what is missing, by one worker."""

    @property
    def tile(self) -> int:
        """Samples along the side of a tile."""
        return self.tiling.side

    def __str__(self) -> str:
        done = f", {self.done} of them there," if self.done else ""
        return (
            f"{self.shape[0]} x {self.shape[1]}: {counted(self.tiles, 'tile')} of "
            f"{counted(self.tile, 'sample')} a side{done or ','} "
            f"{format_bytes(self.nbytes)}, about {duration(self.seconds)} of one worker"
        )


def gram_cost(
    kernel: Kernel,
    x: Any,
    y: Any = None,
    *,
    store: str | Path | None = None,
    tile: int | Tiling | None = None,
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
    sizes = {side: len(source) for side, source in sources.items()}
    form = look(kernel, sources)
    folder = None if store is None else as_path(store)
    begun = read_manifest(folder) if folder is not None and is_store(folder) else None
    tiling = known_tiling(tile, begun, sizes)
    budget = memory_budget(kernel.working_memory(), device=form.device)
    most = (tiling or largest_tiling(budget, form, sizes)).side
    found = tried(kernel, sources["x"], most)
    tiling = tiling or fitting(kernel, found, most, sizes)
    layout = make_layout(form, sizes, tiling)
    there = {} if begun is None else begun.arrays
    missing = {
        name: [index for index in layout.indices(name) if name not in there or not there[name].has(index)]
        for name in layout.arrays
    }
    seconds = _seconds(_rates(found), layout, missing)
    shape, tiles = layout.arrays[GRAM].shape, len(layout.indices(GRAM))
    return Cost(shape, tiling, tiles, tiles - len(missing[GRAM]), layout.nbytes, seconds)


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


def _rates(found: Tried) -> Rates:
    """The rates by the last two trials: t(s) = right s + pair s²."""
    each = {side: seconds / side for side, seconds in found.tiles.items()}
    side, half = found.side, list(each)[-2] if len(each) > 1 else 0
    pair = max(0.0, (each[side] - each[half]) / (side - half)) if half else 0.0
    left = max(0.0, timed(found.trial.anew) - found.tiles[side]) / side
    return Rates(found.part, left, right=max(0.0, each[side] - pair * side), pair=pair)
