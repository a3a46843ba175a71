"""Finding data sets on this machine, and getting those that are not there."""

from os import PathLike
from pathlib import Path

from tangentkit.core.errors import DataError, UnknownNameError
from tangentkit.core.files.safe import as_path
from tangentkit.data.download import download
from tangentkit.data.errors import missing
from tangentkit.data.places import Found, cache_folder, find, find_packed
from tangentkit.data.raw import read_raw
from tangentkit.data.registry import SETS, Entry, File


def named(name: str, split: str | None = None) -> Entry:
    """The entry of a data set, which has this split if one is named.

    Raises:
        UnknownNameError: there is no such set or split; the message shows the nearest names.
    """
    if name not in SETS:
        raise UnknownNameError("data set", str(name), SETS)
    entry = SETS[name]
    if split is not None and split not in entry.splits:
        raise UnknownNameError(f"split of {name}", str(split), entry.splits)
    return entry


def is_here(name: str, split: str | None = None, *, path: str | PathLike[str] | None = None) -> bool:
    """Whether a split (None: all splits) of a data set is on this machine; never downloads.

    Example:
        >>> is_here("fashion-mini"), is_here("digits")
        (True, True)
    """
    entry = named(name, split)
    return bool(entry.origin) or find(entry, split=split, path=_as_path(path)) is not None


def fetch(name: str, path: str | PathLike[str] | None = None) -> Path | None:
    """The folder that holds a data set, downloaded if it is not on this machine; all its files are checked.

    Args:
        name: of the data set.
        path: look only there and download to there; default: the usual places and the cache folder.

    Returns:
        The folder of the files, or None for sets that need none (computed, or part of scikit-learn).

    Raises:
        UnknownNameError: there is no such data set.
        DataError: the download failed, or a file found outside the destination is damaged.
    """
    entry, where = named(name), _as_path(path)
    if entry.origin:
        return None
    if found := find(entry, path=where):
        try:
            for file in found.edition.all_files:
                read(found, file)
        except DataError:
            # In the destination it is replaced; elsewhere it is not ours, and would be found first again.
            if not (found.edition.is_public and found.folder.is_relative_to(where or cache_folder())):
                raise
        else:
            return found.folder
    return download(entry, where or cache_folder()).folder


def locate(entry: Entry, split: str, *, path: str | PathLike[str] | None = None) -> Found:
    """The place of a split: explicit path, TANGENTKIT_DATA, cache, system; else downloaded to the cache.

    Raises:
        DataError: it is not here and cannot be downloaded, in one sentence with the command that gets it.
    """
    where = _as_path(path)
    if found := find(entry, split=split, path=where):
        return found
    if script := find_packed(entry, path=where):
        command = f"python {script} {cache_folder()}"
        raise missing(entry, path=where, reason="only a packed copy is there", hint=command)
    if where:
        raise missing(entry, path=where, hint=f"tangentkit data get {entry.name} --path {where}")
    return download(entry, cache_folder())


def read(found: Found, file: File) -> bytes:
    """The checked raw content of one file of a set.

    Raises:
        DataError: the file is damaged.
    """
    return read_raw(found.path(file) or found.folder / file.name, file)


def _as_path(path: str | PathLike[str] | None) -> Path | None:
    return None if path is None else as_path(path)
