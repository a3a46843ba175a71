"""Whether a model keeps samples apart, operation by operation.

A router sorts samples by expert and back again, hands them out by products with one-hot matrices, or drops those
that come late. Row i of a layer is then sample i in one batch and another in the next, or none, while shapes and
graph stay the same: what was verified on the first samples says nothing of later batches. So every operation of a
forward pass is asked whether it treats samples apart, that is, whether it commutes with maps m of samples to samples:

    op(x_m(1), ..., x_m(n)) = y_m(1), ..., y_m(n)    where y = op(x_1, ..., x_n)

A map that neither keeps all samples nor their order shows sums, orders, shifts and picks along samples for what they
are. Operations are run on what they were given; samples that happen to be alike there are made to differ. What all
samples have in common (a maximum, a count) may not come back to them, nor be read as a number. It may answer yes or
no, as where a model asks whether anything is padded at all; but another answer means a path that was not followed.
Numbers of samples that come from none of them may be others in a batch of another size. An `arange` over the samples
may pick each sample's own row; a batch in which it is used otherwise, or changed, follows another path, too.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import EllipsisType
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from tangentkit.core.batches import Batch, take, tensors
from tangentkit.core.model.functions import ModelFunction
from tangentkit.core.seeds import Key
from tangentkit.empirical.reading.graph import MixedSamplesError, SampleAxis, sample_axis, sample_orders

SIZES = (2, 3)
"""Samples of two passes: what grows from one to the other is counted by samples."""
MAP = (1, 1, 0)
"""Which sample comes to stand in each place: one is lost, one comes twice, one moves."""
ROUNDINGS = 1000
"""Units of rounding by which an operation may differ for a sample that stands elsewhere."""
BLANK = frozenset(
    {f"{kind}_like" for kind in ("empty", "zeros", "ones", "full")}
    | {f"new_{kind}" for kind in ("empty", "empty_strided", "zeros", "ones", "full")}
)
"""Operations that take the kind of a tensor, not what is in it."""
SAME_NUMBERS = frozenset({"view", "_unsafe_view", "reshape", "alias", "unsqueeze", "expand", "_to_copy"})
"""Operations that leave the numbers of samples as they are, each in its place."""
READ = (Tensor.tolist, Tensor.numpy, Tensor.__array__, Tensor.__dlpack__)
"""Ways out of torch, beside numbers one by one."""

Result = TypeVar("Result")
Shapes = list[tuple[int, ...]]
Step = tuple[object, Shapes, Shapes]
"""An operation, and the shapes of what it takes and gives."""
Place = SampleAxis | None | EllipsisType
"""Where samples stand in a tensor; None if they are mixed in it, ... if it has nothing of them."""


@dataclass(frozen=True)
class SampleMoves:
    """What a model does with the samples of a batch."""

    mixes: bool
    """Whether some operation may move, pick, order or add up samples."""
    path: tuple[bool, ...]
    """The path of the pass through branches of the model's own, see `with_path`."""


def watch_samples(function: ModelFunction, batch: Batch) -> SampleMoves:
    """Follows three samples through a model."""
    parameters = function.leaves()
    fewer, log = take(batch, slice(0, SIZES[0])), _Log()
    watch = _Watch(log.steps, batch)
    try:
        with torch.enable_grad(), log, _Reads(watch):
            less = function(parameters, fewer)
        with torch.enable_grad(), watch, _Reads(watch):
            outputs = function(parameters, batch)
        mixed = watch.mixed or watch.place(outputs, tuple(less.shape)) is None
    except Exception:
        mixed = True  # it refuses to be watched, so that every batch is looked at
    return SampleMoves(mixed, tuple(watch.path))


def with_path(work: Callable[[], Result], samples: int) -> tuple[Result, tuple[bool, ...]]:
    """Passes samples through a model, and notes which path through its branches they take.

    Args:
        work: the pass.
        samples: how many pass.

    Returns:
        What the work gave; and the path, which is, in their order, the answers to the model's questions of yes or
        no, a yes for each use of the samples' numbers 0, 1, ..., and a no for each change of these.
    """
    with _Path(samples) as taken:
        return work(), tuple(taken.path)


class _Mode(TorchDispatchMode):
    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise torch imports its compiler, which takes a second


