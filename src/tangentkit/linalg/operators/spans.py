"""Spans: slices of an axis with start and stop in range and no step."""

from collections.abc import Iterator
from numbers import Integral

from tangentkit.core.errors import InputError


def spans(size: int, side: int) -> Iterator[slice]:
    """Consecutive spans of at most `side` that cover an axis of some size.

    Example:
        >>> list(spans(5, 2))
        [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    for start in range(0, size, side):
        yield slice(start, min(start + side, size))


def as_span(index: int | slice, size: int) -> slice:
    """The span of an axis that an integer or a slice names, counting from the end where negative.

    Raises:
        InputError: an integer out of range, a slice with a step, or anything else.

    Example:
        >>> as_span(slice(-3, None), 10), as_span(-1, 10)
        (slice(7, 10, None), slice(9, 10, None))
    """
    if isinstance(index, slice) and index.step in (None, 1):
        start, stop, _ = index.indices(size)
        return slice(start, max(start, stop))
    if isinstance(index, Integral) and not isinstance(index, bool):
        if not -size <= index < size:
            raise InputError(
                "index out of range", expected=f"an integer from {-size} to {size - 1}", got=index
            )
        start = int(index) % size
        return slice(start, start + 1)
    raise InputError(
        "bad index of an operator", expected="an integer, or a slice without a step", got=repr(index)
    )
