"""What a kernel is: a function of two batches that gives a matrix, and how kernels compose."""

import abc
import functools
from collections.abc import Callable
from dataclasses import dataclass
from inspect import isfunction
from types import NoneType
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

from tangentkit.compute.identity import NAME, Plain, identify
from tangentkit.compute.terms import (
    Cosine,
    Direct,
    FeatureProduct,
    HasFeatures,
    Mapped,
    Row,
    Sum,
    Term,
    inverse_roots,
    part_name,
)
from tangentkit.core.batches import Batch
from tangentkit.core.errors import InputError, TangentkitError, briefly
from tangentkit.core.memory import parse_bytes
from tangentkit.core.model.functions import ModelFunction
from tangentkit.linalg.operators.symmetry import mirrored

P = ParamSpec("P")
T = TypeVar("T")


def explaining(method: Callable[P, T]) -> Callable[P, T]:
    """A method of kernels whose errors say what to do next, and come without the frames of what went on inside."""

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except TangentkitError:
            raise
        except Exception as error:
            kernel, *data = args
            found = kernel._refusal(error, *data)  # pyright: ignore[reportAttributeAccessIssue]
            if found is None:
                raise
        raise found

    return briefly(call)


class Kernel(abc.ABC):
    """A symmetric positive semi-definite function k(x, y) of samples.

    A subclass writes `__call__` and `diag`. Kernels add, scale, normalize and cast:
    `k1 + k2`, `2.0 * k`, `k.normalized()`, `k.to(torch.float64)`. They are immutable, so copies are the kernel
    itself.
    """

    memory: int | str | None = None
    """The bytes that the user gave it to work with; None leaves it open."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, method in list(vars(cls).items()):
            if isfunction(method) and (name == "__call__" or not name.startswith("_")):
                setattr(cls, name, explaining(method))

    @abc.abstractmethod
    def __call__(self, x: Batch, y: Batch | None = None) -> Tensor:
        """k(x_i, y_j) as (n, m); symmetric, and cheaper, where y is left out."""

    @abc.abstractmethod
    def diag(self, x: Batch) -> Tensor:
        """k(x_i, x_i) as (n,)."""

    def expects(self) -> tuple[torch.dtype, torch.device] | None:
        """The dtype and device that floating-point samples must have; None where the kernel takes any.

        Machines cast arrays and lists to it, which have the dtype of no model.
        """
        return None

    def row(self, x: Batch) -> Row:
        """y -> k(x, y), for many y in turn: a kernel may keep what x alone needs. Without y, k(x, x).

        Tiles of a Gram matrix that stand in one row ask for it.
        """
        return lambda y=None: self(x, y)

    def identity(self) -> dict[str, Plain]:
        """What the numbers depend on, in plain words: a stored Gram matrix says by it whose it is.

        By default all public attributes but `memory`; see `identify` for how they are described. What is not here is
        not lost: a store also compares values of the kernel.
        """
        own = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        return {
            NAME: type(self).__qualname__,
            **{name: identify(value) for name, value in own.items() if name != "memory"},
        }

    def operands(self) -> "tuple[Kernel, ...]":
        """The kernels that it is put together of: by default those among its attributes."""
        return tuple(value for value in vars(self).values() if isinstance(value, Kernel))

    def functions(self) -> tuple[ModelFunction, ...]:
        """The networks, at their snapshots, whose kernel it is: by default those of its operands."""
        return tuple(function for operand in self.operands() for function in operand.functions())

    def working_memory(self) -> int | None:
        """The least `memory` of the kernel and of what it is put together of, in bytes; None if all is open."""
        found = [None if self.memory is None else parse_bytes(self.memory)]
        found += [operand.working_memory() for operand in self.operands()]
        return min((size for size in found if size is not None), default=None)

    def growth(self, x: Batch, small: int, large: int) -> float:
        """How many times as much work a tile of `large` samples a side is as one of `small`, for samples like x.

        By default as many as it has times as many pairs; less where samples go through a model, once for a tile. What
        is put together of kernels grows as the slowest to grow of them.
        """
        found = (operand.growth(x, small, large) for operand in self.operands())
        return min(found, default=(large / small) ** 2)

    def within(self, memory: int) -> "Kernel":
        """The kernel with this working memory in bytes, wherever its `memory` was left open.

        Workers that share a machine ask for it.
        """
        operands = {
            name: value.within(memory) for name, value in vars(self).items() if isinstance(value, Kernel)
        }
        return self._replaced(**operands, **({"memory": memory} if self.memory is None else {}))

    def term(self, path: str = "") -> Term:
        """How tiles of its Gram matrix are put together; parts that tiles share are named after their place.

        Args:
            path: the place of this kernel in the one that it is an operand of.

        Example:
            >>> Linear = type("Linear", (Kernel,), {
            ...     "features": lambda self, x: x,
            ...     "__call__": lambda self, x, y=None: x @ (x if y is None else y).T,
            ...     "diag": lambda self, x: x.square().sum(1)})
            >>> [name for name, _ in (Linear().normalized() + Linear()).term().parts()]
            ['features-lb', 'scales-l', 'features-r']
        """
        if isinstance(self, HasFeatures):
            return FeatureProduct(self, part_name("features", path))
        return Direct(self)

    def normalized(self) -> "NormalizedKernel":
        """The cosine kernel k(x, y) / sqrt(k(x, x) k(y, y)); of a kernel with features, that of unit features."""
        return NormalizedFeatures(self) if isinstance(self, HasFeatures) else NormalizedKernel(self)

    def to(self, dtype: torch.dtype) -> "CastKernel":
        """The kernel with its values in another dtype; the computation itself stays in the model's."""
        return CastKernel(self, dtype)

    def __repr__(self) -> str:
        shown = {
            name: value
            for name, value in vars(self).items()
            if not name.startswith("_")
            and isinstance(value, (str, int, float, torch.dtype, NoneType, Kernel))
        }
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    def _replaced(self, **changes: Any) -> Any:
        """The kernel with some attributes replaced, all others shared."""
        twin = object.__new__(type(self))
        vars(twin).update(vars(self) | changes)
        return twin

    def _refusal(self, error: Exception, *data: Any) -> TangentkitError | None:  # noqa: ARG002
        """The error that says why a method could not do with its arguments, if that is known."""
        return None

    def __add__(self, other: "Kernel") -> "SumKernel":
        return SumKernel(self, other) if isinstance(other, Kernel) else NotImplemented

    def __mul__(self, factor: float) -> "ScaledKernel":
        return ScaledKernel(self, float(factor)) if isinstance(factor, (int, float)) else NotImplemented

    __rmul__ = __mul__

    def __copy__(self) -> "Kernel":
        return self

    def __deepcopy__(self, memo: dict) -> "Kernel":
        # scikit-learn's clone copies parameters deeply; that must not copy a network.
        return self


