"""Arrays in memory, with the manners of a store."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from tangentkit.compute.store.tiles import Index, TileArray


@dataclass(frozen=True, eq=False)
class InMemory:
    """Matrices in memory: workers return their tiles, and the one who asked puts them in place."""

    arrays: dict[str, TileArray]
    """Name -> shape and tiles; of the folders nothing is used."""
    device: torch.device
    matrices: dict[str, Tensor] = field(default_factory=dict)

    def has(self, name: str, index: Index) -> bool:  # noqa: ARG002 - as a store's
        """No tile is here before it is asked for."""
        return False

    def rows(self, name: str, span: slice) -> Tensor:
        """A view of some rows."""
        return self.matrices[name][span]

    def put(self, name: str, index: Index, tile: Tensor) -> tuple[str, Index, Tensor]:
        """The tile, on its way to `accept`."""
        return name, index, tile

    def accept(self, receipt: tuple[str, Index, Tensor]) -> None:
        """Puts a tile in place."""
        name, index, tile = receipt
        array = self.arrays[name]
        if tile.shape == array.shape:
            self.matrices[name] = tile  # the only one: no copy is needed
            return
        if name not in self.matrices:
            self.matrices[name] = torch.empty(array.shape, dtype=array.dtype, device=self.device)
        self.matrices[name][array.span(index)] = tile

    def missing(self, name: str, wanted: list[Index]) -> list[Index]:  # noqa: ARG002 - as a store's
        """All tiles that are wanted, since none is here yet."""
        return wanted

    def mirror(self, name: str) -> None:
        """Fills the lower triangle of tiles from the upper one."""
        matrix, array = self.matrices[name], self.arrays[name]
        for i in range(array.grid[0]):
            for j in range(i):
                rows, cols = array.span((i, j))
                matrix[rows, cols] = matrix[cols, rows].T
