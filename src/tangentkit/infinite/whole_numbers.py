"""Whole numbers that come from users: dimensions, degrees, depths, widths, numbers of draws."""

import math
from numbers import Integral
from typing import Any

from tangentkit.core.errors import InputError


def as_count(value: Any, what: str, *, least: int = 1, most: int | None = None) -> int:
    """A Python integer between `least` and `most`, from any integer type.

    Raises:
        InputError: it is no integer, or out of range.

    Example:
        >>> as_count(3, "width")
        3
    """
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not whole or not least <= int(value) <= (math.inf if most is None else most):
        span = f"an integer >= {least}" if most is None else f"an integer from {least} to {most}"
        raise InputError(f"bad {what}", expected=span, got=repr(value))
    return int(value)
