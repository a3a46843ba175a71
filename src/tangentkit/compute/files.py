"""Files that are there whole or not at all."""

import errno
import os
import uuid
from collections.abc import Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path

from tangentkit.core.errors import DataError
from tangentkit.core.memory import format_bytes

PARTIAL = ".partial"
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NOT_OURS = (errno.EROFS, errno.EACCES, errno.EPERM)


def write_whole(path: Path, pieces: Sequence[bytes | memoryview], *, durable: bool) -> None:
    """Writes a file beside its place and moves it there: readers and crashes see the old file or the new one.

    Args:
        path: of the file; folders on the way are made.
        pieces: its content, one after the other.
        durable: whether to wait until the disk has it, so that not even a loss of power takes it away.

    Raises:
        DataError: the disk is full, or refuses; nothing is left of the new file.
    """
    size = sum(len(piece) for piece in pieces)
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}{PARTIAL}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("xb", buffering=0) as file:
            for piece in pieces:
                _write_all(file, memoryview(piece).cast("B"))
            if durable:
                os.fsync(file.fileno())
        os.replace(partial, path)
        if durable and os.name == "posix":
            _sync_folder(path.parent)
    except BaseException as error:
        # What stood in the way of writing may stand in the way of this too.
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _refused(path, size, error) from error
        raise


def as_folder(path: str | Path) -> Path:
    """The folder that a path means now, wherever the process may go later.

    Example:
        >>> as_folder("k.zarr").is_absolute()
        True
    """
    return Path(path).expanduser().absolute()


def make_folder(path: Path) -> None:
    """Makes a folder, if there is none yet.

    Raises:
        DataError: it cannot be.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"cannot make the folder {path}", got=error.strerror or error) from error


def remove_partial_files(folder: Path) -> None:
    """Removes what writers that were killed have left."""
    for path in folder.rglob(f".*{PARTIAL}"):
        path.unlink(missing_ok=True)


def _write_all(file: FileIO, left: memoryview) -> None:
    while left:
        # The system may take less than it is offered: a disk that fills up takes what fits, then refuses.
        left = left[file.write(left) or 0 :]


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        # Some network file systems do not know this of folders; the file itself is on disk.
        with suppress(OSError):
            os.fsync(handle)
    finally:
        os.close(handle)


def _refused(path: Path, size: int, error: OSError) -> DataError:
    if error.errno in NO_ROOM:
        return DataError(
            f"no room to write {path}",
            expected=f"{format_bytes(size)} more",
            got=error.strerror,
            hint="make room and run again: what is stored is whole, and stays",
        )
    hint = "a folder that this process may write to" if error.errno in NOT_OURS else None
    return DataError(f"cannot write {path}", got=error.strerror or error, hint=hint)
