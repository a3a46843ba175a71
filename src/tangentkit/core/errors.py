"""Errors that say what was expected, what came and what to do next."""

import difflib
import functools
from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class TangentkitError(Exception):
    """Base of every error that tangentkit raises on purpose.

    Args:
        problem: what went wrong, in one clause.
        expected: what would have been right.
        got: what came instead.
        hint: what the user can do next.

    Example:
        >>> print(TangentkitError("bad batch", expected="(n, c)", got="(3,)", hint="add an axis"))
        bad batch: expected (n, c), got (3,). Try: add an axis
    """

    def __init__(self, problem: str, *, expected: object = None, got: object = None, hint: str | None = None):
        self.problem, self.expected, self.got, self.hint = problem, expected, got, hint
        clauses = [f"expected {expected}"] * (expected is not None) + [f"got {got}"] * (got is not None)
        text = problem + (": " + ", ".join(clauses) if clauses else "")
        super().__init__(f"{text}. Try: {hint}" if hint else text)

    def __str__(self) -> str:
        # KeyError, a base of UnknownNameError, would print the repr of the text.
        return str(self.args[0])


class InputError(TangentkitError, ValueError):
    """An argument, a batch or a label does not have the shape, dtype or value it must have."""


class ModelError(TangentkitError, ValueError):
    """A module is in a state, or of a kind, for which the request has no meaning."""


class NumericalError(TangentkitError, ArithmeticError):
    """Non-finite numbers, or a matrix that lacks a property its solver needs."""


class DataError(TangentkitError, OSError):
    """A data set is missing, truncated or corrupt."""


class BudgetError(TangentkitError, MemoryError):
    """The request needs more memory than the budget allows."""


class UnknownNameError(TangentkitError, KeyError):
    """A name that is not in a list of known names; the message shows the nearest ones.

    Args:
        kind: what the name should have been, such as "study".
        name: the name that came.
        known: the names that exist.

    Example:
        >>> print(UnknownNameError("study", "surogate", ["surrogate", "width"]))
        unknown study 'surogate'. Try: 'surrogate'
    """

    def __init__(self, kind: str, name: str, known: Iterable[str]):
        self.name, self.known = name, sorted(known)
        plain = {known.lower(): known for known in self.known}
        near = [
            plain[match] for match in difflib.get_close_matches(str(name).lower(), plain, n=3, cutoff=0.5)
        ]
        shown = near or self.known[:10]
        more = "" if near or len(self.known) <= 10 else f", ... ({len(self.known)} in all)"
        super().__init__(
            f"unknown {kind} {name!r}", hint=", ".join(map(repr, shown)) + more if shown else None
        )


def briefly(function: Callable[P, T]) -> Callable[P, T]:
    """The function, whose errors of this kind come without the frames of what went on inside: their text says all."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except TangentkitError as error:
            raise error.with_traceback(None) from None

    return call
