"""Dataclasses of plain values and arrays, to JSON + npz and back.

JSON holds everything but arrays, which it names by their path; types come from the annotations, so tuples,
nested dataclasses and numbers that are not finite return as they were.
"""

import dataclasses
import json
import math
import types
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from tangentkit.core.errors import DataError, InputError
from tangentkit.core.files.fingerprints import fingerprint
from tangentkit.core.files.safe import open_file, read_json, write_json, written_whole
from tangentkit.core.memory import memory_budget

T = TypeVar("T")

NUMBERS, ARRAYS = "numbers.json", "arrays.npz"
MALFORMED = (AttributeError, KeyError, OverflowError, TypeError, ValueError)
"""What `from_plain` raises for values of another kind."""


class Record:
    """A base for frozen dataclasses that hold arrays: equal if all their content is equal.

    Example:
        >>> @dataclasses.dataclass(frozen=True, eq=False)
        ... class Numbers(Record):
        ...     tau: float
        ...     images: np.ndarray
        >>> Numbers(0.5, np.ones(3)) == Numbers(0.5, np.ones(3)), Numbers(0.5, np.ones(3)) == 1
        (True, False)
    """

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and _content(self) == _content(other)

    def __hash__(self) -> int:
        return hash(_content(self))


def save_record(record: Any, folder: Path) -> None:
    """Writes `numbers.json` and `arrays.npz`; the former last, so that where it is, the record is whole."""
    arrays: dict[str, np.ndarray] = {}
    plain = to_plain(record, arrays)
    with written_whole(folder / ARRAYS, durable=True) as file:
        np.savez_compressed(file, **arrays)  # pyright: ignore[reportArgumentType]
    write_json(folder / NUMBERS, plain)


def load_record(kind: type[T], folder: Path) -> T:
    """The record that `save_record` wrote to a folder.

    Raises:
        DataError: a file is missing, damaged, or of another kind of record.
    """
    arrays = _read_arrays(folder / ARRAYS)
    try:
        return from_plain(kind, read_json(folder / NUMBERS), arrays)
    except MALFORMED as error:
        raise DataError(
            f"the numbers in {folder} are not those of a {kind.__qualname__}", got=error
        ) from error


def to_plain(value: Any, arrays: dict[str, np.ndarray], path: str = "") -> Any:
    """JSON values for a record; its arrays go to `arrays`, under their path.

    Raises:
        InputError: something that is neither plain nor an array.

    Example:
        >>> arrays = {}
        >>> to_plain({"tau": (0.5, math.nan), "map": np.zeros((2, 3))}, arrays)
        {'tau': [0.5, 'nan'], 'map': {'array': 'map', 'shape': [2, 3]}}
        >>> list(arrays)
        ['map']
    """

    def below(name: object) -> str:
        return f"{path}.{name}" if path else str(name)

    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        arrays[path] = value
        return {"array": path, "shape": list(value.shape)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: to_plain(getattr(value, name), arrays, below(name)) for name in names}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: to_plain(item, arrays, below(key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item, arrays, below(i)) for i, item in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no nan
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise InputError(
        f"cannot save {path or 'this'}", expected="plain values and arrays", got=type(value).__name__
    )


def from_plain(hint: Any, plain: Any, arrays: dict[str, np.ndarray]) -> Any:
    """The value of an annotated type from JSON values; the inverse of `to_plain`.

    Example:
        >>> from_plain(tuple[float, ...], [1, "nan"], {})
        (1.0, nan)
    """
    origin, args = get_origin(hint), get_args(hint)
    if hint is np.ndarray or origin is np.ndarray:
        return arrays[plain["array"]]
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        hints = get_type_hints(hint)
        fields = {field.name for field in dataclasses.fields(hint)}
        if fields != set(plain):
            raise ValueError(f"fields {sorted(fields)} against {sorted(plain)}")
        return hint(**{name: from_plain(hints[name], plain[name], arrays) for name in fields})
    if origin is tuple and args[1:] == (...,):
        return tuple(from_plain(args[0], item, arrays) for item in plain)
    if origin is tuple:
        return tuple(from_plain(arg, item, arrays) for arg, item in zip(args, plain, strict=True))
    if origin is list:
        return [from_plain(args[0], item, arrays) for item in plain]
    if origin is dict:
        return {key: from_plain(args[1], item, arrays) for key, item in plain.items()}
    if origin in (Union, types.UnionType):
        return None if plain is None else from_plain(_without_none(hint), plain, arrays)
    if origin is Literal and plain in args:
        return plain
    if hint is float:
        return float(plain)
    if hint in (int, bool, str) and type(plain) is hint:
        return plain
    raise TypeError(f"{plain!r} is not a {hint}")


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        # The file is opened here since numpy forgets to close a broken one.
        with open_file(path) as file, np.load(file, allow_pickle=False) as stored:
            memory_budget().check(
                sum(entry.file_size for entry in stored.zip.infolist()), "its arrays are", hint="more memory"
            )
            return {name: stored[name] for name in stored.files}
    # Whatever bytes can do to the parsers of zip files and of arrays.
    except Exception as error:
        raise DataError(f"cannot read the arrays in {path}", got=error) from error


def _content(record: Any) -> tuple[str, str]:
    arrays: dict[str, np.ndarray] = {}
    return json.dumps(to_plain(record, arrays), sort_keys=True), fingerprint(arrays)


def _without_none(hint: Any) -> Any:
    (kind,) = [arg for arg in get_args(hint) if arg is not type(None)]
    return kind
