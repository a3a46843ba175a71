"""A model of the user: what a function gives that is named on the command line, as in `package.module:function`.

This runs the code of that module. The name comes from the command line alone, never from a file.
"""

import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

FORM = "MODULE:FUNCTION, such as mypackage.networks:make"


def own_model(name: str, *, seed: int) -> "nn.Module":
    """The module that a function without arguments returns, called after `torch.manual_seed(seed)`.

    Modules are looked for in the working folder first, as Python does it with a script.

    Raises:
        InputError: the name is no such pair, there is no such module, its code raises, or it gives no torch module.
        UnknownNameError: the module has no such function.

    Example:
        >>> type(own_model("tangentkit.models:lenet", seed=0)).__name__
        'Sequential'
    """
    import torch

    from tangentkit.core.errors import InputError, UnknownNameError

    place, _, what = name.partition(":")
    if not what.isidentifier() or not all(part.isidentifier() for part in place.split(".")):
        raise InputError("bad model", expected=FORM, got=repr(name))
    module = _imported(place)
    make = getattr(module, what, None)
    if make is None:
        public = [name for name, value in vars(module).items() if callable(value) and name[0] != "_"]
        raise UnknownNameError(f"function of {place}", what, public)
    needed = f"a function without arguments that returns a torch.nn.Module at {name}"
    if not callable(make) or isinstance(make, torch.nn.Module):
        raise InputError("bad model", expected=needed, got=f"a {type(make).__name__}")
    needs = _arguments(make)
    if needs:
        raise InputError("bad model", expected=needed, got=f"one that needs {', '.join(needs)}")
    # Weights that the function draws are those of --seed, so that a second run goes on with the first.
    with torch.random.fork_rng(devices=[]), _blamed(f"{name}() failed"):
        torch.manual_seed(seed)
        model = make()
    if not isinstance(model, torch.nn.Module):
        raise InputError("bad model", expected=needed, got=f"one that returns a {type(model).__name__}")
    if next(model.parameters(), None) is None:
        raise InputError("bad model", expected="a module with parameters", got=f"{name}(), which has none")
    return model


def _arguments(make: Callable) -> list[str]:
    """The arguments that a function cannot do without, as far as Python can tell."""
    try:
        arguments = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):
        return []
    return [
        one.name
        for one in arguments
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]


def _imported(place: str) -> ModuleType:
    from tangentkit.core.errors import InputError

    # Left there: what is pickled for workers, or imported by the model later, comes from there too.
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        with _blamed(f"importing {place} failed"):
            return import_module(place)
    except InputError as error:
        cause = error.__cause__
        if isinstance(cause, ModuleNotFoundError) and f"{place}.".startswith(f"{cause.name}."):
            raise InputError(
                f"there is no module {cause.name}",
                expected=FORM,
                hint="install its package, or run the command in the folder that holds it",
            ) from cause
        raise


@contextmanager
def _blamed(problem: str) -> Iterator[None]:
    """An error of the user's code in one line that says where it is."""
    from tangentkit.core.errors import InputError

    try:
        yield
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{last.filename}, line {last.lineno}"
        raise InputError(problem, got=f"{type(error).__name__}: {error} ({where})") from error
