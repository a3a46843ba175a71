"""How a tile of a kernel is put together, from samples and from parts that are computed once.

A kernel is a tree: sums, multiples, casts and cosines of other kernels. Two kinds of node have a part of size n that
all tiles share: a kernel with features has these, so that its tiles are matrix products; a normalized kernel has the
scales 1 / sqrt(k(x, x)) of the kernel below it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from tangentkit.core.batches import Batch
from tangentkit.core.errors import NumericalError
from tangentkit.core.model.functions import TURN
from tangentkit.linalg.operators.matrices import INNER, DenseOperator, FactorOperator, symmetrized
from tangentkit.linalg.operators.symmetry import mirrored

Row = Callable[..., Tensor]
"""A row of tiles: y -> k(x, y), and without y the symmetric k(x, x)."""


class HasRows(Protocol):
    """A kernel as terms know it."""

    def row(self, x: Batch) -> Row:
        """y -> k(x, y)."""
        ...

    def diag(self, x: Batch) -> Tensor:
        """k(x_i, x_i)."""
        ...


@runtime_checkable
class HasFeatures(Protocol):
    """A kernel that is an inner product, k(x, y) = features(x) features(y)ᵀ: large Gram matrices use that."""

    def features(self, x: Batch) -> Tensor:
        """The features of samples, (n, d)."""
        ...


class Range(NamedTuple):
    """Samples of a side, consecutive as a rule."""

    side: str
    """"x" or "y"."""
    i: int
    """Which range, counted in tiles."""
    span: slice
    picked: tuple[int, ...] = ()
    """Numbers of the samples, where they are not consecutive."""

    @property
    def numbers(self) -> Sequence[int]:
        """The numbers of its samples."""
        return self.picked or range(self.span.start, self.span.stop)


class Given(Protocol):
    """Where terms take what they are made of."""

    def samples(self, where: Range) -> Batch:
        """The samples of a range."""
        ...

    def part(self, name: str, where: Range) -> Tensor:
        """A part, (n, width), for the samples of a range."""
        ...

    def row(self, kernel: HasRows, where: Range) -> Row:
        """The tiles of a kernel in the row of a range."""
        ...


Part = Callable[[Given, Range], Tensor]
"""Computes a part for a range."""


class Term(ABC):
    """A node of the tree. Matrices are (n, m), or (n c, m c) for kernels between outputs."""

    @abstractmethod
    def tile(self, given: Given, rows: Range, cols: Range) -> Tensor:
        """k(x_i, y_j) for two ranges."""

    @abstractmethod
    def diagonal(self, given: Given, where: Range) -> Tensor:
        """k(x_i, x_i) for a range, as a vector."""

    def parts(self) -> Iterator[tuple[str, Part]]:
        """Names of parts and how they are computed, in an order in which each needs only those before it."""
        yield from ()


@dataclass(frozen=True)
class Direct(Term):
    """A kernel that is called for each tile."""

    kernel: HasRows

    def tile(self, given: Given, rows: Range, cols: Range) -> Tensor:
        """The values of the kernel itself."""
        with TURN:
            row = given.row(self.kernel, rows)
            k = row() if rows == cols else row(given.samples(cols))
        k = k.flatten(2).flatten(0, 1) if k.ndim == 4 else k
        return _exactly_symmetric(k) if rows == cols else k

    def diagonal(self, given: Given, where: Range) -> Tensor:
        """The diagonal that the kernel itself gives."""
        with TURN:
            return self.kernel.diag(given.samples(where)).flatten()


@dataclass(frozen=True)
class FeatureProduct(Term):
    """features(x) features(y)ᵀ."""

    kernel: HasFeatures
    name: str

    def tile(self, given: Given, rows: Range, cols: Range) -> Tensor:
        """The matrix product of the features of both sides."""
        fx = given.part(self.name, rows)
        fy = fx if rows == cols else given.part(self.name, cols)
        long = fx.shape[1] > INNER
        tile = FactorOperator(fx, fy).block(slice(0, len(fx)), slice(0, len(fy))) if long else fx @ fy.T
        return mirrored(tile) if rows == cols else tile

    def diagonal(self, given: Given, where: Range) -> Tensor:
        """‖features(x)‖²."""
        return FactorOperator(given.part(self.name, where)).diagonal()

    def parts(self) -> Iterator[tuple[str, Part]]:
        """The features are the one part."""
        yield self.name, self._features

    def _features(self, given: Given, where: Range) -> Tensor:
        with TURN:
            return self.kernel.features(given.samples(where))


@dataclass(frozen=True)
class Cosine(Term):
    """k(x, y) / sqrt(k(x, x) k(y, y))."""

    base: Term
    name: str

    def tile(self, given: Given, rows: Range, cols: Range) -> Tensor:
        """The tile of the base, scaled."""
        sx, sy = (given.part(self.name, where).flatten() for where in (rows, cols))
        tile = self.base.tile(given, rows, cols) * sx[:, None] * sy
        return mirrored(tile) if rows == cols else tile

    def diagonal(self, given: Given, where: Range) -> Tensor:
        """The diagonal of a cosine, which is ones."""
        return torch.ones_like(given.part(self.name, where).flatten())

    def parts(self) -> Iterator[tuple[str, Part]]:
        """Those of the base, then the scales."""
        yield from self.base.parts()
        yield self.name, self._scales

    def _scales(self, given: Given, where: Range) -> Tensor:
        d = self.base.diagonal(given, where).reshape(len(where.numbers), -1)
        return inverse_roots(d, numbers=where.numbers, side=where.side)


@dataclass(frozen=True)
class Sum(Term):
    """k(x, y) + l(x, y)."""

    left: Term
    right: Term

    def tile(self, given: Given, rows: Range, cols: Range) -> Tensor:
        """The sum of both."""
        return self.left.tile(given, rows, cols) + self.right.tile(given, rows, cols)

    def diagonal(self, given: Given, where: Range) -> Tensor:
        """The sum of both."""
        return self.left.diagonal(given, where) + self.right.diagonal(given, where)

    def parts(self) -> Iterator[tuple[str, Part]]:
        """The parts of both terms."""
        yield from self.left.parts()
        yield from self.right.parts()


@dataclass(frozen=True)
class Mapped(Term):
    """A function of every entry: a multiple, a cast."""

    base: Term
    function: Callable[[Tensor], Tensor]

    def tile(self, given: Given, rows: Range, cols: Range) -> Tensor:
        """The function of the base."""
        return self.function(self.base.tile(given, rows, cols))

    def diagonal(self, given: Given, where: Range) -> Tensor:
        """The function of the base."""
        return self.function(self.base.diagonal(given, where))

    def parts(self) -> Iterator[tuple[str, Part]]:
        """Those of the base."""
        return self.base.parts()


def _exactly_symmetric(k: Tensor) -> Tensor:
    """A tile of the diagonal: kernels of others may round k(x, y) and k(y, x) differently."""
    if torch.equal(k, k.T) or not k.isfinite().all():  # what is not finite is reported with its samples
        return k
    return symmetrized(DenseOperator(k, symmetric=False)).dense()


def part_name(kind: str, path: str) -> str:
    """The name of a part, by its place in the tree."""
    return f"{kind}-{path}" if path else kind


@dataclass(frozen=True, eq=False)
class Fresh:
    """Ingredients for a single batch, every part computed when it is asked for."""

    term: Term
    batch: Batch

    def samples(self, where: Range) -> Batch:  # noqa: ARG002
        """The batch, whatever the range: there is no other."""
        return self.batch

    def part(self, name: str, where: Range) -> Tensor:
        """The part, computed now."""
        return dict(self.term.parts())[name](self, where)

    def row(self, kernel: HasRows, where: Range) -> Row:  # noqa: ARG002
        """The kernel with the batch."""
        return kernel.row(self.batch)


def inverse_roots(d: Tensor, *, numbers: Sequence[int] | None = None, side: str = "") -> Tensor:
    """1 / sqrt(k(x, x)) of samples (of a side, with these numbers), (n,) or (n, c).

    Raises:
        NumericalError: some are zero; with their numbers.
    """
    if not (d > 0).all():
        rows = (d <= 0).reshape(len(d), -1).any(1).nonzero().flatten().tolist()
        bad = rows if numbers is None else [numbers[row] for row in rows]
        raise NumericalError(
            "a kernel with zeros on its diagonal cannot be normalized",
            expected="k(x, x) > 0",
            got=f"zero for samples {bad[:5]}{side and f' of {side}'} ({len(bad)} in all)",
            hint="leave these samples out, or add a kernel that is positive on them",
        )
    return d.rsqrt()
