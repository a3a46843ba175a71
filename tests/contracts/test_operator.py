"""The laws of operators, for every operator: whatever it holds, it behaves as its dense form."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tangentkit.core.errors import BudgetError, InputError
from tangentkit.linalg import DenseOperator, FactorOperator, Operator, SumOperator

RTOL = {torch.float32: 1e-4, torch.float64: 1e-11}


class ByBlocks(Operator):
    """What a subclass writes at the least: nothing but its blocks, which it counts."""

    def __init__(self, matrix: Tensor, *, symmetric: bool = False) -> None:
        super().__init__(matrix.shape, dtype=matrix.dtype, device=matrix.device, symmetric=symmetric)
        self.matrix = matrix
        self.read: list[tuple[slice, slice]] = []

    def block(self, rows: slice, cols: slice) -> Tensor:
        assert 0 <= rows.start < rows.stop <= self.shape[0]
        assert 0 <= cols.start < cols.stop <= self.shape[1]
        self.read.append((rows, cols))
        return self.matrix[rows, cols]


@dataclass(frozen=True)
class Case:
    """An operator and its dense form, of a size (n, m) and from a tensor of random numbers."""

    name: str
    make: Callable[[Tensor, Tensor], tuple[Operator, Tensor]]
    """Factors A (n, p) and B (m, p) -> operator (n, m) and what it should be."""
    square: bool = False
    """Whether it needs n = m."""
    lazy: bool = True
    """Whether its dense form has to be made."""

    def __call__(self, n: int, m: int, dtype: torch.dtype = torch.float64) -> tuple[Operator, Tensor]:
        generator = torch.Generator().manual_seed(1000 * n + m)
        A, B = (
            torch.randn(size, 3, generator=generator, dtype=dtype) for size in (n, n if self.square else m)
        )
        return self.make(A, B)


def symmetric(A: Tensor, B: Tensor) -> Tensor:
    return A @ B.T + B @ A.T


CASES = [
    Case("dense", lambda A, B: (DenseOperator(A @ B.T), A @ B.T), lazy=False),
    Case("dense symmetric", lambda A, _: (DenseOperator(A @ A.T), A @ A.T), square=True, lazy=False),
    Case("dense transposed", lambda A, B: (DenseOperator(B @ A.T).T, A @ B.T), lazy=False),
    Case("factor", lambda A, B: (FactorOperator(A, B), A @ B.T)),
    Case("factor symmetric", lambda A, _: (FactorOperator(A), A @ A.T), square=True),
    Case("factor transposed", lambda A, B: (FactorOperator(B, A).T, A @ B.T)),
    Case("blocks", lambda A, B: (ByBlocks(A @ B.T), A @ B.T)),
    Case(
        "blocks symmetric",
        lambda A, B: (ByBlocks(symmetric(A, B), symmetric=True), symmetric(A, B)),
        square=True,
    ),
    Case("transposed", lambda A, B: (ByBlocks(B @ A.T).T, A @ B.T)),
    Case(
        "sum", lambda A, B: (ByBlocks(A @ B.T) + FactorOperator(A, B) + DenseOperator(A @ B.T), 3 * A @ B.T)
    ),
    Case(
        "sum symmetric", lambda A, B: (FactorOperator(A) + FactorOperator(B), A @ A.T + B @ B.T), square=True
    ),
    Case("sum of one", lambda A, B: (SumOperator(FactorOperator(A, B)), A @ B.T)),
    Case("scaled", lambda A, B: (-2.5 * ByBlocks(A @ B.T), -2.5 * A @ B.T)),
    Case("scaled symmetric", lambda A, _: (FactorOperator(A) * 0.5, 0.5 * A @ A.T), square=True),
    Case(
        "shifted",
        lambda A, B: (FactorOperator(A, B).shift(0.7), A @ B.T + 0.7 * torch.eye(len(A), dtype=A.dtype)),
        square=True,
    ),
    Case(
        "shifted symmetric",
        lambda A, B: (
            (ByBlocks(symmetric(A, B), symmetric=True).shift(1.0) + 3.0 * FactorOperator(A)).shift(-0.5),
            symmetric(A, B) + 3.0 * A @ A.T + 0.5 * torch.eye(len(A), dtype=A.dtype),
        ),
        square=True,
    ),
]

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
every_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
every_shape = pytest.mark.parametrize(("n", "m"), [(1, 1), (7, 7), (1, 5), (9, 4)])


def same(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=RTOL[expected.dtype], atol=RTOL[expected.dtype])


@every_dtype
@every_shape
@every_case
def test_is_its_dense_form(case: Case, n: int, m: int, dtype: torch.dtype) -> None:
    K, D = case(n, m, dtype)
    assert K.shape == tuple(D.shape)
    assert (K.dtype, K.device) == (D.dtype, D.device)
    assert K.nbytes == D.nbytes
    same(K.dense(), D)
    same(K.diagonal(), D.diagonal())
    same(K.block(slice(0, K.shape[0]), slice(0, K.shape[1])), D)


@every_dtype
@every_shape
@every_case
def test_products_are_those_of_the_dense_matrix(case: Case, n: int, m: int, dtype: torch.dtype) -> None:
    K, D = case(n, m, dtype)
    for v in (torch.randn(K.shape[1], dtype=dtype), torch.randn(K.shape[1], 3, dtype=dtype)):
        same(K @ v, D @ v)
    assert (K @ torch.randn(K.shape[1], 0, dtype=dtype)).shape == (K.shape[0], 0)


@every_shape
@every_case
def test_the_transpose_is_that_of_the_dense_matrix(case: Case, n: int, m: int) -> None:
    K, D = case(n, m)
    v = torch.randn(K.shape[0], 2, dtype=D.dtype)
    same(K.T.dense(), D.T)
    same(K.T @ v, D.T @ v)
    same(K.T.T.dense(), D)
    same(K.T.diagonal(), D.diagonal())


@every_case
def test_declared_symmetry_is_true(case: Case) -> None:
    K, D = case(6, 6)
    if K.symmetric:
        same(D, D.T)
        assert K.T is K
    else:
        assert not torch.allclose(D, D.T)


@every_case
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_slice_is_the_slice_of_the_dense_form(case: Case, data: st.DataObject) -> None:
    K, D = case(data.draw(st.integers(1, 9)), data.draw(st.integers(1, 9)))
    ends = st.none() | st.integers(-12, 12)
    rows, cols = (data.draw(st.builds(slice, ends, ends) | st.integers(-size, size - 1)) for size in K.shape)
    part = K[rows, cols]
    assert part.shape == D[rows, cols].shape
    assert part.dtype == D.dtype
    same(part, D[rows, cols])


@every_case
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_results_do_not_depend_on_the_tiles(case: Case, data: st.DataObject) -> None:
    K, D = case(data.draw(st.integers(1, 9)), data.draw(st.integers(1, 9)))
    side = data.draw(st.integers(1, 10))
    memory = 2 * D.dtype.itemsize * side**2
    v = torch.randn(K.shape[1], 2, generator=torch.Generator().manual_seed(0), dtype=D.dtype)
    assert K.tile_side(memory) <= side
    same(K.product(v, memory=memory), D @ v)
    same(K.diagonal(memory=memory), D.diagonal())


@every_case
def test_dense_keeps_to_the_budget(case: Case) -> None:
    K, D = case(6, 5)
    same(K.dense(memory=K.nbytes), D)
    if case.lazy:
        with pytest.raises(BudgetError, match=f"{K.nbytes} bytes"):
            K.dense(memory=K.nbytes - 1)


@every_case
def test_blocks_are_not_written_into(case: Case) -> None:
    K, D = case(5, 5)
    (K + K.T).shift(3.0).dense()
    _ = (2.0 * K) @ torch.ones(5, dtype=D.dtype)
    same(K.dense(), D)


@every_case
def test_refuses_operands_that_do_not_fit(case: Case) -> None:
    K, D = case(4, 3)
    m = K.shape[1]
    for bad in (
        torch.ones(m + 1, dtype=D.dtype),
        torch.ones(m, 1, 1, dtype=D.dtype),
        torch.ones((), dtype=D.dtype),
    ):
        with pytest.raises(InputError, match="operand"):
            _ = K @ bad
    with pytest.raises(InputError, match=r"expected float64 on cpu, got float32"):
        _ = K @ torch.ones(m, dtype=torch.float32)
    with pytest.raises(InputError, match="got list"):
        _ = K @ ([1.0] * m)  # type: ignore[operator]


@every_case
@pytest.mark.parametrize(
    "index",
    [
        (slice(None, None, 2), slice(None)),
        (slice(None), slice(None, None, -1)),
        (0.5, 0),
        (slice(None), None),
        (100, 0),
        (0, -100),
        slice(None),
        0,
        (0, 0, 0),
    ],
    ids=str,
)
def test_refuses_other_indices(case: Case, index: object) -> None:
    K, _ = case(4, 3)
    with pytest.raises(InputError, match="index"):
        K[index]  # type: ignore[index]


@pytest.mark.parametrize("symmetric", [False, True])
def test_tiles_cover_every_entry_once(symmetric: bool) -> None:
    D = torch.ones(7, 7, dtype=torch.float64)
    K = ByBlocks(D, symmetric=symmetric)
    K.product(torch.ones(7, dtype=D.dtype), memory=2 * 8 * 9)
    counts = torch.zeros(7, 7)
    for rows, cols in K.read:
        assert rows.stop - rows.start <= 3
        assert cols.stop - cols.start <= 3
        counts[rows, cols] += 1
        if symmetric and rows != cols:
            counts[cols, rows] += 1
    assert (counts == 1).all()
    assert len(K.read) == (6 if symmetric else 9)
