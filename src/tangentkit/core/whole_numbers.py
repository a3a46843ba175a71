"""Whole numbers that come from users: dimensions, degrees, depths, widths, steps, numbers of draws."""

import math
import operator
from typing import Any

from tangentkit.core.errors import InputError


def as_count(value: Any, what: str, *, least: int = 1, most: int | None = None) -> int:
    """A Python integer between `least` and `most`, from any integer type, also of NumPy and torch.

    Raises:
        InputError: it is no integer, or out of range.

    Example:
        >>> as_count(3, "width")
        3
    """
    try:
        number = math.nan if isinstance(value, bool) else operator.index(value)
    except (TypeError, ValueError):
        number = math.nan
    if not least <= number <= (math.inf if most is None else most):
        span = f"an integer >= {least}" if most is None else f"an integer from {least} to {most}"
        raise InputError(f"bad {what}", expected=span, got=repr(value))
    return int(number)
