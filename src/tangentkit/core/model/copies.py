"""A module of one's own: the code, options, modes and hooks of the user's, and none of its values.

What a call changes for a while (parameters, buffers, modes) is then changed in the copy, so that other threads go on
using the user's module as it is; and what happens to the module later, to a plain attribute, say, does not reach the
copy.
"""

import copy
import dis
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

Place = tuple[Any, str]
"""(object, name of an attribute of it)."""
ATOMS = (bool, int, float, complex, str, bytes, type(None), type, ModuleType, BuiltinFunctionType, Tensor)
"""What holds nothing that matters here."""


class CannotCopyError(Exception):
    """A module has no copy that would compute the same without it; the text says why."""


def private_copy(module: nn.Module, forward: Callable) -> tuple[nn.Module, Callable]:
    """A copy of a module, and the rule that calls it.

    Parameters and buffers of the copy have shapes but no memory: values are put in for the time of a call. What is
    one tensor in the module (tied weights) is one in the copy. Other tensors are copied, cut off from graphs.
    Functions that close over the module or a part of it (hooks, patched methods, the rule) close over the copy
    instead. What nothing can copy and holds nothing of the module (locks, open files, generators) is shared.

    Raises:
        CannotCopyError: the module refuses to be copied, or its code refers to the module itself by a global name.
    """
    own = {id(part) for part in (*module.modules(), *module.parameters(), *module.buffers())}
    memo: dict[int, Any] = {id(p): _hollow(p) for p in (*module.parameters(), *module.buffers())}
    held = list(_reachable((module, forward), _parts))
    closures = [f for f in held if isinstance(f, FunctionType) and _reaches(_closed_over(f), own)]
    memo |= {id(thing): thing for thing in held if _is_opaque(thing)}
    memo |= {id(f): _unfilled(f, memo) for f in closures}
    try:
        with torch.inference_mode(False), _CutOff():
            code = copy.deepcopy(module, memo)
            for f in closures:
                _fill(memo[id(f)], f, memo)
            rule = copy.deepcopy(forward, memo) if _reaches([forward], own) else forward
    except Exception as error:
        raise CannotCopyError(f"{type(error).__name__}: {error}") from error
    if _outline(code) != _outline(module):
        raise CannotCopyError("its copy has other parameters, buffers or modules")
    for thing in _reachable((code, rule), _parts_and_globals):
        if id(thing) in own:
            raise CannotCopyError(
                f"its code, a hook or forward= refers to the {type(thing).__name__} itself, by a global name say"
            )
    return code, rule


def named_tensors(module: nn.Module, forward: Callable) -> list[str]:
    """Parameters and buffers that code of a module, or the rule that calls it, has as global names of its file."""
    names = {id(tensor): name for name, tensor in (*module.named_parameters(), *module.named_buffers())}
    functions = (f for f in _reachable((module, forward), _parts_and_globals) if isinstance(f, FunctionType))
    return [names[id(value)] for f in functions for value in _named(f) if id(value) in names]


def aliases(module: nn.Module, forward: Callable) -> list[Place]:
    """Where parameters or buffers stand beside their places in a module: in lists, closures, objects of one's own."""
    tensors = {id(tensor) for tensor in (*module.parameters(), *module.buffers())}
    found = []
    for thing in _reachable((module, forward), _parts):
        if isinstance(thing, FunctionType):
            defaults = [(thing, name, getattr(thing, name)) for name in ("__defaults__", "__kwdefaults__")]
            places = [*defaults, *((cell, "cell_contents", value) for cell, value in _cells(thing))]
        elif isinstance(thing, (*ATOMS, torch.jit.ScriptModule, MethodType, partial)):
            continue
        else:
            places = [(thing, name, value) for name, value in getattr(thing, "__dict__", {}).items()]
        found += [
            (holder, name)
            for holder, name, value in places
            # Those that torch's own modules keep up to date; of dicts and tuples, the attribute is the place.
            if name not in ("_parameters", "_buffers", "_modules", "_flat_weights")
            and any(id(leaf) in tensors for leaf in pytree.tree_leaves(value))
        ]
    return found


class _CutOff(TorchFunctionMode):
    """Lets deepcopy take tensors that hang on a graph, are sparse, or were made in inference mode."""

    def __init__(self) -> None:
        super().__init__()
        self._alive: list[Tensor] = []  # their ids are in the memo

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func is not Tensor.__deepcopy__:
            return func(*args, **(kwargs or {}))
        tensor, memo = args
        if id(tensor) not in memo:
            bare = tensor.detach()
            self._alive.append(bare)
            plain = bare.layout is torch.strided and not bare.is_nested
            made = func(bare, memo) if plain else bare.clone()
            memo[id(tensor)] = made.requires_grad_(tensor.requires_grad and tensor.is_leaf)
        return memo[id(tensor)]