@dataclass(frozen=True, eq=False)
class SumKernel(Kernel):
    """k(x, y) + l(x, y)."""

    left: Kernel
    right: Kernel

    def __repr__(self) -> str:
        return f"{self.left!r} + {self.right!r}"

    def __call__(self, x: Batch, y: Batch | None = None) -> Tensor:
        """The sum of both.

        Raises:
            InputError: one is between outputs, the other is not.
        """
        left, right = self.left(x, y), self.right(x, y)
        if left.shape != right.shape:
            raise InputError(
                "kernels of different shapes do not add", expected=tuple(left.shape), got=tuple(right.shape)
            )
        return left + right

    def diag(self, x: Batch) -> Tensor:
        """The sum of both."""
        return self.left.diag(x) + self.right.diag(x)

    def expects(self) -> tuple[torch.dtype, torch.device] | None:
        """What one of them expects."""
        return self.left.expects() or self.right.expects()

    def term(self, path: str = "") -> Term:
        """The sum of both."""
        return Sum(self.left.term(path + "l"), self.right.term(path + "r"))


@dataclass(frozen=True, eq=False)
class ScaledKernel(Kernel):
    """factor * k(x, y), factor >= 0."""

    kernel: Kernel
    factor: float

    def __post_init__(self) -> None:
        if not 0 <= self.factor < float("inf"):
            raise InputError("bad factor of a kernel", expected="a finite number >= 0", got=self.factor)

    def __repr__(self) -> str:
        return f"{self.factor:g} * {_operand(self.kernel)}"

    def __call__(self, x: Batch, y: Batch | None = None) -> Tensor:
        """The scaled kernel."""
        return self.kernel(x, y) * self.factor

    def diag(self, x: Batch) -> Tensor:
        """The scaled diagonal."""
        return self.kernel.diag(x) * self.factor

    def expects(self) -> tuple[torch.dtype, torch.device] | None:
        """What the kernel expects."""
        return self.kernel.expects()

    def term(self, path: str = "") -> Term:
        """The kernel's term, multiplied."""
        return Mapped(self.kernel.term(path + "b"), lambda k: k * self.factor)


