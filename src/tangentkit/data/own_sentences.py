"""Sentences of the user's own: rows of CSV and JSONL, each with a text and a label, and nothing guessed."""

import codecs
import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tangentkit.core.errors import DataError, InputError
from tangentkit.core.files.safe import read_whole

Row = tuple[int, dict[str, Any]]
"""The number of a line, and what stands there under each name."""


def read_sentences(path: Path, text: str, label: str) -> tuple[list[int], list[str], list[str]]:
    """The numbers of the rows of a .csv or .jsonl, their sentences and their labels.

    Args:
        path: of the file.
        text: the name of the sentences.
        label: the name of the labels: words or whole numbers; 1, 1.0 and "1" are one label.

    Raises:
        DataError: the file is no UTF-8, or damaged.
        InputError: a row lacks something, has too much, or holds what is no text or no label.
    """
    decoded = _decoded(path)
    rows = list(_csv_rows(path, decoded) if path.suffix.lower() == ".csv" else _json_rows(path, decoded))
    if not rows:
        raise InputError(f"{path} has no rows", expected="a sentence and a label in each")
    numbers, sentences, labels = [], [], []
    for number, row in rows:
        where = f"row {number} of {path}"
        _check_there(where, row, text, label)
        numbers.append(number)
        sentences.append(_sentence(where, row[text]))
        labels.append(_label(where, row[label]))
    return numbers, sentences, labels


def _decoded(path: Path) -> str:
    content = read_whole(path, limit=2**40) or b""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise DataError(f"{path} is not UTF-8", got="UTF-16", hint=f"iconv -f utf-16 -t utf-8 {path.name}")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is not UTF-8", got=f"byte {error.start} is {error.object[error.start]:#04x}",
            hint=f"iconv -f latin1 -t utf-8 {path.name}",
        ) from None  # fmt: skip


def _csv_rows(path: Path, text: str) -> Iterator[Row]:
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        for row in reader:
            beyond = len(row.pop(None, []))
            missing = sum(value is None for value in row.values())
            if beyond or missing:
                raise InputError(
                    f"row {reader.line_num} of {path} has too {'many' if beyond else 'few'} fields",
                    expected=f"{len(row)}, as the first row has",
                    got=len(row) + beyond - missing,
                    hint='a text with a comma stands in quotes: "well, yes",1' if beyond else None,
                )
            yield reader.line_num, row
    except csv.Error as error:
        raise DataError(f"line {reader.line_num} of {path} is damaged", expected="CSV", got=error) from None


def _json_rows(path: Path, text: str) -> Iterator[Row]:
    # Not splitlines(): JSON has U+2028 and its like within strings, where they end no line.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"line {number} of {path} is damaged", expected="JSON", got=error) from None
        if not isinstance(row, dict):
            raise DataError(
                f"line {number} of {path} is damaged", expected="a JSON object", got=type(row).__name__
            )
        yield number, row


def _check_there(where: str, row: dict[str, Any], *names: str) -> None:
    missing = [name for name in names if row.get(name) is None]
    if missing:
        raise InputError(
            f"{where} has no {missing[0]!r}",
            expected=f"columns {' and '.join(map(repr, names))}",
            got=f"{list(map(str, row))[:8]}",
            hint="--text-column NAME --label-column NAME",
        )


def _sentence(where: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    raise InputError(f"{where} holds no text", expected="a string", got=_shown(value))


def _label(where: str, value: Any) -> str:
    """The name of a class; of a whole number its digits."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise InputError(f"{where} holds no label", expected="a string or a whole number", got=_shown(value))


def _shown(value: Any) -> str:
    """The beginning of a value as it stands in the file."""
    return json.dumps(value, ensure_ascii=False)[:60]
