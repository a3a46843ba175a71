"""What a value holds, read to the end: numbers, tensors, code, the objects below, in plain lists for a fingerprint.

A model's numbers depend on more than its parameters: on options that its printed form does not show, on functions it
was given, on constants and helpers of the file it is written in. All of this is read here. Code of installed packages
is read without what it refers to. What a model itself changes while it is evaluated (counters, caches) is left out;
of things that nothing can look into (locks, open files) the type counts.
"""

import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tangentkit.compute.code import (
    closed_over,
    evaluation,
    globals_of,
    is_installed,
    is_ours,
    name_of,
    outline,
    without_state,
)
from tangentkit.core.fingerprints import fingerprint

Plain = Any
"""None, a truth value, a number, a text, or lists and dicts of these: what JSON can hold."""

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
OF_EVERY_MODULE = frozenset(vars(nn.Module()))
SIMPLE = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size, np.dtype)


def content_digest(value: Any) -> str:
    """The fingerprint of all that a value holds.

    Example:
        >>> one, other = (lambda x: x + 1), (lambda x: x + 2)
        >>> content_digest([one, {"a": 1}]) == content_digest([other, {"a": 1}])
        False
    """
    return fingerprint(repr(Reader().read(value)))


def architecture_digest(module: nn.Module) -> str:
    """The fingerprint of a module without the values of its parameters and buffers."""
    return fingerprint(repr(Reader().architecture(module)))


class Reader:
    """Reads values; whatever has parts becomes a digest, so that an object may stand in many places."""

    def __init__(self) -> None:
        self._read: dict[int, tuple[Plain, object]] = {}
        """Id -> what was read, and the object, held so that no other comes to have its id."""
        self._around: list[int] = []
        """Ids of the objects that are being read, from the outermost inwards."""

    def read(self, value: Any) -> Plain:
        """All that a value holds."""
        if isinstance(value, SIMPLE):
            return [type(value).__name__, repr(value)]
        if isinstance(value, ModuleType):
            return value.__name__
        if id(value) in self._read:
            return self._read[id(value)][0]
        if id(value) in self._around:
            return f"{self._around[::-1].index(id(value))} above"
        self._around.append(id(value))
        digest = fingerprint(repr(self._parts(value)))
        self._around.pop()
        self._read[id(value)] = digest, value
        return digest

    def architecture(self, module: nn.Module) -> Plain:
        """Classes, options and hooks of a module and of all below it."""
        # Wherever else they stand, they are told by their names; of parameters the snapshot has the values.
        for member in (*module.named_modules(), *module.named_parameters(), *module.named_buffers()):
            self._read[id(member[1])] = f"member {member[0]}", member[1]
        return [
            [name, self.read(type(child)), *self._options(child)] for name, child in module.named_modules()
        ]

    def _options(self, module: nn.Module) -> Plain:
        """All attributes, and hooks; of modules of torch's own those that a caller can set: values and functions."""
        options = {name: value for name, value in vars(module).items() if name not in OF_EVERY_MODULE}
        options = without_state(options, evaluation(type(module)))
        if is_ours(type(module)):
            options = {name: value for name, value in options.items() if _is_plain(value)}
        hooks = [self.read(hook) for name in HOOKS for hook in vars(module)[name].values()]
        return [[[name, self.read(options[name])] for name in sorted(options)], hooks]

    def _parts(self, value: Any) -> Plain:
        for kind, how in self._ways.items():
            if isinstance(value, kind):
                return [type(value).__name__, how(self, value)]
        return self._object(value)

    def _module(self, module: nn.Module) -> Plain:
        state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        return [self.architecture(module), fingerprint([sorted(state), [state[n] for n in sorted(state)]])]

    def _class(self, cls: type) -> Plain:
        if is_ours(cls):
            return name_of(cls)
        members = {
            name: value
            for name, value in vars(cls).items()
            if isinstance(value, FunctionType) or not (name.startswith("__") or name == "_abc_impl")
        }
        if is_installed(sys.modules.get(cls.__module__)):
            members = {name: value for name, value in members.items() if isinstance(value, FunctionType)}
        members = without_state(members, evaluation(cls))
        return [
            cls.__qualname__,
            [self.read(base) for base in cls.__bases__],
            [[name, self.read(members[name])] for name in sorted(members)],
        ]

    def _function(self, function: FunctionType) -> Plain:
        """Code, defaults, what it closes over; and if it is the user's, the globals that it names."""
        named = closed_over(function) | ({} if is_installed(function.__code__) else globals_of(function))
        named = without_state(named, [function])
        return [
            outline(function.__code__),
            self.read(function.__defaults__),
            self.read(function.__kwdefaults__),
            [[name, self.read(named[name])] for name in sorted(named)],
        ]

    def _pairs(self, mapping: Mapping) -> Plain:
        return [[self.read(key), self.read(value)] for key, value in mapping.items()]

    def _object(self, value: Any) -> Plain:
        """An object by its parts, as if to pickle it; nothing is ever made from them."""
        try:
            reduced = value.__reduce_ex__(4)
        except Exception:  # whatever an object of anybody's raises
            return ["opaque", self.read(type(value))]
        if isinstance(reduced, str):
            return [self.read(type(value)), reduced]
        plain = [list(part) if isinstance(part, Iterator) else part for part in reduced]
        return [self.read(part) for part in plain]

    _ways: dict[Any, Callable[["Reader", Any], Plain]] = {  # noqa: RUF012 - never changed
        type: _class,
        FunctionType: _function,
        # Of functions in C nothing but the name can be read, and what they are bound to.
        BuiltinFunctionType: lambda self, f: [f.__qualname__, self.read(f.__self__)],
        MethodType: lambda self, f: [self.read(f.__self__), self.read(f.__func__)],
        functools.partial: lambda self, f: [self.read(f.func), self.read(f.args), self.read(f.keywords)],
        (staticmethod, classmethod): lambda self, f: self.read(f.__func__),
        property: lambda self, f: self.read(f.fget),
        nn.Module: _module,
        (Tensor, np.ndarray): lambda self, value: fingerprint(value),  # noqa: ARG005
        Mapping: _pairs,
        (list, tuple): lambda self, values: [self.read(value) for value in values],
        # Sets have an order of their own, another in each process.
        (set, frozenset): lambda self, values: sorted(map(content_digest, values)),  # noqa: ARG005
    }


def _is_plain(value: object) -> bool:
    """Whether a value consists of numbers, texts and functions."""
    if isinstance(value, (list, tuple, dict)):
        return all(map(_is_plain, value.values() if isinstance(value, dict) else value))
    return isinstance(value, (*SIMPLE, FunctionType, BuiltinFunctionType, functools.partial, type))
