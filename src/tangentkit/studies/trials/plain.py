"""Plain values and arrays, to JSON values and back.

JSON holds everything but arrays, which it names by numbers. `from_plain` takes types from annotations, so that
tuples, nested dataclasses and numbers that are not finite return as they were; `restored` needs none.
"""

import dataclasses
import math
import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from tangentkit.core.errors import InputError

NOT_FINITE = ("nan", "inf", "-inf")
"""Numbers that JSON has not, as they are written."""
CONTAINERS = {tuple: list, list: list, dict: dict}
"""What holds several values -> what JSON has for it."""
MALFORMED = (AttributeError, KeyError, OverflowError, TypeError, ValueError)
"""What `from_plain` and `restored` raise for values of another kind."""


def to_plain(value: Any, arrays: dict[str, np.ndarray], path: str = "") -> Any:
    """JSON values for a record; its arrays go to `arrays`, numbered.

    Raises:
        InputError: something that is neither plain nor an array.

    Example:
        >>> arrays = {}
        >>> to_plain({"tau": (0.5, math.nan), "map": np.zeros((2, 3))}, arrays)
        {'tau': [0.5, 'nan'], 'map': {'array': '0', 'shape': [2, 3]}}
        >>> list(arrays)
        ['0']
    """

    def below(name: object) -> str:
        return f"{path}.{name}" if path else str(name)

    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        name = str(len(arrays))  # not the path, which no file may be able to bear
        arrays[name] = value
        return {"array": name, "shape": list(value.shape)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: to_plain(getattr(value, name), arrays, below(name)) for name in names}
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
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
    if origin in CONTAINERS and type(plain) is not CONTAINERS[origin]:
        raise TypeError(f"{plain!r} is not a {hint}")  # a text, too, has items
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
    if hint is float and (type(plain) in (int, float) or plain in NOT_FINITE):
        return float(plain)
    if hint in (int, bool, str) and type(plain) is hint:
        return plain
    raise TypeError(f"{plain!r} is not a {hint}")


def restored(plain: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Values from JSON values without any annotation: tuples come back as lists.

    Example:
        >>> restored({"tau": [0.5, "nan"], "map": {"array": "0", "shape": [2]}}, {"0": np.zeros(2)})
        {'tau': [0.5, nan], 'map': array([0., 0.])}
    """
    if isinstance(plain, dict):
        if set(plain) == {"array", "shape"}:
            return arrays[plain["array"]]
        return {key: restored(item, arrays) for key, item in plain.items()}
    if isinstance(plain, list):
        return [restored(item, arrays) for item in plain]
    return float(plain) if plain in NOT_FINITE else plain


def _without_none(hint: Any) -> Any:
    (kind,) = [arg for arg in get_args(hint) if arg is not type(None)]
    return kind
