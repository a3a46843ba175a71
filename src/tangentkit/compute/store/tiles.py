"""Tiles on disk: an array in the format of zarr v3, written and read a whole tile at a time.

A tile is one file:

    seal      32 bytes, which say of what matrix and where in it
    numbers   little-endian, row by row
    checksum  Crc32c of the numbers
    index     where the numbers are, as two integers, and the Crc32c of these

To zarr that is a shard of one chunk (codecs `sharding_indexed`, `bytes`, `crc32c`), which it reads by the index,
passing over the seal. A checksum alone would not tell a tile that was copied to another's place.

The files are written here, since zarr's own way costs several times the writing itself, in copies, and its readers
take a missing tile for one of fill values.
"""

import hashlib
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

import google_crc32c
import numpy as np
import torch
from torch import Tensor

from tangentkit.core.errors import DataError
from tangentkit.core.files.safe import open_file, remove_file, write_whole

SEAL, CHECKSUM, INDEX = 32, 4, 20
"""Bytes of the parts of a file that are no numbers."""
REPAIR = "gram(..., repair=True), or tangentkit gram --repair, computes what is damaged again"

Index = tuple[int, int]
"""Row and column of a tile."""


class DamagedError(DataError):
    """A tile that is missing, or was read and is not what was written; one that cannot be read is neither."""


@dataclass(frozen=True)
class TileArray:
    """A matrix on disk.

    Example:
        >>> import tempfile
        >>> array = TileArray(Path(tempfile.mkdtemp()) / "a", (3, 2), (2, 2), torch.float64)
        >>> array.write((1, 0), torch.ones(1, 2, dtype=torch.float64))
        >>> array.read((1, 0)), array.missing([(0, 0), (1, 0)])
        (tensor([[1., 1.]], dtype=torch.float64), [(0, 0)])
    """

    folder: Path
    shape: tuple[int, int]
    tile: tuple[int, int]
    dtype: torch.dtype
    seal: str = ""
    """Of the matrix: its tiles, and no others, bear it."""

    @property
    def grid(self) -> tuple[int, int]:
        """The number of rows and columns of tiles."""
        return -(-self.shape[0] // self.tile[0]), -(-self.shape[1] // self.tile[1])

    @property
    def file_bytes(self) -> int:
        """The bytes of each file; tiles at the edges are filled up."""
        return SEAL + self._tile_bytes + CHECKSUM + INDEX

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
        return self._size(index) == self.file_bytes

    def missing(self, wanted: Sequence[Index]) -> list[Index]:
        """Which of some tiles are not there.

        Raises:
            DamagedError: one is there with the wrong size.
        """
        sizes = {index: self._size(index) for index in wanted}
        for index, size in sizes.items():
            if size not in (None, self.file_bytes):
                raise self._truncated(self.path(index), size)
        return [index for index, size in sizes.items() if size is None]

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
        write_whole(
            self.path(index),
            [self._seal(index), _bytes(numbers), _checksum(numbers), self._zarr_index],
            durable=False,
            within=self.folder.parent,
        )

    def read(self, index: Index) -> Tensor:
        """Reads a tile and checks it against its seal.

        Raises:
            DamagedError: it is missing, truncated, changed, or another's; with its file.
            DataError: it cannot be read.
        """
        path = self.path(index)
        seal, checksum, zarr_index = (bytearray(size) for size in (SEAL, CHECKSUM, INDEX))
        try:
            with open_file(path) as file:
                # Before there is room for the numbers: a manifest may say anything.
                if (size := os.fstat(file.fileno()).st_size) != self.file_bytes:
                    raise self._truncated(path, size)
                numbers = np.empty(self.tile, self._numpy)
                parts = [memoryview(seal), _bytes(numbers), memoryview(checksum), memoryview(zarr_index)]
                size = sum(_read_into(file, part) for part in parts)
        except DataError:
            raise
        except (FileNotFoundError, NotADirectoryError):
            raise DamagedError(f"{path} is missing", expected="a tile", got="no file", hint=REPAIR) from None
        except OSError as error:
            raise DataError(f"cannot read {path}", got=error.strerror) from error
        if size != self.file_bytes:
            raise self._truncated(path, size)
        if _checksum(numbers) != checksum or zarr_index != self._zarr_index:
            raise DamagedError(
                f"{path} is damaged",
                expected="bytes as they were written",
                got="another checksum",
                hint=REPAIR,
            )
        if seal != self._seal(index):
            raise DamagedError(
                f"{path} is not the tile of this place",
                expected=f"tile {index} of the matrix that the manifest describes",
                got="the seal of another",
                hint=REPAIR,
            )
        rows, cols = self.span(index)
        return torch.from_numpy(numbers)[: rows.stop - rows.start, : cols.stop - cols.start]

    def remove(self, index: Index) -> None:
        """Removes a tile, if it is there."""
        remove_file(self.path(index), within=self.folder.parent)

    def _size(self, index: Index) -> int | None:
        """The bytes of the file of a tile, None where there is no file."""
        path = self.path(index)
        try:
            return path.stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise DataError(f"cannot look at {path}", got=error.strerror) from error

    def _seal(self, index: Index) -> bytes:
        return hashlib.sha256(f"{self.seal} {index[0]} {index[1]}".encode()).digest()

    @property
    def _tile_bytes(self) -> int:
        return self.tile[0] * self.tile[1] * self.dtype.itemsize

    @property
    def _zarr_index(self) -> bytes:
        place = struct.pack("<QQ", SEAL, self._tile_bytes + CHECKSUM)
        return place + _checksum(np.frombuffer(place, np.uint8))

    @property
    def _numpy(self) -> np.dtype:
        return np.dtype({torch.float32: "<f4", torch.float64: "<f8"}[self.dtype])

    def _truncated(self, path: Path, size: int | None) -> DamagedError:
        return DamagedError(
            f"{path} has the wrong size", expected=f"{self.file_bytes} bytes", got=size, hint=REPAIR
        )


def _bytes(numbers: np.ndarray) -> memoryview:
    return numbers.data.cast("B")


def _checksum(numbers: np.ndarray) -> bytes:
    return google_crc32c.value(numbers).to_bytes(CHECKSUM, "little")


def _read_into(file: FileIO, buffer: memoryview) -> int:
    done = 0
    while done < len(buffer) and (count := file.readinto(buffer[done:])):
        done += count
    return done
