"""Where data sets lie on this machine.

A set is looked for under the path given, else under TANGENTKIT_DATA, under the cache folder, and where a
package of the system or tangentkit itself keeps it. Plain Python: nothing here imports torch.
"""

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tangentkit.data.registry import EMBEDDED, SETS, Edition, Entry, File


@dataclass(frozen=True)
class Found:
    """A folder that holds the files of an edition."""

    folder: Path
    edition: Edition

    def path(self, file: File) -> Path | None:
        """Where the file is, plain or gzipped, or None."""
        plain = self.folder / file.name
        return next((path for path in (plain, gzipped(plain)) if path.is_file()), None)

    def holds(self, split: str | None) -> bool:
        """Whether all files of a split (None: of all splits) are there; their content is not looked at."""
        files = self.edition.all_files if split is None else self.edition.files[split]
        return all(self.path(file) is not None for file in files)


@dataclass(frozen=True)
class Availability:
    """One row of `tangentkit data list`."""

    name: str
    title: str
    size: str
    licence: str
    here: bool
    where: str
    """Where the set is if it is here, else the command that gets it."""


def available() -> list[Availability]:
    """Every data set with its place on this machine, or the command that gets it.

    Example:
        >>> [(row.here, row.where) for row in available() if row.name == "fashion-mini"]
        [(True, 'inside tangentkit')]
    """
    return [
        Availability(entry.name, entry.title, entry.size, entry.licence, *_whereabouts(entry))
        for entry in SETS.values()
    ]


def find(entry: Entry, *, split: str | None = None, path: Path | None = None) -> Found | None:
    """The first place that holds a split (None: all splits) of a set, or None; never downloads."""
    return next((found for found in candidates(entry, path) if found.holds(split)), None)


def find_packed(entry: Entry, *, path: Path | None = None) -> Path | None:
    """The script that unpacks a packed copy of the set, if there is one beside the data."""
    scripts = (root / entry.unpacker for root in roots(path) if entry.unpacker)
    return next((script for script in scripts if script.is_file()), None)


def candidates(entry: Entry, path: Path | None = None) -> Iterator[Found]:
    """The folders in which a set may lie, in the order of the look-up; they need not exist."""
    for root in roots(path):
        for edition in entry.editions:
            yield from (Found(root / folder, edition) for folder in edition.folders)
            if path is not None:
                yield Found(root, edition)
    if path is None:
        yield from (Found(folder, edition) for folder in entry.standing for edition in entry.editions)


def roots(path: Path | None = None) -> list[Path]:
    """The folders below which data sets lie: the path if given, else TANGENTKIT_DATA and the cache folder."""
    if path is not None:
        return [_expanded(path)]
    shared = os.environ.get("TANGENTKIT_DATA")
    cache = _usual_cache()
    return [*([_expanded(Path(shared))] if shared else []), *([cache] if cache else [])]


def cache_folder() -> Path:
    """The folder for downloads: TANGENTKIT_CACHE, else the user's cache folder of this platform.

    Raises:
        DataError: the user has no home folder, and the variable is not set.
    """
    if cache := _usual_cache():
        return cache
    # Here and not above: the package `core` brings torch.
    from tangentkit.core.errors import DataError

    raise DataError(
        "no place for data sets",
        expected="a home folder",
        got="none",
        hint="set TANGENTKIT_CACHE to a folder",
    )


def _usual_cache() -> Path | None:
    """The cache folder, None where there is no home to have it in: what needs no cache must work without."""
    if chosen := os.environ.get("TANGENTKIT_CACHE"):
        return _expanded(Path(chosen))
    if sys.platform == "darwin":
        base = Path("~/Library/Caches")
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or "~/AppData/Local")
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    try:
        return base.expanduser() / "tangentkit"
    except RuntimeError:
        return None


def _expanded(path: Path) -> Path:
    """The path with `~` replaced.

    Raises:
        InputError: the home folder is not known.
    """
    try:
        return path.expanduser()
    except RuntimeError:
        from tangentkit.core.files.safe import as_path

        return as_path(path)  # which says what is wrong


def gzipped(path: Path) -> Path:
    """The path with `.gz` after its name."""
    return path.with_name(f"{path.name}.gz")


def _whereabouts(entry: Entry) -> tuple[bool, str]:
    if entry.origin:
        return True, entry.origin
    if found := find(entry):
        return True, "inside tangentkit" if found.folder == EMBEDDED else str(found.folder)
    if script := find_packed(entry):
        return False, f"python {script} {cache_folder()}"
    return False, f"tangentkit data get {entry.name}"
