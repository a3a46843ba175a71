"""Operators that hold tensors: a dense matrix, or its factors."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from scipy.sparse import issparse
from torch import Tensor

from tangentkit.core.batches import from_array
from tangentkit.core.errors import InputError
from tangentkit.core.memory import memory_budget
from tangentkit.linalg.operators.checks import check_finite, check_symmetric, is_symmetric
from tangentkit.linalg.operators.operator import Memory, Operator
from tangentkit.linalg.operators.spans import spans
from tangentkit.linalg.operators.times import times

INNER = 65_536
"""Columns summed at a time: one float32 product over millions of columns loses three digits."""


class DenseOperator(Operator):
    """A matrix in memory, shared and not copied.

    Args:
        matrix: the entries.
        symmetric: whether K = Kᵀ; None measures it, to within rounding.

    Raises:
        NumericalError: an entry is not finite.

    Example:
        >>> K = DenseOperator(torch.eye(3))
        >>> K @ torch.ones(3), K.symmetric
        (tensor([1., 1., 1.]), True)
    """

    def __init__(self, matrix: Float[Tensor, "n m"], *, symmetric: bool | None = None) -> None:
        matrix = _as_matrix(matrix)
        super().__init__(matrix.shape, dtype=matrix.dtype, device=matrix.device, symmetric=bool(symmetric))
        check_finite(matrix, "matrix")
        self.matrix = matrix
        if symmetric is None and matrix.shape[0] == matrix.shape[1]:
            self.symmetric = is_symmetric(self)

    def block(self, rows: slice, cols: slice) -> Float[Tensor, "n m"]:
        """A view of the matrix."""
        return self.matrix[rows, cols]

    def dense(self, memory: Memory = None) -> Float[Tensor, "n m"]:  # noqa: ARG002 - nothing new is made
        """The matrix itself, whatever the budget, since it is there already."""
        return self.matrix

    def _product(self, V: Float[Tensor, "m c"], memory: Memory) -> Float[Tensor, "n c"]:  # noqa: ARG002
        return times(self.matrix, V)

    def _diagonal(self, memory: Memory) -> Float[Tensor, " r"]:  # noqa: ARG002
        return self.matrix.diagonal()

    @property
    def T(self) -> Operator:
        """The transpose, a view."""
        return self if self.symmetric else DenseOperator(self.matrix.T, symmetric=False)


class FactorOperator(Operator):
    """A Bᵀ, known by its factors; A Aᵀ where B is None.

    Inner products are summed in blocks of columns, so that long features keep their digits.

    Args:
        A: the left factor, such as the features of n samples.
        B: the right factor.

    Raises:
        InputError: the factors do not match.
        NumericalError: an entry is not finite.

    Example:
        >>> features = torch.tensor([[1.0, 0.0], [1.0, 2.0]])
        >>> FactorOperator(features).dense()
        tensor([[1., 1.],
                [1., 5.]])
    """

    def __init__(self, A: Float[Tensor, "n p"], B: Float[Tensor, "m p"] | None = None) -> None:
        A = _as_matrix(A)
        symmetric, B = B is None, A if B is None else _as_matrix(B)
        super().__init__((A.shape[0], B.shape[0]), dtype=A.dtype, device=A.device, symmetric=symmetric)
        if A.shape[1] != B.shape[1] or A.shape[1] == 0:
            raise InputError(
                "factors do not match",
                expected="A (n, p) and B (m, p) with one p >= 1",
                got=f"{tuple(A.shape)} and {tuple(B.shape)}",
            )
        self.check_same_kind(B, "right factor")
        for factor in (A, B):
            check_finite(factor, "factor")
        self.A, self.B = A, B

    def block(self, rows: slice, cols: slice) -> Float[Tensor, "n m"]:
        """A[rows] B[cols]ᵀ."""
        out = self.A.new_zeros(rows.stop - rows.start, cols.stop - cols.start)
        for A, B in self._columns():
            out.addmm_(A[rows], B[cols].T)
        return out

    def _product(self, V: Float[Tensor, "m c"], memory: Memory) -> Float[Tensor, "n c"]:  # noqa: ARG002
        out = V.new_zeros(self.shape[0], V.shape[1])
        for A, B in self._columns():
            out += times(A, times(B.T, V))
        return out

    def _diagonal(self, memory: Memory) -> Float[Tensor, " r"]:
        r, p = min(self.shape), self.A.shape[1]
        rows = max(1, self.tile_side(memory) ** 2 // min(p, INNER))
        out = self.A.new_zeros(r)
        for A, B in self._columns():
            for span in spans(r, rows):
                # A sum of products and not an einsum, which adds up one by one and loses a digit.
                out[span] += (A[span] * B[span]).sum(1)
        return out

    def _columns(self) -> Iterator[tuple[Tensor, Tensor]]:
        for span in spans(self.A.shape[1], INNER):
            yield self.A[:, span], self.B[:, span]

    @property
    def T(self) -> Operator:
        """B Aᵀ."""
        return self if self.symmetric else FactorOperator(self.B, self.A)


def as_operator(K: Any) -> Operator:
    """The operator that a tensor, an array or an operator is.

    Raises:
        InputError: it is none of these, or not a matrix of floating point numbers.
        NumericalError: an entry is not finite.

    Example:
        >>> as_operator(np.eye(2))
        DenseOperator(2 x 2, float64, cpu, symmetric)
    """
    return K if isinstance(K, Operator) else DenseOperator(as_tensor(K, "kernel matrix"))


def as_tensor(value: Any, what: str) -> Tensor:
    """A tensor from a tensor or an array, cut from the autograd graph.

    Raises:
        InputError: it is neither.
    """
    if isinstance(value, Tensor):
        if value.layout != torch.strided:
            raise InputError(
                f"sparse {what}", expected="a dense tensor", got=value.layout, hint=".to_dense()"
            )
        return value.detach()
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
        return from_array(np.require(value, requirements="C"))
    hint = ".toarray(), which makes a dense array" if issparse(value) else None
    raise InputError(f"bad {what}", expected="a tensor or an array", got=type(value).__name__, hint=hint)


def symmetrized(K: Operator) -> Operator:
    """The operator, checked to be symmetric within rounding; of a matrix in memory (K + Kᵀ) / 2 where that differs.

    Raises:
        InputError: it is not square.
        NumericalError: it is not symmetric.

    Example:
        >>> off = torch.tensor([[1.0, 0.5], [0.5 + 1e-7, 1.0]])
        >>> K = symmetrized(DenseOperator(off.double())).dense()
        >>> torch.equal(K, K.T)
        True
    """
    check_symmetric(K)
    if not isinstance(K, DenseOperator) or torch.equal(K.matrix, K.matrix.T):
        return K
    total = K.matrix + K.matrix.T
    return DenseOperator(total.div_(2), symmetric=True)


def in_memory(K: Operator, memory: Memory = None) -> Operator:
    """The operator, its entries held in memory where that fits the budget and makes products cheaper."""
    if K.reads_tiles and memory_budget(memory, device=K.device).holds(K.nbytes):
        return DenseOperator(K.dense(K.nbytes), symmetric=K.symmetric)
    return K


def _as_matrix(value: Any) -> Tensor:
    matrix = as_tensor(value, "matrix")
    if matrix.ndim != 2:
        hint = (
            "the full kernel (n, c, m, c) is a matrix by K.reshape(n * c, m * c)"
            if matrix.ndim == 4
            else None
        )
        raise InputError("not a matrix", expected="two axes", got=f"shape {tuple(matrix.shape)}", hint=hint)
    return matrix
