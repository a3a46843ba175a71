"""A Gram matrix on disk: a zarr folder of tiles beside a manifest that says whose it is.

    k.zarr/manifest.json         identity of the matrix; fingerprints of the descriptions below
    k.zarr/lock.json             who is writing, while somebody is
    k.zarr/zarr.json             description of the group
    k.zarr/gram/zarr.json, c/    the matrix; of a symmetric one the upper triangle of tiles
    k.zarr/<part>/zarr.json, c/  what tiles are made of and is computed once: features, diagonals

Nothing in it is code, and nothing is ever unpickled.
"""

import hashlib
import json
import reprlib
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tangentkit.compute.identity import differences
from tangentkit.compute.store.layout import GRAM, tile_indices
from tangentkit.compute.store.locks import LOCK, writing
from tangentkit.compute.store.manifest import MANIFEST_BYTES, check_manifest
from tangentkit.compute.store.tiles import REPAIR, DamagedError, Index, TileArray
from tangentkit.compute.store.zarr_files import METADATA, descriptions, is_ours, word
from tangentkit.core.errors import DataError
from tangentkit.core.files.safe import (
    digest,
    is_partial,
    make_folder,
    read_whole,
    remove_partial_files,
    write_whole,
)
from tangentkit.core.files.seals import seal, unseal
from tangentkit.core.memory import format_bytes

MANIFEST = "manifest.json"
FORMAT = 3
"""Of the folder; readers refuse others."""
PROBES = "probes"
"""The part of an identity that holds values of the kernel: they are equal within rounding only."""
ANOTHER_FOLDER = "another folder; or open_gram(folder) to read what is there"


