"""What a kernel is, as far as it can be shown: names -> numbers, texts and fingerprints that a file can hold.

What a model does cannot be read off its code; probe values show it (`compute/probes.py`). Classes, functions and
objects of which nothing else is known are here by their plain names, for information: a name is no difference.
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tangentkit.core.files.fingerprints import fingerprint
from tangentkit.core.model.functions import ModelFunction

Plain = Any
"""None, a truth value, a number, a text, or lists and dicts of these: what JSON can hold."""

NAME = "is"
"""The key of the plain name of a class or function."""
TENSORS = {"parameters": "weights", "buffers": "buffers", "constants": "constants"}
"""Keys below which each tensor has its fingerprint, and what they are called."""
NOTHING = "nothing"
"""What stands for a value that is not there."""
SHOWN = 40
"""Characters of a value that an error shows."""


def identify(value: Any) -> Plain:
    """A value in plain words; tensors become fingerprints, and what cannot be described becomes its name.

    Args:
        value: numbers, texts, tensors, modules, dataclasses, containers of these, or any object with a method
            `identity()`.

    Example:
        >>> identify({"outputs": "trace", "dtype": torch.float32, "seeds": (0, 1), "rule": abs})
        {'outputs': 'trace', 'dtype': 'torch.float32', 'seeds': [0, 1], 'rule': {'is': 'abs'}}
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if isinstance(value, (torch.dtype, torch.device, np.dtype)):
        return str(value)
    if isinstance(value, (Tensor, np.ndarray)):
        return fingerprint(value)
    if isinstance(value, ModelFunction):
        return _of_function(value)
    if isinstance(value, nn.Module):
        parameters, buffers = (
            fingerprints(named) for named in (value.named_parameters(), value.named_buffers())
        )
        return {NAME: _name(value), "parameters": parameters, "buffers": buffers}
    if callable(getattr(type(value), "identity", None)):
        return value.identity()
    if isinstance(value, Mapping):
        return {str(key): identify(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [identify(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((identify(item) for item in value), key=repr)
    known = dataclasses.is_dataclass(value) and not isinstance(value, type)
    fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)} if known else {}
    return {NAME: _name(value), **identify(fields)}


def fingerprints(named: Iterable[tuple[str, Tensor]]) -> dict[str, str]:
    """The fingerprints of the tensors, as name -> fingerprint."""
    return {name: fingerprint(value) for name, value in named}


def differences(stored: Plain, now: Plain, path: tuple[str, ...] = ()) -> Iterator[str]:
    """What differs between two identities, in words; other names alone are no difference.

    Example:
        >>> list(differences({"kernel": {"seed": 0, "dim": 8}}, {"kernel": {"seed": 1, "dim": 8}}))
        ['kernel.seed was 0, is 1']
        >>> list(differences({"parameters": {"a": "1", "b": "2"}}, {"parameters": {"a": "1", "b": "3"}}))
        ['the weights differ (1 of 2 parameters, first: b)']
    """
    if _unnamed(stored) == _unnamed(now):
        return
    if path and path[-1] in TENSORS and isinstance(stored, dict) and isinstance(now, dict):
        yield _tensors_differ(stored, now, path[-1], ".".join(path[:-1]) if len(path) > 3 else "")
    elif len(path) == 2 and path[0] == "data":
        yield f"the samples differ: {_samples_differ(stored, now, path[1])}"
    elif not isinstance(stored, dict) or not isinstance(now, dict):
        yield f"{'.'.join(path)} was {_shown(stored)}, is {_shown(now)}"
    elif stored.get(NAME) != now.get(NAME) and set(stored) != set(now):
        yield f"{'.'.join(path)} was a {stored.get(NAME)}, is a {now.get(NAME)}"
    else:
        for name in [*now, *(name for name in stored if name not in now)]:
            yield from differences(stored.get(name, NOTHING), now.get(name, NOTHING), (*path, name))


def renamed(stored: Plain, now: Plain, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Where classes and functions have other names.

    Example:
        >>> list(renamed({"forward": {"is": "call"}}, {"forward": {"is": "doubled"}}))
        ['forward was call, is doubled']
    """
    if not isinstance(stored, dict) or not isinstance(now, dict):
        return
    for name in (name for name in now if name in stored):
        if name == NAME and stored[name] != now[name]:
            yield f"{'.'.join(path)} was {stored[name]}, is {now[name]}"
        yield from renamed(stored[name], now[name], (*path, name))


def _of_function(function: ModelFunction) -> Plain:
    every = function.params | function.frozen
    return {
        NAME: _name(function.module),
        "parameters": fingerprints(every.items()),
        "params": "all" if not function.frozen else sorted(function.params),
        "buffers": fingerprints(function.buffers.items()),
        "in training mode": [name for name, training in function.modes.items() if training],
        "forward": identify(function.forward),
    }


def _name(value: Any) -> str:
    """The name of a class or function, or of the class of an object, without the module that it stands in."""
    return str(getattr(value, "__qualname__", None) or type(value).__qualname__)


def _unnamed(value: Plain) -> Plain:
    if isinstance(value, dict):
        return {key: _unnamed(item) for key, item in value.items() if key != NAME}
    return [_unnamed(item) for item in value] if isinstance(value, list) else value


def _tensors_differ(stored: dict[str, str], now: dict[str, str], kind: str, place: str) -> str:
    names = [*now, *(name for name in stored if name not in now)]
    others = [name for name in names if stored.get(name, NOTHING) != now.get(name, NOTHING)]
    first = others[0] + (" (not in the store)" if others[0] not in stored else "")
    first += " (only in the store)" if others[0] not in now else ""
    of = place and f" of {place}"
    return f"the {TENSORS[kind]}{of} differ ({len(others)} of {len(names)} {kind}, first: {first})"


def _samples_differ(stored: Plain, now: Plain, side: str) -> str:
    if not isinstance(stored, dict) or not isinstance(now, dict):
        return f"the store has {'no' if stored == NOTHING else 'a'} {side}"
    was, present = (f"{each.get('samples')} of {each.get('form')}" for each in (stored, now))
    if was != present:
        return f"{side} was {was}, is {present}"
    return (
        f"{side} has other values" if stored.get("content") != now["content"] else f"{side} has another order"
    )


def _shown(value: Plain) -> str:
    text = str(value)
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."
