"""The operator of a Gram matrix on disk."""

from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from tangentkit.compute.store.layout import GRAM
from tangentkit.compute.store.store import Store, open_store
from tangentkit.compute.store.tiles import Index
from tangentkit.core.errors import DataError
from tangentkit.core.files.safe import as_path
from tangentkit.core.progress import Progress, counted_off
from tangentkit.linalg.operators.operator import Memory, Operator
from tangentkit.linalg.operators.spans import spans


class StoredOperator(Operator):
    """A matrix in a store, read tile by tile; each tile is checked whenever it is read.

    Args:
        store: complete.
        device: where the blocks come to be.
    """

    def __init__(self, store: Store, *, device: torch.device | str = "cpu") -> None:
        self.store = store
        self._array = store.arrays[GRAM]
        symmetric = store.identity["symmetric"]
        super().__init__(self._array.shape, dtype=self._array.dtype, device=device, symmetric=symmetric)

    @property
    def path(self) -> Path:
        """The folder of the store."""
        return self.store.folder

    def block(self, rows: slice, cols: slice) -> Float[Tensor, "n m"]:
        """The entries of some rows and columns.

        Raises:
            DataError: a tile is missing or damaged; with its file.
        """
        down, across = (
            _tiles_of(span, side) for span, side in zip((rows, cols), self._array.tile, strict=True)
        )
        if self._array.span((down[0], across[0])) == (rows, cols):
            return self._tile((down[0], across[0])).to(self.device)  # products ask for whole tiles: no copy
        out = torch.empty(
            rows.stop - rows.start, cols.stop - cols.start, dtype=self.dtype, device=self.device
        )
        for i in down:
            for j in across:
                tile_rows, tile_cols = self._array.span((i, j))
                r, c = _common(rows, tile_rows), _common(cols, tile_cols)
                out[_from(r, rows.start), _from(c, cols.start)] = self._tile((i, j))[
                    _from(r, tile_rows.start), _from(c, tile_cols.start)
                ].to(self.device)
        return out

    def verify(self, *, progress: bool | Progress = True) -> None:
        """Reads all that is in the store: where a Gram matrix is to last, or came from elsewhere.

        Args:
            progress: whether to show a bar on a terminal; or a function (stage, done, total).

        Raises:
            DataError: a file is missing or damaged; with its name.
        """
        self.store.check_descriptions()
        places = [(name, index) for name in self.store.arrays for index in self.store.indices(name)]
        with counted_off(progress, "verify", len(places)) as advance:
            for name, index in places:
                self.store.get(name, index)
                advance()

    def tile_side(self, memory: Memory = None) -> int:  # noqa: ARG002 - a checksum needs the whole tile
        """The side of the tiles on disk."""
        return self._array.tile[0]

    def _diagonal(self, memory: Memory) -> Float[Tensor, " r"]:
        # Each tile once, where the base class would read small blocks of it; and copies: views would hold the tiles.
        along = spans(min(self.shape), self.tile_side(memory))
        return torch.cat([self.block(span, span).diagonal().clone() for span in along])

    def _tile(self, index: Index) -> Tensor:
        i, j = index
        return self.store.get(GRAM, (j, i)).T if self.symmetric and i > j else self.store.get(GRAM, index)


def open_gram(folder: str | Path, *, device: torch.device | str = "cpu") -> StoredOperator:
    """The Gram matrix in a store, whoever made it: neither kernel nor samples are needed to read it.

    Args:
        folder: of the store.
        device: where the blocks come to be.

    Raises:
        DataError: there is no store, it is not complete, or a file of it is damaged.
    """
    store = open_store(as_path(folder).absolute())
    missing = store.missing(GRAM, store.indices(GRAM))
    if missing:
        raise DataError(
            f"{folder} is not complete",
            expected="every tile",
            got=f"{len(missing)} missing",
            hint="run gram(...) with this store again: it goes on where it stopped",
        )
    return StoredOperator(store, device=device)


def _tiles_of(span: slice, side: int) -> range:
    return range(span.start // side, (span.stop - 1) // side + 1)


def _common(a: slice, b: slice) -> slice:
    return slice(max(a.start, b.start), min(a.stop, b.stop))


def _from(span: slice, origin: int) -> slice:
    return slice(span.start - origin, span.stop - origin)
