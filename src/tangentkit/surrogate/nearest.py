"""The training samples that a kernel finds nearest: those of the largest kernel values."""

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tangentkit.compute.cache import BoundedCache
from tangentkit.compute.kernel import Kernel
from tangentkit.compute.sources import SampleSource, sources_of
from tangentkit.compute.terms import HasRows, Range, Row
from tangentkit.core.batches import Batch
from tangentkit.core.errors import InputError, NumericalError, briefly
from tangentkit.core.memory import memory_budget
from tangentkit.core.progress import Progress, counted_off
from tangentkit.linalg.operators.operator import MAX_SIDE, Operator
from tangentkit.linalg.operators.spans import spans

TOGETHER = 8
"""Tensors of the size of a tile that are there at once while the largest values are sought."""


@dataclass(frozen=True, eq=False, repr=False)
class Neighbors:
    """The k nearest training samples of each of n samples, the nearest first."""

    indices: Int[Tensor, "n k"]
    """Numbers of training samples."""
    values: Float[Tensor, "n k"]
    """Their kernel values, falling; of equal ones the training sample with the lower number comes first."""
    candidates: int
    """Training samples in all."""

    def __repr__(self) -> str:
        n, k = self.indices.shape
        return f"Neighbors(k={k}, samples={n:,}, training samples={self.candidates:,})"


