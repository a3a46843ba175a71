"""What a kernel is, in plain words that a file can hold: names -> numbers, texts and fingerprints.

Two kernels of equal identity give equal numbers; where a stored matrix and a kernel do not belong together, the
names that differ say why.
"""

import dataclasses
import functools
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tangentkit.core.errors import ModelError
from tangentkit.core.fingerprints import fingerprint
from tangentkit.core.functions import ModelFunction

Plain = Any
"""None, a truth value, a number, a text, or lists and dicts of these: what JSON can hold."""

OURS = ("tangentkit", "torch", "builtins", "numpy")
"""Packages whose code is known by its version; of all other code the fingerprint is taken."""

SHOWN = 16
"""Characters of a value that an error shows."""


def identify(value: Any, path: str = "kernel") -> Plain:
    """A value in plain words; whatever is long becomes a fingerprint.

    Args:
        value: numbers, texts, tensors, modules, functions, classes, dataclasses, containers of these, or any
            object with a method `identity()`.
        path: where the value stands, for the error.

    Raises:
        ModelError: the value cannot be told from others; with its path.

    Example:
        >>> identify({"outputs": "trace", "dtype": torch.float32, "seeds": (0, 1)})
        {'outputs': 'trace', 'dtype': 'torch.float32', 'seeds': [0, 1]}
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if isinstance(value, (torch.dtype, torch.device, np.dtype)):
        return str(value)
    if isinstance(value, (Tensor, np.ndarray)):
        return fingerprint(value)
    if not isinstance(value, type) and callable(own := getattr(value, "identity", None)):
        return own()
    if isinstance(value, ModelFunction):
        return _of_function(value, path)
    if isinstance(value, nn.Module):
        state = {**dict(value.named_parameters()), **dict(value.named_buffers())}
        return {"architecture": _architecture(value), "values": fingerprint(_sorted(state))}
    if isinstance(value, (type, FunctionType, BuiltinFunctionType, MethodType, functools.partial)):
        return _of_code(value, path)
    if isinstance(value, Mapping):
        return {str(key): identify(item, f"{path}.{key}") for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [identify(item, f"{path}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, (set, frozenset)):
        return sorted((identify(item, path) for item in value), key=repr)
    if dataclasses.is_dataclass(value):
        fields = {
            field.name: identify(getattr(value, field.name), f"{path}.{field.name}")
            for field in dataclasses.fields(value)
        }
        return {"kind": identify(type(value), path), **fields}
    raise ModelError(
        f"nothing says what {path} is",
        expected="numbers, texts, tensors, modules, functions or dataclasses",
        got=f"a {type(value).__qualname__}",
        hint=f"give {type(value).__qualname__} a method identity() that returns plain values",
    )


def differences(stored: Plain, now: Plain, path: str = "") -> Iterator[tuple[str, str, str]]:
    """(path, stored value, present value) wherever two identities differ, values shortened.

    Example:
        >>> list(differences({"kernel": {"seed": 0, "dim": 8}}, {"kernel": {"seed": 1, "dim": 8}}))
        [('kernel.seed', '0', '1')]
    """
    if isinstance(stored, dict) and isinstance(now, dict):
        for name in [*stored, *(name for name in now if name not in stored)]:
            below = f"{path}.{name}" if path else name
            yield from differences(stored.get(name), now.get(name), below)
    elif stored != now:
        yield path, _shown(stored), _shown(now)


def _shown(value: Plain) -> str:
    text = str(value)
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


def _of_function(function: ModelFunction, path: str) -> Plain:
    return {
        "architecture": _architecture(function.module),
        "parameters": fingerprint(_sorted(function.params)),
        "selection": list(function.params),
        "other parameters": fingerprint(_sorted(function.frozen)),
        "buffers": fingerprint(_sorted(function.buffers)),
        "modes": fingerprint(_sorted(function.modes)),
        "forward": identify(function.forward, f"{path}.forward"),
    }


def _sorted(state: Mapping[str, Any]) -> list:
    return [sorted(state), [state[name] for name in sorted(state)]]


def _architecture(module: nn.Module) -> str:
    """The fingerprint of a module's printed form, of the code of its classes, and of its plain attributes."""
    attributes = {
        name: {key: repr(value) for key, value in vars(child).items() if _is_option(key, value)}
        for name, child in module.named_modules()
    }
    classes = {type(child) for child in module.modules()}
    code = sorted((_name(one), _class_code(one)) for one in classes)
    return fingerprint([str(module), code, sorted((n, sorted(a.items())) for n, a in attributes.items())])


def _is_option(name: str, value: object) -> bool:
    plain = (bool, int, float, str, torch.dtype)
    return (
        name != "training"
        and not name.startswith("_")
        and (
            isinstance(value, plain)
            or (isinstance(value, tuple) and all(isinstance(v, plain) for v in value))
        )
    )


def _of_code(value: Any, path: str) -> Plain:
    if isinstance(value, functools.partial):
        return {
            "function": identify(value.func, path),
            "arguments": identify(value.args, path),
            "keywords": identify(value.keywords, path),
        }
    if isinstance(value, MethodType):
        return {"of": identify(value.__self__, path), "method": _of_code(value.__func__, path)}
    if _is_known(value):
        return _name(value)
    if isinstance(value, type):
        return {"name": _name(value), "code": _class_code(value)}
    return {"name": _name(value), "code": fingerprint(_function_code(inspect.unwrap(value), path, set()))}


def _name(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"


def _is_known(value: Any) -> bool:
    return (value.__module__ or "builtins").partition(".")[0] in OURS


def _class_code(cls: type) -> str:
    functions = [
        (owner.__qualname__, name, _code(inspect.unwrap(value).__code__))
        for owner in cls.__mro__
        if not _is_known(owner)
        for name, value in sorted(vars(owner).items())
        if isinstance(value, FunctionType)
    ]
    return fingerprint(functions)


def _function_code(function: Callable, path: str, seen: set[object]) -> Plain:
    """Code, defaults, what it closes over, and the plain values and own functions that it finds as globals."""
    seen.add(function)
    code = function.__code__
    closed = [cell.cell_contents for cell in function.__closure__ or ()]
    named = {name: function.__globals__[name] for name in code.co_names if name in function.__globals__}
    return [
        _code(code),
        identify(function.__defaults__, path),
        [identify(value, f"{path} closes over") for value in closed],
        {name: repr(value) for name, value in named.items() if _is_option("", value)},
        [
            _function_code(value, path, seen)
            for value in named.values()
            if isinstance(value, FunctionType) and not _is_known(value) and value not in seen
        ],
    ]


def _code(code: CodeType) -> Plain:
    # Neither lines nor file: moving a function does not change it. Sets print in an order of their own.
    constants = [
        _code(c) if isinstance(c, CodeType) else repr(sorted(c, key=repr) if isinstance(c, frozenset) else c)
        for c in code.co_consts
    ]
    return [code.co_code.hex(), constants, list(code.co_names), list(code.co_varnames)]
