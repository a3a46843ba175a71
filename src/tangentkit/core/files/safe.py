"""Files: read if they are files, and written whole or not at all.

Everything that the library writes is written here. A folder may come from a stranger, so that no link inside it is
followed by a writer, no temporary name can be known beforehand, and a reader waits at no pipe or device.
"""

import errno
import hashlib
import json
import os
import re
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO

from tangentkit.core.errors import DataError, InputError
from tangentkit.core.memory import format_bytes

PARTIAL = re.compile(r"\..+\.[0-9a-f]{16}\.partial", re.DOTALL)
"""The names of files that are being written: hidden, with 64 random bits."""
JSON_BYTES = 2**26
"""More than any JSON file of ours has; its parser takes up to twenty times as much memory."""
CHUNK = 2**20
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NOT_OURS = (errno.EROFS, errno.EACCES, errno.EPERM)


def as_path(path: str | os.PathLike[str]) -> Path:
    """The path that somebody means, with `~` replaced by a home folder.

    Raises:
        InputError: no file can have this name, or the home folder is not known.

    Example:
        >>> as_path("runs/k.zarr").name
        'k.zarr'
    """
    try:
        if b"\0" in os.fsencode(path):
            raise ValueError("a NUL byte in it")
        return Path(path).expanduser()
    except (ValueError, RuntimeError) as error:
        raise InputError(f"bad path {os.fspath(path)!r}", expected="the name of a file", got=error) from None


def write_whole(
    path: Path, pieces: Sequence[bytes | memoryview], *, durable: bool, within: Path | None = None
) -> None:
    """Writes a file, whole or not at all; see `written_whole`.

    Args:
        path: of the file.
        pieces: its content, one after the other.
        durable: whether to wait until the disk has it, so that not even a loss of power takes it away.
        within: the folder below which no link is followed.

    Raises:
        DataError: the disk is full, or refuses; nothing is left of the new file.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> write_whole(folder / "a" / "b", [b"one, ", b"two"], durable=False)
        >>> (folder / "a" / "b").read_bytes(), len(list((folder / "a").iterdir()))
        (b'one, two', 1)
    """
    with written_whole(path, durable=durable, within=within) as file:
        for piece in pieces:
            file.write(piece)


