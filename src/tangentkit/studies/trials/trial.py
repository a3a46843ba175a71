"""A trial: one piece of a study that can be done alone, anywhere and again, with the same outcome.

It is a function of plain settings that gives a plain record: numbers, words, arrays. Whatever is random in it comes
from a seed among its settings. Trials of one study share nothing, so that an engine may do them in any order and
anywhere.
"""

import ast
import hashlib
import inspect
import json
import textwrap
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import dropwhile, product
from typing import Any, TypeVar

from tangentkit.core.errors import InputError
from tangentkit.studies.trials.own_files import contents
from tangentkit.studies.trials.plain import to_plain

F = TypeVar("F", bound=Callable)
KEY_DIGITS = 24
"""Hexadecimal digits of a key: 96 bits."""


@dataclass(frozen=True)
class Trial:
    """A function of a module and the settings to call it with.

    Args:
        function: takes the settings as keywords and returns name -> plain value or array.
        settings: name -> plain value.

    Example:
        >>> trial = Trial(_flip, {"seed": 3})
        >>> trial.label, len(trial.key), trial.key == Trial(_flip, {"seed": 4}).key
        ('seed 3', 24, False)
    """

    function: Callable[..., Mapping[str, Any]]
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Where the function is found."""
        return f"{self.function.__module__}:{self.function.__qualname__}"

    @property
    def label(self) -> str:
        """The trial in words, for progress and errors."""
        return label(self.settings)

    @cached_property
    def key(self) -> str:
        """The trial's identity: the function, what it does, the settings, and what lies in folders that they name.

        A function whose statements changed is another one; comments and docstrings do not matter. What it calls is
        not looked at: see `revision`. Pictures and weights of the user's own are: see `own_files`.
        """
        content: list[Any] = [self.name, code_of(self.function), to_plain(dict(self.settings), {})]
        if own := contents(self.settings):
            content.append(own)
        text = json.dumps(content, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:KEY_DIGITS]


def revision(number: int) -> Callable[[F], F]:
    """A decorator for a trial's function when something that it calls has changed what it records.

    Decorators are among the statements of a function: with another number its trials have other keys, and records of
    the older code are not taken over.

    Args:
        number: 2 for the first change, and so on; functions without the decorator are of revision 1.

    Raises:
        InputError: a number below 2.
    """
    if number < 2:
        raise InputError(
            "bad revision", expected="2 or more: a function without it has revision 1", got=number
        )
    return lambda function: function


def same_records(code: str) -> Callable[[F], F]:
    """A decorator for a trial's function whose statements changed and whose records did not: keys stay as they were.

    Whoever changes the function again in a way that its records show takes the decorator away.

    Args:
        code: the digest of the statements before the change, as `code_of` gives it.
    """

    def mark(function: F) -> F:
        function.recorded_code = code  # pyright: ignore[reportFunctionMemberAccess]
        return function

    return mark


def label(settings: Mapping[str, Any]) -> str:
    """The settings of the trial in words."""
    return ", ".join(f"{name} {value}" for name, value in settings.items())


def message(error: str) -> str:
    r"""Kind and message of an error, all lines of it, without the traceback before.

    Example:
        >>> message('Traceback (most recent call last):\n  File "x"\n    f()\nValueError: one\n  two')
        'ValueError: one two'
    """
    lines = error.strip().splitlines()
    frames = [i for i, line in enumerate(lines) if line.startswith('  File "')]
    below = lines[frames[-1] + 1 :] if frames else lines
    return " ".join(line.strip() for line in dropwhile(lambda line: line.startswith(" "), below))


@dataclass(frozen=True, eq=False)
class Outcome:
    """What came of a trial: values, or an error."""

    trial: Trial
    values: Mapping[str, Any]
    seconds: float
    """Of the processor."""
    error: str = ""
    """Kind, message and traceback; empty if all went well."""


def perform(trial: Trial) -> Outcome:
    """Does a trial in this process, on one thread; an error becomes part of the outcome.

    One thread, because rounding depends on their number, and training makes another network of it.
    """
    from threadpoolctl import threadpool_limits

    from tangentkit.studies.trials.kept_folder import RUNNING
    from tangentkit.studies.trials.threads import torch_threads

    running = RUNNING.set(trial.key)
    start = time.process_time()  # not the wall clock, which others make run
    values: Mapping[str, Any] = {}
    error = ""
    with torch_threads(1), threadpool_limits(1):
        try:
            values = trial.function(**trial.settings)
            to_plain(values, {})  # what cannot be stored is the trial's own error
        except Exception:
            values, error = {}, traceback.format_exc()
        finally:
            RUNNING.reset(running)
    return Outcome(trial, values, time.process_time() - start, error)


def sweep(
    function: Callable[..., Mapping[str, Any]], over: Mapping[str, Iterable[Any]], **fixed: Any
) -> list[Trial]:
    """A trial for every combination of settings; the first name varies slowest.

    Args:
        function: of the trials.
        over: name -> the values that it takes.
        **fixed: settings that all share.

    Raises:
        InputError: a setting has no value at all.

    Example:
        >>> [trial.label for trial in sweep(_flip, {"coins": (1, 2), "seed": (0, 1)})]
        ['coins 1, seed 0', 'coins 1, seed 1', 'coins 2, seed 0', 'coins 2, seed 1']
    """
    values = {name: list(items) for name, items in over.items()}
    for name, items in values.items():
        if not items:
            raise InputError(f"no value for {name}", expected="at least one", got="none")
    return [
        Trial(function, {**dict(zip(values, chosen, strict=True)), **fixed})
        for chosen in product(*values.values())
    ]


@cache
def code_of(function: Callable) -> str:
    """A digest of a function's statements, without comments, docstrings and layout."""
    if known := getattr(function, "recorded_code", ""):
        return known
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) and body:
            node.body = body[1:] or [ast.Pass()]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()


def _flip(seed: int, coins: int = 1) -> dict[str, float]:
    """For the examples of this module."""
    from tangentkit.core.seeds import Key

    return {"heads": float(Key(seed).numpy().integers(0, 2, coins).mean())}