@dataclass(frozen=True, eq=False)
class CastKernel(Kernel):
    """k(x, y) in another dtype."""

    kernel: Kernel
    dtype: torch.dtype

    def __repr__(self) -> str:
        return f"{_operand(self.kernel)}.to({self.dtype})"

    def __call__(self, x: Batch, y: Batch | None = None) -> Tensor:
        """The values of the kernel, cast."""
        return self.kernel(x, y).to(self.dtype)

    def diag(self, x: Batch) -> Tensor:
        """The diagonal, cast."""
        return self.kernel.diag(x).to(self.dtype)

    def expects(self) -> tuple[torch.dtype, torch.device] | None:
        """What the kernel expects."""
        return self.kernel.expects()

    def term(self, path: str = "") -> Term:
        """The kernel's term, cast."""
        return Mapped(self.kernel.term(path + "b"), lambda k: k.to(self.dtype))


@dataclass(frozen=True, eq=False)
class NormalizedKernel(Kernel):
    """k(x, y) / sqrt(k(x, x) k(y, y))."""

    kernel: Kernel

    def __repr__(self) -> str:
        return f"{_operand(self.kernel)}.normalized()"

    def __call__(self, x: Batch, y: Batch | None = None) -> Tensor:
        """The cosine of every pair; the diagonal is 1."""
        k = self.kernel(x, y)
        # A symmetric kernel brings its own diagonal: another pass over the samples is not needed.
        dx = _diagonal(k) if y is None else self.kernel.diag(x)
        dy = dx if y is None else self.kernel.diag(y)
        half = dx.ndim
        sx, sy = (inverse_roots(d) for d in (dx, dy))
        cosines = k * sx.view(*dx.shape, *(1,) * half) * sy.view(*(1,) * half, *dy.shape)
        return mirrored(cosines) if y is None else cosines

    def diag(self, x: Batch) -> Tensor:
        """One for every sample.

        Raises:
            NumericalError: k(x, x) is zero for some.
        """
        return torch.ones_like(inverse_roots(self.kernel.diag(x)))

    def expects(self) -> tuple[torch.dtype, torch.device] | None:
        """What the kernel expects."""
        return self.kernel.expects()

    def term(self, path: str = "") -> Term:
        """The cosine, with the scales of all samples computed once."""
        return Cosine(self.kernel.term(path + "b"), part_name("scales", path))


class NormalizedFeatures(NormalizedKernel):
    """The cosine kernel of a kernel with features: the inner product of features of length 1."""

    def features(self, x: Batch) -> Tensor:
        """φ(x) / ‖φ(x)‖, (n, d).

        Raises:
            NumericalError: the features of some samples are zero.
        """
        base = self.kernel
        assert isinstance(base, HasFeatures)
        features = base.features(x)
        return features * inverse_roots(features.square().sum(1))[:, None]


def _operand(kernel: Kernel) -> str:
    """A kernel as part of a product or before a dot."""
    return f"({kernel!r})" if isinstance(kernel, (SumKernel, ScaledKernel)) else repr(kernel)


def _diagonal(k: Tensor) -> Tensor:
    # (n, n) -> (n,); (n, c, n, c) -> (n, c)
    return k.diagonal() if k.ndim == 2 else k.flatten(2).flatten(0, 1).diagonal().view(k.shape[:2])
