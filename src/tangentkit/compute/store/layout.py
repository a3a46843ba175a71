"""The form of a Gram matrix before it is computed: shapes, tiles, bytes."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from tangentkit.compute.kernel import Kernel
from tangentkit.compute.sources import SampleSource
from tangentkit.compute.store.tiles import Index, TileArray
from tangentkit.compute.terms import Fresh, Range, Term
from tangentkit.core.errors import InputError

GRAM = "gram"
"""The array of the matrix itself."""
COLUMNS = 3
"""Columns of tiles that are done together where the parts of their samples are not kept: what is cached are the parts
of these and of one row."""


class Tiling(NamedTuple):
    """How a Gram matrix is cut."""

    side: int
    """Samples along the side of a tile: a multiple of the piece."""
    piece: int
    """Samples whose parts are computed at a time."""


FIRST = Range("x", 0, slice(0, 1))
"""The first sample."""


@dataclass(frozen=True, eq=False)
class Layout:
    """The arrays of a Gram matrix, parts before the tiles that need them."""

    symmetric: bool
    outputs: int
    """Rows of the matrix for each sample."""
    tiling: Tiling
    dtype: torch.dtype
    device: torch.device
    arrays: dict[str, TileArray]
    """Name -> form; folders are relative to where they will be."""
    kept: bool = True
    """Whether parts are kept."""

    def indices(self, name: str) -> list[Index]:
        """The tiles of an array that are to be computed, in order: by rows, or a few columns at a time."""
        found = tile_indices(*self.arrays[name].grid, symmetric=self.symmetric and name == GRAM)
        return found if self.kept else sorted(found, key=lambda index: (index[1] // COLUMNS, index))

    @property
    def nbytes(self) -> int:
        """The bytes of all files."""
        return sum(len(self.indices(name)) * array.file_bytes for name, array in self.arrays.items())


@dataclass(frozen=True)
class Form:
    """What a look at the first sample says of a Gram matrix."""

    outputs: int
    """Rows of the matrix for each sample."""
    dtype: torch.dtype
    device: torch.device
    parts: dict[str, tuple[int, torch.dtype]]
    """Name -> numbers of a sample, and their type."""

    @property
    def part_bytes(self) -> int:
        """Bytes of all parts of a sample."""
        return sum(width * dtype.itemsize for width, dtype in self.parts.values())


def look(kernel: Kernel, sources: Mapping[str, SampleSource]) -> Form:
    """The form of the matrix of a kernel and samples, "x" and perhaps "y".

    Raises:
        InputError: the model does not take such samples, or gives numbers of a type that a store cannot hold.
    """
    term = kernel.term()
    given = Fresh(term, sources["x"].read(FIRST.span))
    diagonal = _first_look(kernel, term, given, sources["x"])
    parts = {name: given.part(name, FIRST) for name, _ in term.parts()}
    for stored in (diagonal, *parts.values()):
        if stored.dtype not in (torch.float32, torch.float64):
            raise InputError(
                "bad dtype of a kernel",
                expected="float32 or float64",
                got=str(stored.dtype).removeprefix("torch."),
                hint="kernel.to(torch.float32); one that is normalized or summed: of each kernel in it",
            )
    forms = {name: (part.shape[1], part.dtype) for name, part in parts.items()}
    return Form(len(diagonal), diagonal.dtype, diagonal.device, forms)


def make_layout(form: Form, sizes: Mapping[str, int], tiling: Tiling, *, kept: bool = True) -> Layout:
    """The arrays of a matrix.

    Args:
        form: of the matrix.
        sizes: the samples of "x", and of "y" unless it is symmetric.
        tiling: how it is cut.
        kept: whether parts are; otherwise they are computed when tiles need them, which come in an order that asks
            for few of them again.
    """
    arrays = {}
    for name, (width, dtype) in form.parts.items() if kept else ():
        for side, n in sizes.items():
            key = f"{name}-{side}"
            arrays[key] = TileArray(Path(key), (n, width), (tiling.piece, width), dtype)
    shape = sizes["x"] * form.outputs, sizes.get("y", sizes["x"]) * form.outputs
    rows = tiling.side * form.outputs
    arrays[GRAM] = TileArray(Path(GRAM), shape, (rows, rows), form.dtype)
    return Layout("y" not in sizes, form.outputs, tiling, form.dtype, form.device, arrays, kept=kept)


def _first_look(kernel: Kernel, term: Term, given: Fresh, source: SampleSource) -> Tensor:
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