@briefly
def neighbors(
    kernel: Kernel | Operator,
    x: Any = None,
    train: Any = None,
    k: int = 5,
    *,
    progress: bool | Progress = True,
) -> Neighbors:
    """The k training samples with the largest kernel values for each sample, tile by tile.

    Tiles of the matrix k(x, train) come and go: it need not fit in memory. Large values are near; samples of large
    norm are near to many, so `kernel.normalized()`, the cosine, is often what is meant.

    Args:
        kernel: any kernel of one number for each pair; or a matrix k(x, train) as an operator, as `tk.gram` gives.
        x: samples: a batch or a data set. With an operator x and train are left out.
        train: the training samples, likewise.
        k: how many, at most as many as there are training samples.
        progress: whether to show a bar on a terminal; or a function (stage, done, total).

    Returns:
        `.indices` (n, k) and `.values` (n, k).

    Raises:
        InputError: a bad k, or a kernel between outputs.
        NumericalError: a kernel value is not finite.

    Example:
        >>> from tangentkit import ConjugateKernel
        >>> kernel = ConjugateKernel(torch.nn.Linear(1, 1))  # k(x, y) = x y
        >>> train = torch.tensor([[1.0], [3.0], [2.0], [3.0]])
        >>> found = neighbors(kernel, torch.tensor([[1.0], [-1.0]]), train, 2)
        >>> found.indices, found
        (tensor([[1, 3],
                [0, 2]]), Neighbors(k=2, samples=2, training samples=4))
    """
    matrix = _matrix(kernel, x, train)
    n, m = matrix.shape
    if isinstance(k, bool) or not isinstance(k, Integral) or not 1 <= k <= m:
        raise InputError("bad number of neighbors", expected=f"an integer from 1 to {m}", got=repr(k))
    found, side = [], matrix.side
    tiles = -(-n // side) * -(-m // side)
    with counted_off(progress, "neighbors", tiles) as advance:
        for i, rows in enumerate(spans(n, side)):
            best: tuple[Tensor, Tensor] | None = None
            for j, columns in enumerate(spans(m, side)):
                tile = matrix.tile(Range("x", i, rows), Range("y", j, columns))
                _check(tile, rows, columns)
                numbers = torch.arange(columns.start, columns.stop, device=tile.device).expand(len(tile), -1)
                best = _largest(tile, numbers, k) if best is None else _joined(best, (tile, numbers), k)
                advance()
            found.append(best)
    values, indices = (torch.cat(parts) for parts in zip(*found, strict=True))
    return Neighbors(indices, values, m)


class _OfOperator:
    """Tiles of a matrix that is there."""

    def __init__(self, operator: Operator):
        self.operator, self.shape, self.side = operator, operator.shape, operator.tile_side()

    def tile(self, rows: Range, columns: Range) -> Tensor:
        return self.operator.block(rows.span, columns.span)


class _OfKernel:
    """Tiles of a kernel between two sets of samples, from parts that are kept as far as memory allows."""

    def __init__(self, kernel: Kernel, sources: Mapping[str, SampleSource]):
        self.sources, self.term = sources, kernel.term()
        self.parts = dict(self.term.parts())
        self.shape = len(sources["x"]), len(sources["y"])
        budget = memory_budget()
        self.side = budget.side(8, copies=2 * TOGETHER, most=MAX_SIDE)
        self.kept = BoundedCache(budget // 4)
        self.rows: dict[int, tuple[Range, Row]] = {}

    def tile(self, rows: Range, columns: Range) -> Tensor:
        return self.term.tile(self, rows, columns)

    def samples(self, where: Range) -> Batch:
        return self.sources[where.side].read(where.span)

    def part(self, name: str, where: Range) -> Tensor:
        return self.kept.get((name, where.side, where.i), lambda: self.parts[name](self, where))

    def row(self, kernel: HasRows, where: Range) -> Row:
        place, row = self.rows.get(id(kernel), (None, None))
        if row is None or place != where:
            self.rows.pop(id(kernel), None)  # what it kept goes first
            row = kernel.row(self.samples(where))
            self.rows[id(kernel)] = where, row
        return row


def _matrix(kernel: Kernel | Operator, x: Any, train: Any) -> "_OfKernel | _OfOperator":
    if isinstance(kernel, Operator):
        if x is not None or train is not None:
            raise InputError(
                "an operator holds its samples",
                expected="neighbors(operator, k=...)",
                got="samples beside it",
            )
        return _OfOperator(kernel)
    if not isinstance(kernel, Kernel):
        raise InputError("not a kernel", expected="a kernel or an operator", got=type(kernel).__name__)
    if x is None or train is None:
        raise InputError("no samples", expected="neighbors(kernel, x, train, k)", got="a kernel alone")
    return _OfKernel(kernel, sources_of(kernel, x, train))


def _check(tile: Tensor, rows: slice, columns: slice) -> None:
    if tile.shape != (rows.stop - rows.start, columns.stop - columns.start):
        raise InputError(
            "neighbors need one number for each pair of samples",
            expected='a kernel such as outputs="trace"',
            got="a kernel between outputs",
        )
    # A sum is cheap, and finite only if all entries are.
    if not tile.sum().isfinite() and not tile.isfinite().all():
        bad = [(int(i) + rows.start, int(j) + columns.start) for i, j in (~tile.isfinite()).nonzero()[:3]]
        raise NumericalError(
            "kernel values are not finite", got=f"nan or inf for (sample, training sample) {bad}"
        )


def _joined(
    best: tuple[Tensor, Tensor], tile: tuple[Tensor, Tensor], k: int
) -> tuple[Float[Tensor, "n k"], Int[Tensor, "n k"]]:
    values, numbers = (torch.cat(parts, 1) for parts in zip(best, tile, strict=True))
    return _largest(values, numbers, k)


def _largest(
    values: Float[Tensor, "n m"], numbers: Int[Tensor, "n m"], k: int
) -> tuple[Float[Tensor, "n k"], Int[Tensor, "n k"]]:
    """The k largest values of each row and their numbers, in order."""
    k = min(k, values.shape[1])
    top = values.topk(min(k + 1, values.shape[1]))
    found, whose = top.values[:, :k], numbers.gather(1, top.indices[:, :k])
    # Of equal values topk takes any: where the first that is left out equals the last one, all are put in order.
    tied = (top.values[:, k:] == found[:, -1:]).any(1)
    if tied.any():
        ordered = _ordered(values[tied], numbers[tied])
        found[tied], whose[tied] = (part[:, :k] for part in ordered)
    return _ordered(found, whose)


def _ordered(values: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Rows by falling values, equal ones by rising numbers."""
    by = numbers.argsort(1)
    by = by.gather(1, values.gather(1, by).sort(dim=1, descending=True, stable=True).indices)
    return values.gather(1, by), numbers.gather(1, by)
