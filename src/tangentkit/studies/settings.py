"""Config fields and text: `--field value` from the shell, and back to the command that says the same.

A field is an int, float, bool, str, one of some words (`Literal`), a tuple of these, or one of these or None.
"""

import ast
import dataclasses
import inspect
import re
import shlex
import textwrap
import types
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from tangentkit.core.errors import InputError, UnknownNameError
from tangentkit.studies.trials.fields import check_field, option
from tangentkit.studies.trials.plain import MALFORMED, from_plain
from tangentkit.studies.trials.study import Study

C = TypeVar("C")

MOST_NUMBERS = 100_000
"""Of a range: more would fill the memory before any trial is done."""
WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def override(config: C, texts: Mapping[str, str]) -> C:
    """The config with some fields replaced by values written as text; `learning-rate` means `learning_rate`.

    Raises:
        UnknownNameError: there is no such field; the message shows the nearest.
        InputError: a value is not of the field's type, nothing that the field can hold, or the config refuses it.

    Example:
        >>> @dataclasses.dataclass(frozen=True)
        ... class Config:
        ...     seeds: tuple[int, ...] = (0,)
        ...     learning_rate: float = 1e-3
        >>> override(Config(), {"seeds": "1,2", "learning-rate": "0.1"})
        Config(seeds=(1, 2), learning_rate=0.1)
    """
    hints = _hints(config)
    values = {}
    for written, text in texts.items():
        name = written.replace("-", "_")
        if name not in hints:
            raise UnknownNameError("field", written, [field.replace("_", "-") for field in hints])
        values[name] = parse(text, hints[name], name=name)
        check_field(name, values[name])
    return dataclasses.replace(config, **values)  # pyright: ignore[reportArgumentType]


def configure(study: Study, scale: str, texts: Mapping[str, str]) -> Any:
    """The config of a study at a scale, with some fields replaced by values written as text.

    Raises:
        UnknownNameError: there is no such scale or field.
    """
    scales = study.load().SCALES
    if scale not in scales:
        raise UnknownNameError("scale", scale, scales)
    return override(scales[scale], texts)


def read_fields(kind: type[C], plain: Any) -> C:
    """The config from the JSON values of its fields; one that is missing, as it came later, has its default.

    Raises:
        InputError: a value is not of its field's type, nothing that the field can hold, or the config refuses it.
        ValueError: there is a field that the config does not have.

    Example:
        >>> @dataclasses.dataclass(frozen=True)
        ... class Config:
        ...     seeds: tuple[int, ...] = (0,)
        ...     learning_rate: float = 1e-3
        >>> read_fields(Config, {"seeds": [1, 2]})
        Config(seeds=(1, 2), learning_rate=0.001)
    """
    hints = get_type_hints(kind)
    if not isinstance(plain, dict):
        raise InputError("bad fields", expected="name and value of each", got=repr(plain))
    if unknown := set(plain) - {field.name for field in dataclasses.fields(kind)}:  # pyright: ignore[reportArgumentType]
        raise ValueError(f"fields that it does not have: {', '.join(sorted(unknown))}")
    values = {}
    for name, value in plain.items():
        try:
            values[name] = from_plain(hints[name], value, {})
        except MALFORMED as error:
            raise InputError(
                f"bad value of {name}", expected=_in_words(hints[name]), got=repr(value)
            ) from error
        check_field(name, values[name])
    return kind(**values)


def command_line(study: Study, scale: str, config: Any) -> str:
    """The command that runs a config.

    Example:
        >>> from tangentkit.studies.registry import find
        >>> study = find("surrogate")
        >>> command_line(study, "quick", configure(study, "quick", {"seeds": "3,4"}))
        'tangentkit run surrogate --scale quick --seeds 3,4'
    """
    words = ["tangentkit", "run", study.name, "--scale", scale]
    for name, value in changes(config, study.load().SCALES[scale]).items():
        words += [option(name), written(value)]
    return shlex.join(words)