class _Numbers:
    """The tensors of a pass that number its samples 0, 1, ..., n - 1, as `arange` made them."""

    def __init__(self, n: int):
        self._order = torch.arange(n)
        self._found: dict[tuple, torch.UntypedStorage] = {}
        """Names, and the memory of each, held lest another tensor takes it."""

    def __contains__(self, tensor: Tensor) -> bool:
        return _name(tensor) in self._found

    def follow(self, func: Any, given: list[Tensor], out: Any) -> list[bool]:
        """Follows the numbers through an operation: [True] if it uses them, [False] if it changes them, or []."""
        name = func._schema.name.split("::")[-1]
        used = any(leaf in self for leaf in given)
        if (name == "arange" and torch.equal(out.cpu(), self._order)) or (used and name in SAME_NUMBERS):
            self._found[_name(out)] = out.untyped_storage()
            return []
        if not used:
            return []
        written = {_memory(leaf) for leaf in tensors(out)} if func._schema.is_mutable else set()
        left = {name: memory for name, memory in self._found.items() if memory.data_ptr() not in written}
        changed, self._found = len(left) < len(self._found), left
        return [not changed]


class _Path(_Mode):
    """Notes every yes and no, and what becomes of the numbers of samples."""

    def __init__(self, samples: int) -> None:
        super().__init__()
        self.path: list[bool] = []
        self._numbers = _Numbers(samples)

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if _is_question(func, args):
            self.path.append(out)
        self.path += self._numbers.follow(func, tensors((args, kwargs)), out)
        return out


class _Log(_Mode):
    """Writes down the operations of a pass."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Step] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        taken = _shapes((args, kwargs))
        out = func(*args, **(kwargs or {}))
        self.steps.append((func, taken, _shapes(out)))
        return out


class _Watch(_Mode):
    """Follows samples through the operations of a pass, until what is mixed of them comes back to them."""

    def __init__(self, steps: list[Step], batch: Batch):
        super().__init__()
        self.mixed = False
        self.path: list[bool] = []
        self._steps, self._next = steps, 0
        self._places: dict[tuple, Place] = {_name(leaf): SampleAxis(0) for leaf in tensors(batch)}
        self._written: dict[int, bool] = {}
        """Memory that has nothing of samples but what was written there, and whether that is mixed."""
        self._numbers = _Numbers(SIZES[1])
        self._kept: list[object] = []

    def holds(self, tensor: Tensor) -> bool:
        """Whether a tensor of the pass has something of samples."""
        return _name(tensor) in self._places or _memory(tensor) in self._written

    def place(self, tensor: Tensor, smaller: tuple[int, ...]) -> Place:
        """Where samples stand in a tensor of the pass, whose shape is smaller for fewer samples."""
        if _name(tensor) in self._places or _memory(tensor) not in self._written:
            return self._places.get(_name(tensor), ...)
        if self._written[_memory(tensor)] or smaller == tuple(tensor.shape):
            return None
        return _orders(smaller, tensor)[0]

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs, places = kwargs or {}, []
        try:
            places = [] if self.mixed else self._after(func, args, kwargs)
        except Exception:
            self.mixed = True  # whatever an operation stumbles over, it was not shown to keep samples apart
        out = func(*args, **kwargs)
        if _is_question(func, args):
            self.path.append(out)
        for leaf, place in zip(tensors(out), places, strict=False):
            if place is ...:
                continue
            self._places[_name(leaf)] = place
            if func._schema.is_mutable:
                self._written[_memory(leaf)] = place is None
        self.path += self._numbers.follow(func, tensors((args, kwargs)), out)
        self._kept += [
            leaf.untyped_storage() for leaf in tensors(out)
        ]  # lest another tensor takes its memory
        return out

    def _after(self, func: Any, args: tuple, kwargs: dict) -> list[Place]:
        """Where samples will stand in the tensors that an operation gives."""
        logged, taken, shapes = self._steps[self._next]
        self._next += 1
        given = [self.place(*pair) for pair in zip(tensors((args, kwargs)), taken, strict=True)]
        if logged is not func:
            raise _MixedError
        if all(place is ... for place in given) or func._schema.name.split("::")[-1] in BLANK:
            return [...] * len(shapes)
        if not shapes and not _is_question(func, args):
            raise _MixedError  # read as a number: what comes of it cannot be followed
        if not any(isinstance(place, SampleAxis) for place in given):
            return [None] * len(shapes)
        if None in given or any(map(self._counts, tensors((args, kwargs)), taken, given)):
            raise _MixedError
        return _measured(func, (args, kwargs), given, shapes)

    def _counts(self, tensor: Tensor, smaller: tuple[int, ...], place: Place) -> bool:
        """Whether a tensor numbers samples in a way of the model's own: whole numbers that come from none of them."""
        whole = not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)
        grows = smaller != tuple(tensor.shape)
        return place is ... and whole and grows and tensor not in self._numbers


