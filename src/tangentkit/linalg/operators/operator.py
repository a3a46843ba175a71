"""Operators: matrices of any size, known by their blocks."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from numbers import Real
from operator import add

import torch
from jaxtyping import Float
from torch import Tensor

from tangentkit.core.errors import InputError
from tangentkit.core.memory import memory_budget
from tangentkit.linalg.operators.spans import as_span, spans
from tangentkit.linalg.operators.times import times

MAX_SIDE = 2048
"""The longest side of a tile: beyond it a product gains nothing, and the tile leaves the cache."""

DIAGONAL_SIDE = 128
"""The side of the tiles that a diagonal is read from: of `side²` numbers only `side` are kept."""

Memory = int | float | str | None
"""Bytes, a text such as "2GB", or None for a share of what is free."""


class Operator(ABC):
    """A real matrix of shape (n, m) that need not exist in memory.

    A subclass calls `super().__init__` and writes `block`; products, slices, the diagonal and the dense form
    follow from it in tiles. It overrides `_product` or `_diagonal` where it knows a cheaper way.
    Operators form an algebra: `a + b`, `2.0 * a`, `a.shift(ridge)` and `a.T` are operators too.

    Args:
        shape: rows and columns.
        dtype: float32 or float64, of every block.
        device: where the blocks come to be, and the operands must be.
        symmetric: a promise that K = Kᵀ; products and `dense` then read one triangle of tiles.

    Example:
        >>> class Hilbert(Operator):
        ...     def block(self, rows, cols):
        ...         i = torch.arange(rows.start, rows.stop, dtype=self.dtype)
        ...         j = torch.arange(cols.start, cols.stop, dtype=self.dtype)
        ...         return 1 / (1 + i[:, None] + j)
        >>> K = Hilbert((1000, 1000), dtype=torch.float64, device="cpu", symmetric=True)
        >>> K
        Hilbert(1000 x 1000, float64, cpu, symmetric)
        >>> K[:2, -1], (K @ torch.ones(1000, dtype=K.dtype))[0]
        (tensor([0.0010, 0.0010], dtype=torch.float64), tensor(7.4855, dtype=torch.float64))
    """

    def __init__(
        self,
        shape: Sequence[int],
        *,
        dtype: torch.dtype,
        device: torch.device | str,
        symmetric: bool = False,
    ) -> None:
        n, m = (int(size) for size in shape)
        if min(n, m) < 1:
            raise InputError(
                "empty operator", expected="at least one row and one column", got=f"shape {(n, m)}"
            )
        if dtype not in (torch.float32, torch.float64):
            raise InputError(
                "bad dtype of an operator",
                expected="float32 or float64",
                got=_name(dtype),
                hint="convert the matrix by K.to(torch.float64)",
            )
        if symmetric and n != m:
            raise InputError("a symmetric operator is square", expected="as many rows as columns", got=(n, m))
        self.shape = (n, m)
        self.dtype = dtype
        # A tensor's device has an index, as in cuda:0, where a name may have none.
        self.device = torch.empty(0, device=device).device
        self.symmetric = symmetric

    @abstractmethod
    def block(self, rows: slice, cols: slice) -> Float[Tensor, "n m"]:
        """The entries of some rows and columns; may be a view, so callers do not write into it.

        Args:
            rows: with 0 <= start < stop <= number of rows, and no step.
            cols: likewise of the columns.
        """

    @property
    def nbytes(self) -> int:
        """The bytes of the dense form."""
        return self.shape[0] * self.shape[1] * self.dtype.itemsize

    @property
    def reads_tiles(self) -> bool:
        """Whether a product reads the matrix tile by tile, so that many products gain from a dense copy."""
        return type(self)._product is Operator._product

    def tile_side(self, memory: Memory = None) -> int:
        """The side of the square tiles that fit a memory budget; override it to match tiles on disk."""
        # Half of the budget, since the producer of a tile needs room as well.
        return memory_budget(memory, device=self.device).side(self.dtype.itemsize, copies=2, most=MAX_SIDE)

    def tiles(self, memory: Memory = None) -> Iterator[tuple[slice, slice]]:
        """Rows and columns of tiles that cover the matrix; of a symmetric one, its upper triangle."""
        side = self.tile_side(memory)
        for rows in spans(self.shape[0], side):
            for cols in spans(self.shape[1], side):
                if not self.symmetric or rows.start <= cols.start:
                    yield rows, cols

    def product(self, v: Float[Tensor, " m *c"], *, memory: Memory = None) -> Float[Tensor, " n *c"]:
        """K v for a vector (m,) or a matrix (m, c); `op @ v` is the same with the default budget.

        Args:
            v: of the operator's dtype, on its device.
            memory: working memory beside the result.

        Raises:
            InputError: v does not fit.
        """
        if not isinstance(v, Tensor) or v.ndim not in (1, 2) or v.shape[0] != self.shape[1]:
            m = self.shape[1]
            got = f"shape {tuple(v.shape)}" if isinstance(v, Tensor) else type(v).__name__
            raise InputError(
                "bad operand of a product", expected=f"a tensor of shape ({m},) or ({m}, c)", got=got
            )
        self.check_same_kind(v, "operand")
        return self._product(v if v.ndim == 2 else v[:, None], memory).reshape(self.shape[0], *v.shape[1:])

    def __matmul__(self, v: Float[Tensor, " m *c"]) -> Float[Tensor, " n *c"]:
        return self.product(v)

    def _product(self, V: Float[Tensor, "m c"], memory: Memory) -> Float[Tensor, "n c"]:
        out = V.new_zeros(self.shape[0], V.shape[1])
        for rows, cols in self.tiles(memory):
            tile = self.block(rows, cols)
            out[rows] += times(tile, V[cols])
            if self.symmetric and rows != cols:
                out[cols] += times(tile.T, V[rows])
            del tile  # before the next one is made
        return out

    def diagonal(self, *, memory: Memory = None) -> Float[Tensor, " r"]:
        """K_ii for i < min(n, m)."""
        return self._diagonal(memory)

    def _diagonal(self, memory: Memory) -> Float[Tensor, " r"]:
        side = min(self.tile_side(memory), DIAGONAL_SIDE)
        # Copies: views would hold the blocks.
        return torch.cat([self.block(span, span).diagonal().clone() for span in spans(min(self.shape), side)])

    def dense(self, memory: Memory = None) -> Float[Tensor, "n m"]:
        """The whole matrix as a tensor.

        Args:
            memory: the most bytes it may take.

        Raises:
            BudgetError: it would take more; the message says how much.
        """
        memory_budget(memory, device=self.device).check(
            self.nbytes,
            f"the dense form of {self!r} is",
            hint="work with products and slices, or allow more by memory=...",
        )
        out = torch.empty(self.shape, dtype=self.dtype, device=self.device)
        for rows, cols in self.tiles(memory):
            tile = out[rows, cols] = self.block(rows, cols)
            if self.symmetric and rows != cols:
                out[cols, rows] = tile.T
            elif self.symmetric:
                # The mean, and not a copy of one triangle: what is not finite in the other must be seen.
                out[rows, cols] = tile / 2 + tile.T / 2
        return out

    def __getitem__(self, key: tuple[int | slice, int | slice]) -> Float[Tensor, "..."]:
        if not isinstance(key, tuple) or len(key) != 2:
            raise InputError(
                "bad index of an operator", expected="rows and columns, as in K[0:5, 2:7]", got=f"[{key}]"
            )
        rows, cols = (as_span(index, size) for index, size in zip(key, self.shape, strict=True))
        if rows.start == rows.stop or cols.start == cols.stop:
            block = torch.empty(
                rows.stop - rows.start, cols.stop - cols.start, dtype=self.dtype, device=self.device
            )
        else:
            block = self.block(rows, cols)
        # An integer takes its axis away, as in numpy.
        return block[tuple(slice(None) if isinstance(index, slice) else 0 for index in key)]

    @property
    def T(self) -> "Operator":
        """The transpose; a symmetric operator is its own."""
        return self if self.symmetric else TransposedOperator(self)

    def shift(self, by: float) -> "Operator":
        """K + λ I, for a square K."""
        return ShiftedOperator(self, by)

    def __add__(self, other: "Operator") -> "Operator":
        return SumOperator(self, other) if isinstance(other, Operator) else NotImplemented

    def __mul__(self, factor: "float | Real | Tensor") -> "Operator":
        is_scalar = isinstance(factor, Real) or (isinstance(factor, Tensor) and factor.ndim == 0)
        return ScaledOperator(self, float(factor)) if is_scalar else NotImplemented

    __rmul__ = __mul__
    # Without this, numpy numbers would try to multiply the operator entry by entry.
    __array_ufunc__ = None

    def __repr__(self) -> str:
        words = [f"{self.shape[0]} x {self.shape[1]}", _name(self.dtype), str(self.device)]
        return f"{type(self).__name__}({', '.join(words + ['symmetric'] * self.symmetric)})"

    def check_same_kind(self, other: "Operator | Tensor", what: str) -> None:
        """Refuses an operand of another dtype or on another device.

        Raises:
            InputError: with both.
        """
        if (other.dtype, other.device) != (self.dtype, self.device):
            raise InputError(
                f"the {what} does not match the operator",
                expected=f"{_name(self.dtype)} on {self.device}",
                got=f"{_name(other.dtype)} on {other.device}",
                hint="convert one of them by .to(dtype=..., device=...)",
            )


class TransposedOperator(Operator):
    """Kᵀ of an operator K."""

    def __init__(self, base: Operator) -> None:
        super().__init__(base.shape[::-1], dtype=base.dtype, device=base.device, symmetric=base.symmetric)
        self.base = base

    def block(self, rows: slice, cols: slice) -> Float[Tensor, "n m"]:
        """Kᵀ[rows, cols] = K[cols, rows]ᵀ."""
        return self.base.block(cols, rows).T

    def tile_side(self, memory: Memory = None) -> int:
        """The side of the tiles of the base."""
        return self.base.tile_side(memory)

    def _diagonal(self, memory: Memory) -> Float[Tensor, " r"]:
        return self.base.diagonal(memory=memory)

    @property
    def T(self) -> Operator:
        """The operator that was transposed."""
        return self.base


class TransformedOperator(Operator):
    """An operator made from one other, `base`, of the same shape."""

    def __init__(self, base: Operator) -> None:
        super().__init__(base.shape, dtype=base.dtype, device=base.device, symmetric=base.symmetric)
        self.base = base

    @property
    def reads_tiles(self) -> bool:
        """Whether a product reads the base tile by tile."""
        return self.base.reads_tiles

    def tile_side(self, memory: Memory = None) -> int:
        """The side of the tiles of the base."""
        return self.base.tile_side(memory)


class ScaledOperator(TransformedOperator):
    """A number times an operator."""

    def __init__(self, base: Operator, factor: float) -> None:
        super().__init__(base)
        self.factor = _finite(factor, "factor of an operator")

    def block(self, rows: slice, cols: slice) -> Float[Tensor, "n m"]:
        """The factor times the block of the base."""
        return self.factor * self.base.block(rows, cols)

    def _product(self, V: Float[Tensor, "m c"], memory: Memory) -> Float[Tensor, "n c"]:
        return self.factor * self.base.product(V, memory=memory)

    def _diagonal(self, memory: Memory) -> Float[Tensor, " r"]:
        return self.factor * self.base.diagonal(memory=memory)


class ShiftedOperator(TransformedOperator):
    """K + λ I of a square operator K.

    Args:
        base: the operator K.
        by: the shift λ.
    """

    def __init__(self, base: Operator, by: float) -> None:
        if base.shape[0] != base.shape[1]:
            raise InputError("only a square operator can be shifted", expected="shape (n, n)", got=base.shape)
        super().__init__(base)
        self.by = _finite(by, "shift of an operator")

    def block(self, rows: slice, cols: slice) -> Float[Tensor, "n m"]:
        """The block of the base, λ added where it meets the diagonal."""
        block = self.base.block(rows, cols).clone()
        first, last = max(rows.start, cols.start), min(rows.stop, cols.stop)
        if first < last:
            met = block[first - rows.start : last - rows.start, first - cols.start : last - cols.start]
            met.diagonal().add_(self.by)
        return block

    def _product(self, V: Float[Tensor, "m c"], memory: Memory) -> Float[Tensor, "n c"]:
        return self.base.product(V, memory=memory) + self.by * V

    def _diagonal(self, memory: Memory) -> Float[Tensor, " r"]:
        return self.base.diagonal(memory=memory) + self.by


class SumOperator(Operator):
    """The sum of operators of one shape."""

    def __init__(self, *terms: Operator) -> None:
        shapes = [term.shape for term in terms]
        if len(set(shapes)) != 1:
            raise InputError(
                "bad sum of operators", expected="operators of one shape", got=f"shapes {shapes}"
            )
        first, *others = terms
        symmetric = all(term.symmetric for term in terms)
        super().__init__(first.shape, dtype=first.dtype, device=first.device, symmetric=symmetric)
        for term in others:
            self.check_same_kind(term, "other term of a sum")
        self.terms = terms

    def block(self, rows: slice, cols: slice) -> Float[Tensor, "n m"]:
        """The sum of the blocks of the terms."""
        return _total(term.block(rows, cols) for term in self.terms)

    @property
    def reads_tiles(self) -> bool:
        """Whether a product reads any of the terms tile by tile."""
        return any(term.reads_tiles for term in self.terms)

    def tile_side(self, memory: Memory = None) -> int:
        """The side of the smallest tiles among the terms."""
        return min(term.tile_side(memory) for term in self.terms)

    def _product(self, V: Float[Tensor, "m c"], memory: Memory) -> Float[Tensor, "n c"]:
        return _total(term.product(V, memory=memory) for term in self.terms)

    def _diagonal(self, memory: Memory) -> Float[Tensor, " r"]:
        return _total(term.diagonal(memory=memory) for term in self.terms)


def _total(parts: Iterable[Tensor]) -> Tensor:
    return reduce(add, parts)


def _finite(number: float, what: str) -> float:
    if not math.isfinite(number):
        raise InputError(f"bad {what}", expected="a finite number", got=number)
    return float(number)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
