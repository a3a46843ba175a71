"""The file formats of the data sets, from raw bytes to arrays and lists of sentences."""

import csv
import io
import math
import re
import struct
import zipfile

import numpy as np
from jaxtyping import UInt8

from tangentkit.core.errors import DataError

IDX_BYTES = 0x08
CIFAR_RECORD = 1 + 3 * 32 * 32
HANDLE = re.compile(r"@\w+")
NEGATIVE, POSITIVE = "0", "4"


def parse_idx(content: bytes, *, name: str) -> UInt8[np.ndarray, "..."]:
    """The array in an idx file of bytes (MNIST's format).

    Two zero bytes, the type of the entries, the number of axes, their lengths (big-endian), the entries.

    Example:
        >>> parse_idx(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9]), name="tiny")
        array([7, 8, 9], dtype=uint8)

    Raises:
        DataError: the header or the length is wrong.
    """
    if len(content) < 4 or content[:3] != bytes([0, 0, IDX_BYTES]):
        raise DataError(f"{name} is not an idx file", expected="the magic 00 00 08", got=content[:3].hex(" "))
    start = 4 + 4 * content[3]
    if len(content) < start:
        raise DataError(f"{name} is truncated", expected=f"{start} bytes of header", got=len(content))
    shape = struct.unpack(f">{content[3]}I", content[4:start])
    if len(content) - start != math.prod(shape):
        raise DataError(
            f"{name} is truncated or too long",
            expected=f"{math.prod(shape):,} entries of shape {shape}",
            got=f"{len(content) - start:,}",
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def parse_cifar(
    content: bytes, *, name: str
) -> tuple[UInt8[np.ndarray, "n 3 32 32"], UInt8[np.ndarray, " n"]]:
    """Images and labels of a binary CIFAR-10 batch: one byte of label, then 3 x 32 x 32 bytes, each record.

    Raises:
        DataError: the length is no multiple of a record, or a label exceeds 9.
    """
    if not content or len(content) % CIFAR_RECORD:
        expected = f"a multiple of {CIFAR_RECORD} bytes"
        raise DataError(f"{name} is no CIFAR-10 batch", expected=expected, got=f"{len(content):,} bytes")
    records = np.frombuffer(content, np.uint8).reshape(-1, CIFAR_RECORD)
    if (largest := int(records[:, 0].max())) > 9:
        raise DataError(f"{name} is no CIFAR-10 batch", expected="labels 0..9", got=largest)
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0]


def parse_cola(content: bytes, *, name: str) -> tuple[list[str], list[int]]:
    r"""Sentences and labels of a CoLA file: source, label, star and sentence between tabs; no quoting.

    Example:
        >>> parse_cola(b"gj04\t0\t*\tThe dog bark.\n", name="tiny")
        (['The dog bark.'], [0])

    Raises:
        DataError: a line has not these four columns, or a label that is neither 0 nor 1.
    """
    # Not splitlines(): sentences may hold characters that it takes for ends of lines.
    rows = [line.split("\t") for line in content.decode().split("\n") if line]
    for number, row in enumerate(rows, start=1):
        if len(row) != 4 or row[1] not in {"0", "1"}:
            raise DataError(f"line {number} of {name}", expected="source, 0 or 1, star, sentence", got=row)
    return [row[3] for row in rows], [int(row[1]) for row in rows]


def parse_sentiment140(content: bytes, *, name: str, encoding: str) -> tuple[list[str], list[int]]:
    """Tweets and labels (0 negative, 1 positive) of a Sentiment140 file; neutral tweets are left out.

    Columns: polarity 0, 2 or 4, id, date, query, user, text; all quoted. Handles become USERNAME.

    Example:
        >>> row = b'"4","1","Mon May 11","q","someone","@anne I love it"'
        >>> parse_sentiment140(row, name="tiny", encoding="utf-8")
        (['USERNAME I love it'], [1])

    Raises:
        DataError: a row has not these six columns, or another polarity.
    """
    texts, labels = [], []
    rows = csv.reader(io.StringIO(content.decode(encoding), newline=""))
    for number, row in enumerate(rows, start=1):
        if len(row) != 6 or row[0] not in {NEGATIVE, "2", POSITIVE}:
            raise DataError(f"row {number} of {name}", expected="polarity 0, 2 or 4 and 5 columns", got=row)
        if row[0] in {NEGATIVE, POSITIVE}:
            texts.append(HANDLE.sub("USERNAME", row[5]))
            labels.append(int(row[0] == POSITIVE))
    return texts, labels


def zip_member(content: bytes, member: str, *, name: str) -> bytes:
    """One file of a zip archive.

    Raises:
        DataError: the archive is broken or has no such file.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as pack:
            return pack.read(member)
    except (zipfile.BadZipFile, KeyError) as error:
        raise DataError(f"cannot read {member} in {name}", got=error) from error