class _MixedError(Exception):
    """What is mixed of samples comes back to them, or is read as a number."""


class _Reads(TorchFunctionMode):
    """Sees samples leave torch."""

    def __init__(self, watch: _Watch):
        super().__init__()
        self.watch = watch

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func in READ and self.watch.holds(args[0]):
            self.watch.mixed = True
        return func(*args, **(kwargs or {}))


def _is_question(func: Any, args: tuple) -> bool:
    return func is torch.ops.aten._local_scalar_dense.default and args[0].dtype == torch.bool


def _measured(func: Any, given: tuple, places: list[Place], shapes: Shapes) -> list[Place]:
    """Where samples stand in what an operation on them gives: from a run, and one with a map of samples."""

    def run(change: Callable[[Tensor, SampleAxis], Tensor]) -> list[Tensor]:
        waiting = iter(places)

        def own(leaf: Tensor) -> Tensor:
            place = next(waiting)
            if isinstance(place, SampleAxis):
                return change(_varied(leaf, place), place)
            return leaf.clone() if func._schema.is_mutable else leaf

        args, kwargs = pytree.tree_map_only(Tensor, own, given)
        return tensors(func(*args, **kwargs))

    with torch.random.fork_rng(enabled=torch.Tag.nondeterministic_seeded in func.tags):
        runs = run(lambda leaf, _: leaf), run(_mapped)
    return [_found(plain, mapped, shape) for plain, mapped, shape in zip(*runs, shapes, strict=True)]


def _found(plain: Tensor, mapped: Tensor, smaller: tuple[int, ...]) -> Place:
    """Where samples stand in what an operation gave, of the samples as they are and of a map of them."""
    if plain.numel() == 0:
        return ...
    fitting = [place for place in _orders(smaller, plain) if _same(mapped, _mapped(plain, place))]
    return fitting[0] if fitting else None


def _orders(smaller: tuple[int, ...], tensor: Tensor) -> list[SampleAxis]:
    """How samples may stand in a tensor, by its growth."""
    try:
        return sample_orders(*sample_axis(smaller, tensor.shape, SIZES))
    except MixedSamplesError:
        return []


def _shapes(tree: object) -> Shapes:
    return [tuple(leaf.shape) for leaf in tensors(tree)]


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _name(tensor: Tensor) -> tuple:
    """Where a tensor lies in memory: views of one storage are tensors of their own."""
    return _memory(tensor), tensor.storage_offset(), tensor.shape, tensor.stride()


def _mapped(tensor: Tensor, place: SampleAxis) -> Tensor:
    """The tensor with other samples in the places of its own, in the same order of memory."""
    apart = tensor.unflatten(place.axis, (place.before, len(MAP), place.after))
    return torch.empty_like(tensor).copy_(
        apart.index_select(place.axis + 1, _rows(tensor.device)).reshape(tensor.shape)
    )


@cache
def _rows(device: torch.device) -> Tensor:
    """The map of samples; to make it takes longer than to apply it."""
    return torch.tensor(MAP, device=device)


def _varied(tensor: Tensor, place: SampleAxis) -> Tensor:
    """A copy of the tensor; if its samples are alike, one in which they differ and that fits as well."""
    copy = torch.empty_like(tensor).copy_(tensor)
    if tensor.numel() == 0 or not torch.equal(tensor, _mapped(tensor, place)):
        return copy
    chance = torch.rand(tensor.shape, generator=Key(0).fold("varied").torch()).to(tensor.device)
    if tensor.dtype == torch.bool:
        return copy.copy_(chance < 0.5)
    if tensor.is_floating_point() or tensor.is_complex():
        return copy.add_(chance.to(tensor.dtype))
    return copy.copy_(chance * (tensor.max() + 1)) if tensor.min() >= 0 else copy


def _same(a: Tensor, b: Tensor) -> bool:
    if torch.equal(a, b):
        return True  # to the last bit, as of most operations
    if a.shape != b.shape or not (a.is_floating_point() or a.is_complex()):
        return False
    rounding, finite = ROUNDINGS * torch.finfo(a.dtype).eps, b[b.isfinite()]
    scale = float(finite.abs().max()) if len(finite) else 0.0
    return torch.allclose(a, b, rtol=rounding, atol=rounding * scale, equal_nan=True)