def _hollow(tensor: Tensor) -> Tensor:
    with torch.inference_mode(False):
        empty = torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
    return nn.Parameter(empty, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else empty


def _outline(module: nn.Module) -> list:
    state = (*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False))
    return [*dict(module.named_modules()), *((name, tensor.shape, tensor.dtype) for name, tensor in state)]


# -- what a thing holds ----------------------------------------------------------------------------------------------


def _reachable(start: Iterable, parts: Callable[[Any], Iterable]) -> Iterator[Any]:
    """All that can be reached from some things, each once, atoms left out."""
    waiting, seen = deque(start), set()
    while waiting:
        thing = waiting.popleft()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        yield thing
        waiting.extend(parts(thing))


def _reaches(start: Iterable, own: set[int]) -> bool:
    return any(id(thing) in own for thing in _reachable(start, _parts))


def _parts(thing: Any) -> Iterable:
    """What a thing holds: attributes, entries, what it closes over or is bound to."""
    if isinstance(thing, (*ATOMS, torch.jit.ScriptModule)):
        return ()
    if isinstance(thing, FunctionType):
        return [*_closed_over(thing), *vars(thing).values()]
    if isinstance(thing, MethodType):
        return [thing.__self__, thing.__func__]
    if isinstance(thing, partial):
        return [thing.func, *thing.args, *thing.keywords.values()]
    held = list(getattr(thing, "__dict__", {}).values())
    if isinstance(thing, dict):
        held += [*thing.keys(), *thing.values()]
    elif isinstance(thing, (list, tuple, set, frozenset, deque)):
        held += thing
    return held


def _parts_and_globals(thing: Any) -> Iterable:
    """The same, with what the code of functions and of modules' classes names of their files.

    A module that is there is not made again: what `__init__` names does not count.
    """
    found = list(_parts(thing))
    if isinstance(thing, FunctionType):
        found += _named(thing)
    if isinstance(thing, nn.Module):
        classes = [cls for cls in type(thing).__mro__ if not cls.__module__.startswith("torch.")]
        methods = [f for cls in classes for name, f in vars(cls).items() if name != "__init__"]
        found += [f for f in methods if isinstance(f, FunctionType)]
    return found


def _named(function: FunctionType) -> Iterator[Any]:
    if (function.__module__ or "").startswith("torch."):
        return
    waiting: list[CodeType] = [function.__code__]
    while waiting:
        code = waiting.pop()
        waiting += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        held = {name: function.__globals__.get(name) for name in code.co_names}
        if held := {
            name: it for name, it in held.items() if isinstance(it, (nn.Module, Tensor, FunctionType))
        }:
            # `self.net` has a name, too, which is not that of a global `net`.
            loaded = _loaded(code)
            yield from (value for name, value in held.items() if name in loaded)


@lru_cache(maxsize=4096)
def _loaded(code: CodeType) -> frozenset[str]:
    """The global names that some code loads. Code never changes, and reading it is slow."""
    return frozenset(i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME"))


def _cells(function: FunctionType) -> Iterator[tuple[CellType, Any]]:
    for cell in function.__closure__ or ():
        try:
            yield cell, cell.cell_contents
        except ValueError:  # not filled yet
            continue


def _closed_over(function: FunctionType) -> list[Any]:
    defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    return [*(value for _, value in _cells(function)), *defaults]


def _is_opaque(thing: Any) -> bool:
    """Whether a thing is of a kind that cannot be copied: locks, files, generators, Python's modules."""
    if isinstance(thing, ModuleType):
        return True
    if isinstance(thing, (*ATOMS, nn.Module, FunctionType)) or hasattr(thing, "__deepcopy__"):
        return False
    if type(thing) in copy._deepcopy_dispatch:  # pyright: ignore[reportAttributeAccessIssue]
        return False
    try:
        thing.__reduce_ex__(4)
    except Exception:  # whatever an object of anybody's raises
        return True
    return False


# -- functions that close over the module ----------------------------------------------------------------------------


def _unfilled(function: FunctionType, memo: dict[int, Any]) -> FunctionType:
    """The same code with cells of its own, shared with the copies of other functions as the cells were."""
    cells = tuple(memo.setdefault(id(cell), CellType()) for cell in function.__closure__ or ())
    return FunctionType(function.__code__, function.__globals__, function.__name__, None, cells)


def _fill(made: FunctionType, function: FunctionType, memo: dict[int, Any]) -> None:
    made.__defaults__ = copy.deepcopy(function.__defaults__, memo)
    made.__kwdefaults__ = copy.deepcopy(function.__kwdefaults__, memo)
    made.__qualname__, made.__module__, made.__doc__ = (
        function.__qualname__,
        function.__module__,
        function.__doc__,
    )
    vars(made).update({name: copy.deepcopy(value, memo) for name, value in vars(function).items()})
    for cell, value in _cells(function):
        memo[id(cell)].cell_contents = copy.deepcopy(value, memo)
