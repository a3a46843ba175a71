"""What a kernel is, in plain words that a file can hold: names -> numbers, texts and fingerprints.

Two kernels of equal identity give equal numbers; where a stored matrix and a kernel do not belong together, the
names that differ say why.
"""

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType, NoneType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tangentkit.compute.code import is_ours, name_of
from tangentkit.compute.contents import Plain, architecture_digest, content_digest
from tangentkit.core.errors import ModelError
from tangentkit.core.fingerprints import fingerprint
from tangentkit.core.functions import ModelFunction

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
        return {"architecture": architecture_digest(value), "values": fingerprint(_sorted(state))}
    if isinstance(value, (type, FunctionType, BuiltinFunctionType, MethodType, functools.partial)):
        return _of_code(value)
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
        "architecture": architecture_digest(function.module),
        "parameters": fingerprint(_sorted(function.params)),
        "selection": list(function.params),
        "other parameters": fingerprint(_sorted(function.frozen)),
        "buffers": fingerprint(_sorted(function.buffers)),
        "modes": fingerprint(_sorted(function.modes)),
        "forward": identify(function.forward, f"{path}.forward"),
    }


def _sorted(state: Mapping[str, Any]) -> list:
    return [sorted(state), [state[name] for name in sorted(state)]]


def _of_code(value: Any) -> Plain:
    if isinstance(value, functools.partial):
        return {"name": "partial", "code": content_digest(value)}
    # A function that is bound to nothing, of a package whose version is part of every identity, is its name.
    bound = getattr(value, "__self__", None), getattr(value, "__closure__", None)
    if is_ours(value) and (
        isinstance(value, type) or all(isinstance(b, (NoneType, ModuleType)) for b in bound)
    ):
        return name_of(value)
    return {"name": name_of(value), "code": content_digest(value)}
