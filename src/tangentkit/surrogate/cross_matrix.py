"""The matrix k(x, train) between samples and training samples, which comes and goes a part at a time."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from tangentkit.compute.cache import BoundedCache
from tangentkit.compute.kernel import Kernel
from tangentkit.compute.sources import SampleSource, sources_of
from tangentkit.compute.terms import HasRows, Range, Row
from tangentkit.core.batches import Batch
from tangentkit.core.errors import InputError, NumericalError
from tangentkit.core.memory import memory_budget
from tangentkit.linalg.operators.operator import MAX_SIDE, Operator
from tangentkit.linalg.operators.spans import spans

TOGETHER = 8
"""Tensors of the size of a part that are there at once while it is looked at."""


class CrossMatrix(ABC):
    """k(x_i, t_j) for n samples x and m training samples t, one number for each pair."""

    shape: tuple[int, int]
    """(n, m)."""
    side: int
    """The side of tiles that fit in memory."""
    _whole: Float[Tensor, "n m"] | None = None

    @abstractmethod
    def tile(self, rows: Range, columns: Range) -> Float[Tensor, "r c"]:
        """k(x_i, t_j) for two ranges."""

    def ranges(self) -> list[slice]:
        """Ranges of samples, each as long as whole rows fit in memory."""
        n, m = self.shape
        return list(spans(n, memory_budget().rows(8 * m, copies=TOGETHER, most=self.side)))

    def columns(self) -> list[slice]:
        """Ranges of training samples of which rows are put together."""
        return list(spans(self.shape[1], self.side))

    def strips(self) -> Iterator[tuple[slice, Float[Tensor, "r m"]]]:
        """Ranges of samples with their whole rows; a matrix that takes little of the memory is computed once."""
        if self._whole is None and memory_budget().holds(8 * self.shape[0] * self.shape[1], copies=TOGETHER):
            self._whole = joined([strip for _, strip in self._computed()])
        if self._whole is None:
            yield from self._computed()
        else:
            yield from ((rows, self._whole[rows]) for rows in self.ranges())

    def _computed(self) -> Iterator[tuple[slice, Float[Tensor, "r m"]]]:
        for i, rows in enumerate(self.ranges()):
            columns = [Range("y", j, span) for j, span in enumerate(self.columns())]
            yield rows, joined([self._checked(Range("x", i, rows), where) for where in columns], dim=1)

    def dense(self) -> Float[Tensor, "n m"]:
        """The whole matrix, in memory."""
        return joined([strip for _, strip in self.strips()])

    def _checked(self, rows: Range, columns: Range) -> Float[Tensor, "r c"]:
        tile = self.tile(rows, columns)
        _check(tile, rows.span, columns.span)
        return tile


class OfOperator(CrossMatrix):
    """A matrix that is there, in memory or stored."""

    def __init__(self, operator: Operator):
        self.operator, self.shape, self.side = operator, operator.shape, operator.tile_side()

    def tile(self, rows: Range, columns: Range) -> Float[Tensor, "r c"]:
        """Read from the operator."""
        return self.operator.block(rows.span, columns.span)


class OfFeatures(CrossMatrix):
    """φ(x_i) · ψ_j: features of samples, computed when their rows are asked for, with those of training samples.

    Args:
        features: batch -> φ (n, d).
        x: the samples.
        train: ψ (m, d).
    """

    def __init__(
        self, features: Callable[[Batch], Float[Tensor, "n d"]], x: SampleSource, train: Float[Tensor, "m d"]
    ):
        self.features, self.x, self.train = features, x, train
        self.shape = len(x), len(train)
        self.side = memory_budget().rows(8 * max(train.shape), copies=TOGETHER, most=MAX_SIDE)
        self._latest: tuple[slice, Tensor] | None = None

    def columns(self) -> list[slice]:
        """All at once: the product is of the size of the rows themselves, and needs no further memory."""
        return [slice(0, self.shape[1])]

    def tile(self, rows: Range, columns: Range) -> Float[Tensor, "r c"]:
        """A tile as the product of two matrices."""
        if self._latest is None or self._latest[0] != rows.span:
            self._latest = rows.span, self.features(self.x.read(rows.span)).to(self.train)
        return self._latest[1] @ self.train[columns.span].T


class OfKernel(CrossMatrix):
    """A kernel between two sets of samples, from parts that are remembered as far as memory allows."""

    def __init__(self, kernel: Kernel, sources: Mapping[str, SampleSource]):
        self.sources, self.term = sources, kernel.term()
        self.parts = dict(self.term.parts())
        self.shape = len(sources["x"]), len(sources["y"])
        budget = memory_budget()
        self.side = budget.side(8, copies=2 * TOGETHER, most=MAX_SIDE)
        self._cache = BoundedCache(budget // 4)
        self._rows: dict[int, tuple[Range, Row]] = {}

    def tile(self, rows: Range, columns: Range) -> Float[Tensor, "r c"]:
        """Put together of its parts."""
        return self.term.tile(self, rows, columns)

    def samples(self, where: Range) -> Batch:
        """The samples of a range."""
        return self.sources[where.side].read(where.span)

    def part(self, name: str, where: Range) -> Tensor:
        """A part for the samples of a range."""
        key = (name, where.side, where.span.start, where.span.stop)
        return self._cache.get(key, lambda: self.parts[name](self, where))

    def row(self, kernel: HasRows, where: Range) -> Row:
        """The tiles of a kernel in the row of a range."""
        place, row = self._rows.get(id(kernel), (None, None))
        if row is None or place != where:
            self._rows.pop(id(kernel), None)  # what it holds goes first
            row = kernel.row(self.samples(where))
            self._rows[id(kernel)] = where, row
        return row


def joined(parts: list[Tensor], dim: int = 0) -> Tensor:
    """The parts side by side; one alone is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim)


def cross_matrix(kernel: Kernel | Operator, x: Any, train: Any) -> CrossMatrix:
    """The matrix of a kernel between samples, or one that is there already.

    Raises:
        InputError: it is neither, or samples are missing or one too many.
    """
    if isinstance(kernel, Operator):
        if x is not None or train is not None:
            raise InputError(
                "an operator holds its samples",
                expected="neighbors(operator, k=...)",
                got="samples beside it",
            )
        return OfOperator(kernel)
    if not isinstance(kernel, Kernel):
        raise InputError("not a kernel", expected="a kernel or an operator", got=type(kernel).__name__)
    if x is None or train is None:
        raise InputError("no samples", expected="neighbors(kernel, x, train, k)", got="a kernel alone")
    return OfKernel(kernel, sources_of(kernel, x, train))


def _check(tile: Tensor, rows: slice, columns: slice) -> None:
    if tile.shape != (rows.stop - rows.start, columns.stop - columns.start):
        raise InputError(
            "this needs one number for each pair of samples",
            expected='a kernel such as outputs="trace"',
            got="a kernel between outputs",
        )
    # A sum is cheap, and finite only if all entries are.
    if not tile.sum().isfinite() and not tile.isfinite().all():
        bad = [(int(i) + rows.start, int(j) + columns.start) for i, j in (~tile.isfinite()).nonzero()[:3]]
        raise NumericalError(
            "kernel values are not finite", got=f"nan or inf for (sample, training sample) {bad}"
        )