def parse(text: str, hint: Any, *, name: str) -> Any:
    """A value of an annotated type from text.

    Args:
        text: as typed in a shell; the items of a tuple are separated by commas, `0-9` are ten integers, `none` is
            None.
        hint: the annotation.
        name: of the field, for the message.

    Raises:
        InputError: the text is not of that type.

    Example:
        >>> parse("7,0-2", tuple[int, ...], name="seeds"), parse("none", int | None, name="limit")
        ((7, 0, 1, 2), None)
    """
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        (kind,) = [arg for arg in args if arg is not type(None)]
        return None if text.lower() == "none" else parse(text, kind, name=name)
    if origin is tuple:
        items = [item.strip() for item in text.split(",")] if text.strip() else []
        if args[0] is int:
            items = [number for item in items for number in _numbers(item)]
        return tuple(parse(item, args[0], name=name) for item in items)
    if origin is Literal:
        if text not in args:
            raise UnknownNameError(f"value of {option(name)}", text, args)
        return text
    try:
        return WORDS[text.lower()] if hint is bool else hint(text)
    except (KeyError, ValueError):
        expected = {int: "an integer", float: "a number", bool: "true or false"}[hint]
        raise InputError(f"bad value for {option(name)}", expected=expected, got=repr(text)) from None


def written(value: Any) -> str:
    """A value as `parse` reads it.

    Example:
        >>> written((7, 0, 1, 2)), written(None), written(0.001)
        ('7,0-2', 'none', '0.001')
    """
    if isinstance(value, tuple):
        return ",".join(map(written, value)) if not _are_counts(value) else _ranges(value)
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def changes(config: Any, base: Any) -> dict[str, Any]:
    """The fields in which a config differs from another."""
    return {
        name: getattr(config, name) for name in _hints(config) if getattr(config, name) != getattr(base, name)
    }


@cache
def field_docs(kind: type) -> dict[str, str]:
    """What each field of a config means: the docstring below it.

    Example:
        >>> from tangentkit.studies.trials.study import Study
        >>> field_docs(Study)["module"]
        'The import path of its code.'
    """
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    (body,) = [node.body for node in tree.body if isinstance(node, ast.ClassDef)]
    docs = {field.name: "" for field in dataclasses.fields(kind)}
    for statement, below in pairwise(body):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
        ):
            docs[statement.target.id] = inspect.cleandoc(str(below.value.value))
    return docs


def field_rows(configs: Sequence[Any]) -> list[tuple[str, ...]]:
    """Name, value in each config, and meaning of every field."""
    docs = field_docs(type(configs[0]))
    return [
        (_dashed(name), *(written(getattr(config, name)) for config in configs), doc)
        for name, doc in docs.items()
    ]


def _numbers(item: str) -> list[str]:
    """The integers of `3-5` as texts; anything else as it is.

    Raises:
        InputError: they are more than anybody means.
    """
    match = re.fullmatch(r"(\d+)-(\d+)", item)
    if not match:
        return [item]
    first, last = int(match[1]), int(match[2])
    if last - first >= MOST_NUMBERS:
        raise InputError("bad range", expected=f"{MOST_NUMBERS:,} numbers at most", got=item)
    return [str(number) for number in range(first, last + 1)]


def _are_counts(values: tuple) -> bool:
    return all(type(value) is int and value >= 0 for value in values)


def _ranges(values: tuple[int, ...]) -> str:
    """The integers with every run of three or more as `first-last`."""
    runs: list[list[int]] = []
    for value in values:
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)) for run in runs)


def _in_words(hint: Any) -> str:
    """An annotation, such as `int` or `tuple[float, ...]`."""
    return (
        hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint).replace("typing.", "")
    )


def _hints(config: Any) -> dict[str, Any]:
    hints = get_type_hints(type(config))
    return {field.name: hints[field.name] for field in dataclasses.fields(config)}


def _dashed(name: str) -> str:
    return name.replace("_", "-")
