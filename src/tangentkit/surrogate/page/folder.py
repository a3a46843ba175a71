"""The page as a folder: pieces as files and kernels by rows, for explanations too large for one file.

page.json      what is in the folder, sealed; it is written last
pieces/NAME    what the page reads at its start
rows/K         kernel number K in single precision, each row with its CRC-32; not there for a kernel in a store
"""

import hashlib
import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from tangentkit.compute.cache import BoundedCache
from tangentkit.compute.store.operator import StoredOperator, open_gram
from tangentkit.core.errors import DataError, InputError, briefly
from tangentkit.core.files.safe import as_path, open_file, read_whole, write_whole, written_whole
from tangentkit.core.files.seals import seal, unseal
from tangentkit.core.memory import memory_budget
from tangentkit.surrogate.page.contents import FLOAT, contents
from tangentkit.surrogate.page.explanation import Explanation, KernelView

INDEX = "page.json"
INDEX_BYTES, PIECE_BYTES = 2**24, 2**31
"""More than any index and any piece of ours has."""
Rows = Callable[[int], bytes]
"""The number of a test sample -> its row of a kernel, as single-precision numbers."""


@briefly
def write_folder(explanation: Explanation, folder: str | PathLike[str]) -> Path:
    """Writes an explanation as a folder, of which `tangentkit serve` shows the page.

    A kernel whose matrix is a store inside the folder (`tk.gram(..., store=folder / "kernel.zarr")`) is read from
    there; others are copied row by row.

    Args:
        explanation: what is to be shown.
        folder: new, or of such a page, which is replaced.

    Returns:
        The folder.

    Raises:
        InputError: pictures cannot be read, or are none.
        NumericalError: a kernel value is not finite.
        DataError: a file cannot be written.
    """
    folder = as_path(folder)
    made = contents(explanation, served=True)
    kernels = [_put_kernel(view, folder, k) for k, view in enumerate(explanation.kernels)]
    for name, piece in made.pieces.items():
        write_whole(folder / "pieces" / name, [piece], durable=False, within=folder)
    index = {
        "title": explanation.title,
        "shape": [explanation.num_test, explanation.num_train],
        "kernels": kernels,
        "pieces": {name: hashlib.sha256(piece).hexdigest() for name, piece in made.pieces.items()},
    }
    write_whole(folder / INDEX, [seal(index)], durable=True, within=folder)
    return folder


@dataclass(frozen=True, eq=False)
class Folder:
    """A page on disk, to be read."""

    path: Path
    title: str
    shape: tuple[int, int]
    digests: dict[str, str]
    rows: tuple[Rows, ...]

    def piece(self, name: str) -> bytes | None:
        """The bytes of a piece; None where there is none of this name.

        Raises:
            DataError: it is missing or damaged.
        """
        if name not in self.digests:
            return None
        raw = read_whole(self.path / "pieces" / name, limit=PIECE_BYTES)
        if raw is None or hashlib.sha256(raw).hexdigest() != self.digests[name]:
            raise DataError(
                f"{self.path / 'pieces' / name} is missing or damaged", hint="write the folder again"
            )
        return raw


def open_folder(folder: str | PathLike[str]) -> Folder:
    """The folder of a page; whoever made it, nothing outside of it is read.

    Raises:
        InputError: it is not the folder of a page.
        DataError: something in it is damaged.
    """
    path = as_path(folder)
    raw = read_whole(path / INDEX, limit=INDEX_BYTES) if path.is_dir() else None
    if raw is None:
        raise InputError(
            f"{path} is not the folder of a page",
            expected=f"a folder with {INDEX}",
            hint="make one by tangentkit.surrogate.page.write_folder(explanation, folder)",
        )
    index = unseal(raw)
    try:
        n, m = (int(size) for size in index["shape"])  # pyright: ignore[reportOptionalSubscript]
        digests = {str(name): str(digest) for name, digest in index["pieces"].items()}  # pyright: ignore[reportOptionalSubscript]
        kernels, title = list(index["kernels"]), str(index["title"])  # pyright: ignore[reportOptionalSubscript]
    except (TypeError, KeyError, ValueError, AttributeError):
        raise DataError(f"{path / INDEX} is damaged", hint="write the folder again") from None
    if not all(_is_plain(name) for name in digests):
        raise DataError(f"{path / INDEX} names what is no piece", hint="write the folder again")
    rows = tuple(_open_rows(path, store, k, (n, m)) for k, store in enumerate(kernels))
    return Folder(path, title, (n, m), digests, rows)


def _put_kernel(view: KernelView, folder: Path, k: int) -> str | None:
    """The place of a kernel's store inside the folder; None where its rows are copied."""
    if isinstance(view.matrix, StoredOperator):
        root, place = folder.resolve(), view.matrix.path.resolve()
        if place.is_relative_to(root) and place != root:
            return place.relative_to(root).as_posix()
    with written_whole(folder / "rows" / str(k), durable=False, within=folder) as file:
        for _, block in view.rows():
            for row in block.astype(FLOAT):
                raw = row.tobytes()
                file.write(raw + zlib.crc32(raw).to_bytes(4, "little"))
    return None


def _open_rows(folder: Path, store: Any, k: int, shape: tuple[int, int]) -> Rows:
    if store is None:
        return _copied_rows(folder / "rows" / str(k), shape)
    place = folder / str(store)
    if not place.resolve().is_relative_to(folder.resolve()):
        raise DataError(f"{folder} names a store outside of it", got=str(store))
    matrix = open_gram(place)
    if matrix.shape != shape:
        raise DataError(f"{place} is of another page", expected=f"shape {shape}", got=matrix.shape)
    return _stored_rows(matrix)


def _copied_rows(path: Path, shape: tuple[int, int]) -> Rows:
    n, m = shape
    length = m * FLOAT.itemsize + 4

    def row(i: int) -> bytes:
        try:
            with open_file(path) as file:
                is_whole = os.fstat(file.fileno()).st_size == n * length
                file.seek(i * length)
                raw = file.read(length) if is_whole else b""
        except OSError as error:
            raise DataError(f"cannot read {path}", got=error.strerror or error) from error
        if len(raw) != length or zlib.crc32(raw[:-4]).to_bytes(4, "little") != raw[-4:]:
            raise DataError(f"{path} is damaged at row {i}", hint="write the folder again")
        return raw[:-4]

    return row


def _stored_rows(matrix: StoredOperator) -> Rows:
    n, m = matrix.shape
    side = matrix.tile_side()
    # A tile is read whole, for its checksum: the next row is likely to be of the same tiles.
    kept = BoundedCache(memory_budget() // 2)

    def row(i: int) -> bytes:
        start = i // side * side
        band = kept.get(start, lambda: matrix[start : min(start + side, n), 0:m])
        return np.ascontiguousarray(band[i - start].numpy(), dtype=FLOAT).tobytes()

    return row


def _is_plain(name: str) -> bool:
    return name.replace("-", "").isalnum() and name.isascii()
