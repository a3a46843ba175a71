"""The two errors of data sets: a file that is not what it should be, and a set that is not there."""

from pathlib import Path

from tangentkit.core.errors import DataError
from tangentkit.data.places import roots
from tangentkit.data.registry import Entry, File


def damaged(file: File, *, place: Path | str, got: str) -> DataError:
    """The error for content that does not have the md5 of the table."""
    return DataError(
        f"{place} is corrupt, truncated or another version of {file.name}",
        expected=f"content of md5 {file.md5}",
        got=got,
        hint="remove it and run `tangentkit data get NAME`",
    )


def missing(entry: Entry, *, path: Path | None = None, reason: str = "", hint: str = "") -> DataError:
    """The error for a set that is not on this machine, with the command that gets it."""
    folder = entry.editions[0].folders[0]
    standing = [] if path else entry.standing
    places = " or ".join(map(str, [*(root / folder for root in roots(path)), *standing]))
    unset = "" if path or len(roots()) > 1 else " (TANGENTKIT_DATA is not set)"
    return DataError(
        f"the data set {entry.name!r} is not on this machine" + (f" ({reason})" if reason else ""),
        expected=f"its files in {places}{unset}",
        hint=hint or f"tangentkit data get {entry.name}",
    )
