"""Tiles on disk: an array in the format of zarr v3, written and read a whole tile at a time.

A tile is one file: its numbers, little-endian, row by row, then the Crc32c of these bytes. That is what zarr's codecs
`bytes` and `crc32c` make; zarr reads and writes such arrays as well. The files are written here, since zarr's own
way costs several times the writing itself, in copies, and its readers take a missing tile for one of fill values.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import google_crc32c
import numpy as np
import torch
from torch import Tensor

from tangentkit.compute.files import write_whole
from tangentkit.core.errors import DataError

CHECKSUM = 4
"""Bytes of a Crc32c."""
METADATA = "zarr.json"
REPAIR = "gram(..., repair=True) computes damaged tiles again"

Index = tuple[int, int]
"""Row and column of a tile."""


@dataclass(frozen=True)
class TileArray:
    """A matrix on disk.

    Example:
        >>> import tempfile
        >>> array = TileArray(Path(tempfile.mkdtemp()) / "a", (3, 2), (2, 2), torch.float64)
        >>> array.write((1, 0), torch.ones(1, 2, dtype=torch.float64))
        >>> array.read((1, 0)), list(array.written())
        (tensor([[1., 1.]], dtype=torch.float64), [(1, 0)])
    """

    folder: Path
    shape: tuple[int, int]
    tile: tuple[int, int]
    dtype: torch.dtype

    @property
    def grid(self) -> tuple[int, int]:
        """The number of rows and columns of tiles."""
        return -(-self.shape[0] // self.tile[0]), -(-self.shape[1] // self.tile[1])

    @property
    def file_bytes(self) -> int:
        """The bytes of each file; tiles at the edges are filled up."""
        return self.tile[0] * self.tile[1] * self.dtype.itemsize + CHECKSUM

    def span(self, index: Index) -> tuple[slice, slice]:
        """Rows and columns of a tile."""
        rows, cols = (
            slice(i * side, min((i + 1) * side, size))
            for i, side, size in zip(index, self.tile, self.shape, strict=True)
        )
        return rows, cols

    def path(self, index: Index) -> Path:
        """The file of a tile."""
        return self.folder / "c" / str(index[0]) / str(index[1])

    def has(self, index: Index) -> bool:
        """Whether the tile is written; of the wrong size it is not."""
        try:
            return self.path(index).stat().st_size == self.file_bytes
        except FileNotFoundError:
            return False

    def written(self) -> Iterator[Index]:
        """The tiles that are there.

        Raises:
            DataError: one has the wrong size.
        """
        for i in range(self.grid[0]):
            row = self.folder / "c" / str(i)
            if not row.is_dir():
                continue
            for path in row.iterdir():
                if path.name.isdecimal():
                    if path.stat().st_size != self.file_bytes:
                        raise self._truncated(path, path.stat().st_size)
                    yield i, int(path.name)

    def write(self, index: Index, tile: Tensor) -> None:
        """Writes a tile: whole, or not at all."""
        rows, cols = self.span(index)
        assert tile.shape == (rows.stop - rows.start, cols.stop - cols.start), (tile.shape, rows, cols)
        numbers = tile.detach().cpu().numpy()
        if tile.shape != self.tile:
            full = np.full(self.tile, np.nan, self._numpy)
            full[: tile.shape[0], : tile.shape[1]] = numbers
            numbers = full
        numbers = np.ascontiguousarray(numbers, self._numpy)
        # Not durable: to wait for the disk would cost as much as to write. What a loss of power takes away fails
        # its checksum.
        write_whole(self.path(index), [_bytes(numbers), _checksum(numbers)], durable=False)

    def read(self, index: Index) -> Tensor:
        """A tile, checked.

        Raises:
            DataError: it is missing, truncated or changed; with its file.
        """
        path = self.path(index)
        numbers, checksum = np.empty(self.tile, self._numpy), bytearray(CHECKSUM)
        try:
            with path.open("rb", buffering=0) as file:
                size = _read_into(file, _bytes(numbers)) + _read_into(file, memoryview(checksum))
                more = file.read(1)
        except FileNotFoundError:
            raise DataError(f"{path} is missing", expected="a tile", got="no file", hint=REPAIR) from None
        except OSError as error:
            raise DataError(f"cannot read {path}", got=error.strerror, hint=REPAIR) from error
        if size != self.file_bytes or more:
            raise self._truncated(path, path.stat().st_size)
        if _checksum(numbers) != checksum:
            raise DataError(
                f"{path} is damaged",
                expected="bytes as they were written",
                got="another checksum",
                hint=REPAIR,
            )
        rows, cols = self.span(index)
        return torch.from_numpy(numbers)[: rows.stop - rows.start, : cols.stop - cols.start]

    def remove(self, index: Index) -> None:
        """Removes a tile."""
        self.path(index).unlink(missing_ok=True)

    @property
    def _numpy(self) -> np.dtype:
        return np.dtype({torch.float32: "<f4", torch.float64: "<f8"}[self.dtype])

    def _truncated(self, path: Path, size: int) -> DataError:
        return DataError(
            f"{path} has the wrong size", expected=f"{self.file_bytes} bytes", got=size, hint=REPAIR
        )


def file_digest(path: Path) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _bytes(numbers: np.ndarray) -> memoryview:
    return numbers.data.cast("B")


def _checksum(numbers: np.ndarray) -> bytes:
    return google_crc32c.value(numbers).to_bytes(CHECKSUM, "little")


def _read_into(file, buffer: memoryview) -> int:
    done = 0
    while done < len(buffer) and (count := file.readinto(buffer[done:])):
        done += count
    return done
