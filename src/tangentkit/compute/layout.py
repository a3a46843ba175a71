"""The form of a Gram matrix before it is computed: shapes, tiles, bytes."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from tangentkit.compute.kernel import Kernel
from tangentkit.compute.sources import Source
from tangentkit.compute.terms import Fresh, Range, Term, as_term
from tangentkit.compute.tiles import Index, TileArray
from tangentkit.core.errors import InputError
from tangentkit.core.memory import memory_budget
from tangentkit.linalg.operator import MAX_SIDE

GRAM = "gram"
"""The array of the matrix itself."""


FIRST = Range("x", 0, slice(0, 1))
"""The first sample."""


@dataclass(frozen=True, eq=False)
class Layout:
    """The arrays of a Gram matrix, parts before the tiles that need them."""

    symmetric: bool
    outputs: int
    """Rows of the matrix for each sample."""
    tile: int
    """Samples along the side of a tile."""
    dtype: torch.dtype
    device: torch.device
    arrays: dict[str, TileArray]
    """Name -> form; folders are relative to where they will be."""

    def indices(self, name: str) -> list[Index]:
        """The tiles of an array that are to be computed."""
        return tile_indices(*self.arrays[name].grid, symmetric=self.symmetric and name == GRAM)

    @property
    def nbytes(self) -> int:
        """The bytes of all files."""
        return sum(len(self.indices(name)) * array.file_bytes for name, array in self.arrays.items())


def make_layout(kernel: Kernel, sources: Mapping[str, Source], tile: int | None) -> Layout:
    """The layout for a kernel and samples, from a look at the first sample.

    Args:
        kernel: any.
        sources: "x", and "y" unless the matrix is symmetric.
        tile: samples along the side of a tile; None for about `MAX_SIDE` rows, less where memory is short.

    Raises:
        InputError: a tile of no samples, or numbers of a type that a store cannot hold.
    """
    if tile is not None and (isinstance(tile, bool) or not isinstance(tile, int) or tile < 1):
        raise InputError("bad tile size", expected="a number of samples, at least 1", got=repr(tile))
    term = as_term(kernel)
    given = Fresh(term, sources["x"].read(FIRST.span))
    diagonal = _first_look(kernel, term, given, sources["x"])
    outputs, dtype = len(diagonal), diagonal.dtype
    parts = {name: given.part(name, FIRST) for name, _ in term.parts()}
    for kept in (diagonal, *parts.values()):
        if kept.dtype not in (torch.float32, torch.float64):
            raise InputError(
                "bad dtype of a kernel",
                expected="float32 or float64",
                got=str(kept.dtype).removeprefix("torch."),
                hint="kernel.to(torch.float32); one that is normalized or summed: of each kernel in it",
            )
    sizes = {side: len(source) for side, source in sources.items()}
    if tile is None:
        # Producing, checking and writing a tile take a few times its bytes.
        most = math.isqrt(memory_budget(device=diagonal.device) // (16 * dtype.itemsize))
        tile = max(1, min(MAX_SIDE, most) // outputs)
    tile = min(tile, max(sizes.values()))
    arrays = {}
    for name, part in parts.items():
        for side, n in sizes.items():
            key, form = f"{name}-{side}", (part.shape[1], part.dtype)
            arrays[key] = TileArray(Path(key), (n, form[0]), (tile, form[0]), form[1])
    shape = sizes["x"] * outputs, sizes.get("y", sizes["x"]) * outputs
    arrays[GRAM] = TileArray(Path(GRAM), shape, (tile * outputs, tile * outputs), dtype)
    return Layout("y" not in sources, outputs, tile, dtype, diagonal.device, arrays)


def _first_look(kernel: Kernel, term: Term, given: Fresh, source: Source) -> Tensor:
    """The kernel of the first sample with itself."""
    try:
        return term.diagonal(given, FIRST)
    except Exception:
        # One sample hides a missing axis, and its shape is not the user's: more are refused with better words.
        kernel.diag(source.read(slice(0, min(len(source), 2) if source.lazy else len(source))))
        raise


def tile_indices(rows: int, cols: int, *, symmetric: bool) -> list[Index]:
    """The tiles of a grid, or of its upper triangle.

    Example:
        >>> tile_indices(2, 2, symmetric=True)
        [(0, 0), (0, 1), (1, 1)]
    """
    return [(i, j) for i in range(rows) for j in range(i if symmetric else 0, cols)]
