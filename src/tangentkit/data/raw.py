"""The raw content of data files: unzipped, and checked by md5 before anything reads it."""

import gzip
import hashlib
import io
import zlib
from pathlib import Path

from tangentkit.core.errors import DataError
from tangentkit.core.files.safe import read_whole
from tangentkit.data.errors import damaged
from tangentkit.data.registry import File

GZIP_MAGIC = b"\x1f\x8b"


def read_raw(path: Path, file: File) -> bytes:
    """The raw content of a file on disk, plain or gzipped.

    Raises:
        DataError: the file cannot be read, or its content does not have the md5 of the table.
    """
    # What does not shrink grows a little when it is gzipped.
    content = read_whole(path, limit=file.nbytes + file.nbytes // 100 + 1000)
    if content is None:
        raise DataError(f"cannot read {path}", got="no such file")
    return raw_content(content, file, place=path)


def raw_content(content: bytes, file: File, *, place: Path | str) -> bytes:
    """The content as it is in the table: unzipped if need be, and checked.

    Args:
        content: bytes as they came.
        file: the file they should be.
        place: where they came from, for the message.

    Raises:
        DataError: the content does not have the md5 of the table.
    """
    raw = content
    # By content, not by name: some servers unzip on the way and leave the name.
    if content.startswith(GZIP_MAGIC):
        try:
            # A few bytes may stand for gigabytes: no more is unzipped than the file can have.
            with gzip.open(io.BytesIO(content)) as stream:
                raw = stream.read(file.nbytes + 1)
        except (OSError, EOFError, zlib.error) as error:
            got = f"a broken gzip stream ({error}) of md5 {md5(content)}"
            raise damaged(file, place=place, got=got) from error
    if len(raw) > file.nbytes:
        raise damaged(file, place=place, got=f"more than its {file.nbytes:,} bytes")
    if md5(raw) != file.md5:
        raise damaged(file, place=place, got=f"{len(raw):,} bytes of md5 {md5(raw)}")
    return raw


def md5(content: bytes) -> str:
    """The md5 of some content, in hexadecimal."""
    return hashlib.md5(content, usedforsecurity=False).hexdigest()