@dataclass(frozen=True)
class Store:
    """A folder of arrays with a manifest. Made by `create` or `open_store`."""

    folder: Path
    identity: dict[str, Any]
    """What makes the matrix the one it is."""
    arrays: dict[str, TileArray]
    files: dict[str, str]
    """Descriptions of the group and of the arrays -> their SHA-256."""
    manifest: str
    """The SHA-256 of the manifest."""

    def indices(self, name: str) -> list[Index]:
        """The tiles of an array; of a symmetric matrix the upper triangle."""
        return tile_indices(*self.arrays[name].grid, symmetric=self.identity["symmetric"] and name == GRAM)

    def has(self, name: str, index: Index) -> bool:
        """Whether a tile of an array is there."""
        return self.arrays[name].has(index)

    def get(self, name: str, index: Index) -> Tensor:
        """A tile of an array, checked."""
        return self.arrays[name].read(index)

    def rows(self, name: str, span: slice) -> Tensor:
        """Some rows of a part, whole tiles of them, checked."""
        side = self.arrays[name].tile[0]
        tiles = [self.get(name, (i, 0)) for i in range(span.start // side, -(-span.stop // side))]
        return tiles[0] if len(tiles) == 1 else torch.cat(tiles)

    def put(self, name: str, index: Index, tile: Tensor) -> tuple[str, Index]:
        """Writes a tile, if the folder is still this store.

        Raises:
            DataError: the folder is gone, or was made anew for another matrix; or the disk is full.
        """
        if (found := digest(self.folder / MANIFEST)) != self.manifest:
            raise DataError(
                f"{self.folder} is not the store it was",
                expected="the folder that the work began with, the same for every worker",
                got="another manifest" if found else "no manifest",
                hint="workers need a file system that they share",
            )
        self.arrays[name].write(index, tile)
        return name, index

    def accept(self, receipt: tuple[str, Index]) -> None:
        """Nothing: the tile is in the store already."""

    def missing(self, name: str, wanted: list[Index]) -> list[Index]:
        """Which of the tiles are not there.

        Raises:
            DataError: one is there with the wrong size.
        """
        return self.arrays[name].missing(wanted)

    def check_room(self, missing: Mapping[str, list[Index]]) -> None:
        """Refuses to begin what the disk cannot hold.

        Raises:
            DataError: with the bytes that are needed and free.
        """
        needed = sum(len(indices) * self.arrays[name].file_bytes for name, indices in missing.items())
        free = shutil.disk_usage(self.folder).free
        if needed > free:
            raise DataError(
                f"no room for the tiles of {self.folder}",
                expected=f"{needed} bytes ({format_bytes(needed)}) free",
                got=f"{free} bytes ({format_bytes(free)})",
                hint="another disk, a kernel in float32, or fewer samples",
            )

    def check_descriptions(self) -> None:
        """Reads the descriptions of all arrays.

        Raises:
            DataError: one is missing or damaged.
        """
        for name in self._damaged_descriptions():
            raise DataError(
                f"{self.folder / name} is damaged",
                expected="the description of an array as it was written",
                got="other bytes" if (self.folder / name).exists() else "no file",
                hint=REPAIR,
            )

    def check(self, name: str, indices: Iterable[Index]) -> None:
        """Reads some tiles of an array.

        Raises:
            DataError: one is missing or damaged.
        """
        for index in indices:
            self.get(name, index)

    def mend_descriptions(self) -> None:
        """Writes descriptions that are missing or damaged again."""
        damaged = self._damaged_descriptions()
        written = descriptions(self.arrays) if damaged else {}
        for name in damaged:
            write_whole(self.folder / name, [written[name]], durable=False, within=self.folder)
        self.check_descriptions()

    def remove_damaged(self, places: Mapping[str, list[Index]]) -> None:
        """Reads some tiles of some arrays, and then removes those that were read and found damaged.

        Raises:
            DataError: one is there and cannot be read; nothing is removed.
        """
        damaged = []
        for name, indices in places.items():
            for index in indices:
                try:
                    self.get(name, index)
                except DamagedError:
                    damaged.append((name, index))
        for name, index in damaged:
            self.arrays[name].remove(index)

    def _damaged_descriptions(self) -> list[str]:
        return [name for name, expected in self.files.items() if digest(self.folder / name) != expected]

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Holds the lock; first, what killed writers left is cleared away."""
        with writing(self.folder):
            remove_partial_files(self.folder)
            yield


def create(folder: Path, identity: dict[str, Any], arrays: Mapping[str, TileArray]) -> Store:
    """A new store, or the one that is there if it is of the same matrix.

    Raises:
        DataError: the folder holds something else, another matrix, or is damaged; or there is no room.
    """
    make_folder(folder)
    with writing(folder):
        if is_store(folder):
            return expect(folder, identity)
        _check_empty(folder)
        files = descriptions(arrays)
        content = {
            "format": FORMAT,
            "identity": identity,
            "arrays": {
                name: {"shape": a.shape, "tile": a.tile, "dtype": word(a.dtype)} for name, a in arrays.items()
            },
            "files": {name: hashlib.sha256(raw).hexdigest() for name, raw in files.items()},
        }
        check_manifest(json.loads(json.dumps(content)), folder / MANIFEST)
        for name, raw in files.items():
            write_whole(folder / name, [raw], durable=False, within=folder)  # they can be made again
        # Last: a folder without a manifest is no store yet.
        write_whole(folder / MANIFEST, [seal(content)], durable=True)
    return open_store(folder)


def is_store(folder: Path) -> bool:
    """Whether there is a store in a folder, of whatever matrix and in whatever state.

    Raises:
        DataError: this process may not look.
    """
    try:
        return (folder / MANIFEST).exists()
    except OSError as error:
        raise DataError(f"cannot look into {folder}", got=error.strerror) from error


def expect(folder: Path, identity: dict[str, Any]) -> Store:
    """The store in a folder, if it is of this matrix; nothing but its manifest is looked at.

    Raises:
        DataError: it is of another; with all that differs.
    """
    store = read_manifest(folder)
    # As it comes back from the file: tuples are lists there.
    now = json.loads(json.dumps({name: value for name, value in identity.items() if name != PROBES}))
    stored = {name: value for name, value in store.identity.items() if name != PROBES}
    if words := "; ".join(differences(stored, now)):
        raise DataError(f"{folder} holds another Gram matrix: {words}", hint=ANOTHER_FOLDER)
    return store


def open_store(folder: Path) -> Store:
    """The store in a folder, its manifest and descriptions checked.

    Raises:
        DataError: there is none, or a file of it is damaged.
    """
    store = read_manifest(folder)
    store.check_descriptions()
    return store


def read_manifest(folder: Path) -> Store:
    """The store that the manifest in a folder tells of.

    Raises:
        DataError: there is none, or it is damaged.
    """
    path = folder / MANIFEST
    if (raw := read_whole(path, limit=MANIFEST_BYTES)) is None:
        raise DataError(f"{folder} is not a store", expected=MANIFEST, got="no such file")
    if (content := unseal(raw)) is None:
        raise DataError(
            f"{path} is damaged",
            expected="a manifest as it was written",
            got="other bytes",
            hint="without it nothing says whose the tiles are: compute into another folder",
        )
    if (found := content.get("format")) != FORMAT:
        raise DataError(
            f"{path} is of another format than this version of tangentkit reads",
            expected=FORMAT,
            got=reprlib.repr(found),
            hint="compute it again, into another folder",
        )
    check_manifest(content, path)
    own = hashlib.sha256(raw).hexdigest()
    arrays = {
        name: TileArray(
            folder / name, tuple(a["shape"]), tuple(a["tile"]), getattr(torch, a["dtype"]), f"{own} {name}"
        )
        for name, a in content["arrays"].items()
    }
    return Store(folder, content["identity"], arrays, content["files"], own)


def _check_empty(folder: Path) -> None:
    """Refuses a folder of somebody else's; what a killed writer of ours left is no obstacle."""
    left = (LOCK, METADATA) if is_ours(folder / METADATA) else (LOCK,)
    for path in folder.rglob("*"):
        ours = path.name in left or is_partial(path)
        if path.is_symlink() or not (path.is_dir() or ours):
            raise DataError(
                f"{folder} is not a store",
                expected=f"a new or empty folder, or one with a {MANIFEST}",
                got=f"no {MANIFEST}, but {path.relative_to(folder)}",
                hint="another folder",
            )
