"""What can be told of functions and classes by their code: what they do, what they refer to, what they change."""

import dis
import inspect
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

OURS = ("tangentkit", "torch", "builtins", "numpy")
"""Packages whose code is known by its version."""
INSTALLED = tuple(
    {os.path.realpath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "purelib", "platlib")}
)
EVALUATED = ("forward", "__call__", "features", "diag")
"""Methods in which a model or a kernel is evaluated."""
MUTATORS = frozenset(("append", "extend", "insert", "add", "update", "setdefault", "pop", "popleft", "clear"))


def name_of(value: Any) -> str:
    """The full name of a class or function."""
    return f"{value.__module__}.{value.__qualname__}"


def is_ours(value: Any) -> bool:
    """Whether a class or function is known by the version of its package."""
    return (value.__module__ or "builtins").partition(".")[0] in OURS


def is_installed(code: CodeType | ModuleType | None) -> bool:
    """Whether code comes from a package or from Python itself, and not from a file of the user's."""
    file = code.co_filename if isinstance(code, CodeType) else getattr(code, "__file__", None)
    if isinstance(code, ModuleType) and file is None:
        return code.__name__ in sys.builtin_module_names
    return file is not None and os.path.realpath(file).startswith(INSTALLED)


def outline(code: CodeType) -> list:
    """What code does, without the place where it stands: moving a function does not change it."""
    constants = [
        # Sets print in an order of their own.
        outline(c)
        if isinstance(c, CodeType)
        else repr(sorted(c, key=repr) if isinstance(c, frozenset) else c)
        for c in code.co_consts
    ]
    return [code.co_code.hex(), constants, list(code.co_names), list(code.co_varnames)]


def closed_over(function: FunctionType) -> dict[str, Any]:
    """Name -> value of what a function closes over."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    found = {}
    for name, cell in cells:
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not yet filled
            found[name] = None
    return found


def globals_of(function: FunctionType) -> dict[str, Any]:
    """Name -> value of the globals in a function's code; of a module of the user's, the members that it names."""
    found = {}
    for code in _codes(function.__code__):
        for step in dis.get_instructions(code):
            if step.opname not in ("LOAD_GLOBAL", "LOAD_NAME") or step.argval not in function.__globals__:
                continue
            value = function.__globals__[step.argval]
            found[step.argval] = value
            if isinstance(value, ModuleType) and not is_installed(value):
                members = {name: vars(value)[name] for name in code.co_names if name in vars(value)}
                found |= {f"{step.argval}.{name}": member for name, member in members.items()}
    return found


def without_state(values: dict[str, Any], functions: Iterable[FunctionType]) -> dict[str, Any]:
    """The values that some functions do not themselves change: counters, logs and caches are no options.

    Example:
        >>> def forward(x):
        ...     global calls
        ...     calls += 1
        ...     log.append(x)
        ...     return scale * x
        >>> without_state({"calls": 3, "log": [1], "scale": 2.0}, [forward])
        {'scale': 2.0}
    """
    written, mutates = set(), False
    for function in functions:
        for code in _codes(function.__code__):
            mutates |= not MUTATORS.isdisjoint(code.co_names)
            for step in dis.get_instructions(code):
                mutates |= step.opname in ("STORE_SUBSCR", "DELETE_SUBSCR")
                if step.opname.startswith(("STORE_ATTR", "STORE_GLOBAL", "STORE_DEREF")):
                    written.add(step.argval)
    kinds = (list, dict, set, bytearray) if mutates else ()
    return {
        name: value
        for name, value in values.items()
        if name.rpartition(".")[2] not in written and not isinstance(value, kinds)
    }


def evaluation(cls: type) -> list[FunctionType]:
    """The methods of a class that run when it is evaluated: `forward` and its like, and those that they name."""
    methods = {
        name: inspect.unwrap(value)
        for owner in reversed(cls.__mro__)
        if not is_ours(owner) and not is_installed(sys.modules.get(owner.__module__))
        for name, value in vars(owner).items()
        if isinstance(value, FunctionType)
    }
    found, left = {}, [name for name in EVALUATED if name in methods]
    while left:
        name = left.pop()
        found[name] = methods[name]
        named = {n for code in _codes(methods[name].__code__) for n in code.co_names}
        left += [n for n in named if n in methods and n not in found]
    return list(found.values())


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A piece of code and those of functions within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