@contextmanager
def written_whole(path: Path, *, durable: bool, within: Path | None = None) -> Iterator[BinaryIO]:
    """A file to write to, which gets its name when all is written: readers and crashes see the old one or the new.

    A link of that name is replaced, not followed. Folders on the way are made.

    Args:
        path: of the file.
        durable: whether to wait until the disk has it, so that not even a loss of power takes it away.
        within: the folder that the user named: no folder below it may be a link. By default that of the file.

    Raises:
        DataError: the disk is full, or refuses, or a folder is a link; nothing is left of the new file.
    """
    partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}.partial")
    try:
        (within or path.parent).mkdir(parents=True, exist_ok=True)
        for folder in _own_folders(path, within):
            folder.mkdir(exist_ok=True)
        with partial.open("xb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(partial, path)
        if durable and os.name == "posix":
            _sync_folder(path.parent)
    except BaseException as error:
        # What stood in the way of writing may stand in the way of this too.
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        if isinstance(error, OSError) and not isinstance(error, DataError):
            raise _refused(path, error) from error
        raise


def make_folder(path: Path) -> None:
    """Makes a folder, if there is none yet.

    Raises:
        DataError: it cannot be.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"cannot make the folder {path}", got=error.strerror or error) from error


def remove_file(path: Path, *, within: Path) -> None:
    """Removes a file, if it is there; of a link the link.

    Raises:
        DataError: it cannot be, or a folder on the way from `within` is a link.
    """
    try:
        for _ in _own_folders(path, within):
            pass
        path.unlink(missing_ok=True)
    except DataError:
        raise
    except OSError as error:
        raise DataError(f"cannot remove {path}", got=error.strerror or error) from error


def remove_partial_files(folder: Path) -> None:
    """Removes what writers of ours that were killed have left, and nothing of anybody else."""
    for path in folder.rglob(".*.partial"):
        if is_partial(path):
            path.unlink(missing_ok=True)


def is_partial(path: Path) -> bool:
    """Whether a file is one that a writer of ours has left.

    Example:
        >>> is_partial(Path(".mine.partial"))
        False
    """
    return PARTIAL.fullmatch(path.name) is not None and path.is_file() and not path.is_symlink()


def open_file(path: Path) -> FileIO:
    """A file, open for reading; neither a pipe, at which one would wait for ever, nor a device.

    Raises:
        DataError: it is something else.
        OSError: it is missing, or cannot be opened.
    """
    # Else a pipe is waited at in the very opening.
    later = getattr(os, "O_NONBLOCK", 0)
    file = FileIO(path, "rb", opener=lambda name, flags: os.open(name, flags | later))
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise DataError(f"{path} is not a file", expected="a file", got="a pipe, a device or the like")
    return file


def read_whole(path: Path, *, limit: int) -> bytes | None:
    """The content of a file of at most `limit` bytes; None where there is none.

    Raises:
        DataError: it cannot be read, is larger, or is no file.
    """
    with _reading(path) as file:
        if file is None:
            return None
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise DataError(
                f"{path} is too large",
                expected=f"at most {limit:,} bytes ({format_bytes(limit)})",
                got=f"{size:,} bytes",
            )
        return file.read(size)


def digest(path: Path) -> str | None:
    """The SHA-256 of a file, None where there is none.

    Raises:
        DataError: it cannot be read, or is no file.
    """
    with _reading(path) as file:
        if file is None:
            return None
        found = hashlib.sha256()
        while piece := file.read(CHUNK):
            found.update(piece)
        return found.hexdigest()


def read_json(path: Path, *, limit: int = JSON_BYTES) -> Any:
    """The content of a JSON file.

    Raises:
        DataError: it is missing, cannot be read, is too large, or is not JSON.
    """
    raw = read_whole(path, limit=limit)
    if raw is None:
        raise DataError(f"{path} is missing")
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is damaged", expected="JSON", got=error) from error


def write_json(path: Path, plain: Any, *, within: Path | None = None) -> None:
    """Writes JSON, whole or not at all."""
    text = json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    # What UTF-8 cannot hold, half of a pair of surrogates, becomes an escape, which JSON reads.
    write_whole(path, [text.encode("utf-8", "backslashreplace")], durable=True, within=within)


@contextmanager
def _reading(path: Path) -> Iterator[FileIO | None]:
    try:
        try:
            file = open_file(path)
        except (FileNotFoundError, NotADirectoryError):
            yield None
            return
        with file:
            yield file
    except DataError:
        raise
    except OSError as error:
        raise DataError(f"cannot read {path}", got=error.strerror or error) from error


def _own_folders(path: Path, within: Path | None) -> Iterator[Path]:
    """The folders below `within` in which a file lies, from the top.

    Raises:
        DataError: one is a link.
    """
    folder = within or path.parent
    for name in path.parent.relative_to(folder).parts:
        folder = folder / name
        if folder.is_symlink():
            raise DataError(
                f"cannot write {path}",
                expected="folders",
                got=f"{folder}, which is a link",
                hint="nothing is written through links: put a folder in its place",
            )
        yield folder


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        # Some network file systems do not know this of folders; the file itself is on disk.
        with suppress(OSError):
            os.fsync(handle)
    finally:
        os.close(handle)


def _refused(path: Path, error: OSError) -> DataError:
    if error.errno in NO_ROOM:
        return DataError(
            f"no room to write {path}",
            got=error.strerror,
            hint="make room and run again: what is stored is whole, and stays",
        )
    hint = "a folder that this process may write to" if error.errno in NOT_OURS else None
    return DataError(f"cannot write {path}", got=error.strerror or error, hint=hint)
