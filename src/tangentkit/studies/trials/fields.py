"""What the fields of a study's config may hold, checked before any trial is done.

One rule for all studies: numbers are finite and above 0, a list holds something, and nothing twice. What a field may
hold beside that stands in the tables below, by its name. A study's own `__post_init__` says what only it knows.
"""

import math
from collections.abc import Collection, Sequence
from typing import Any

from tangentkit.core.errors import InputError, UnknownNameError

FROM_ZERO = ("seeds", "moments", "digit", "pretrained", "sentences", "ridge", "other_ridge", "ridges", "cutoff",
             "momentum")  # fmt: skip
"""Fields of numbers in which 0 has a meaning, such as none at all; all others are sizes, counts and rates."""
MAY_BE_EMPTY = ("data", "compared", "most", "whole")
"""Lists that may be empty: there is a folder in the place of `data`, and the others are trials beside the usual ones.
Where data are needed, `first_here` refuses none."""
MAY_REPEAT = ("hidden", "samples", "widths", "inputs", "large_rates")
"""Lists with one item for each layer or for each of several sizes, which may be equal; a study that goes through them
one by one wants them rising."""


def check_field(name: str, value: Any) -> None:
    """Refuses what a field of this name cannot hold.

    Raises:
        InputError: with the value, and what would do.

    Example:
        >>> check_field("learning_rate", 0.1)
        >>> check_field("seeds", (0, 0))
        Traceback (most recent call last):
        tangentkit.core.errors.InputError: bad value for --seeds: expected each once, got 0 twice or more
    """
    for item in value if isinstance(value, tuple) else (value,):
        if isinstance(item, int | float) and not isinstance(item, bool):
            _check_number(name, item)
    if not isinstance(value, tuple):
        return
    if "" in value or not (value or name in MAY_BE_EMPTY):
        raise InputError(
            f"bad value for {option(name)}",
            expected="one or more, separated by commas",
            got="nothing" if not value else "nothing between two of them",
        )
    twice = [item for i, item in enumerate(value) if item in value[:i]]
    if twice and name not in MAY_REPEAT:
        raise InputError(
            f"bad value for {option(name)}", expected="each once", got=f"{twice[0]} twice or more"
        )


def check_rising(name: str, values: Sequence[float], *, least: int = 2) -> None:
    """Refuses values that do not rise, and fewer than a study compares.

    Raises:
        InputError: with what came.

    Example:
        >>> check_rising("widths", (1.0, 2.0))
    """
    if list(values) != sorted(set(values)) or len(values) < least:
        words = {1: "one or more", 2: "at least two"}[least]
        raise InputError(f"bad {name}", expected=f"{words}, rising", got=values)


def check_known(name: str, values: Collection[str], known: Collection[str]) -> None:
    """Refuses words that a study does not know.

    Raises:
        UnknownNameError: the message shows the nearest.
    """
    for value in values:
        if value not in known:
            raise UnknownNameError(f"value of {option(name)}", value, known)


def option(name: str) -> str:
    """The name of a field as it is typed.

    Example:
        >>> option("learning_rate")
        '--learning-rate'
    """
    return f"--{name.replace('_', '-')}"


def _check_number(name: str, value: float) -> None:
    if isinstance(value, int):
        least = 0 if name in FROM_ZERO else 1
        fits, expected = value >= least, f"at least {least}"
    else:
        from_zero = name in FROM_ZERO
        fits = math.isfinite(value) and (value >= 0 if from_zero else value > 0)
        expected = f"a finite number, {'0 or more' if from_zero else 'above 0'}"
    if not fits:
        raise InputError(f"bad value for {option(name)}", expected=expected, got=value)
