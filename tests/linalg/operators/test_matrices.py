"""Operators that hold tensors, what becomes one, and what is refused."""

from typing import Any

import numpy as np
import pytest
import torch

from tangentkit.core.errors import InputError, NumericalError
from tangentkit.linalg import (
    DenseOperator,
    FactorOperator,
    Operator,
    SumOperator,
    as_operator,
    asymmetry,
    check_symmetric,
    in_memory,
)
from tangentkit.linalg.operators.matrices import INNER
from tangentkit.linalg.operators.times import times


class Lazy(Operator):
    """A square matrix known only by its blocks."""

    def __init__(self, matrix: torch.Tensor, *, symmetric: bool) -> None:
        super().__init__(matrix.shape, dtype=matrix.dtype, device=matrix.device, symmetric=symmetric)
        self.matrix = matrix

    def block(self, rows: slice, cols: slice) -> torch.Tensor:
        return self.matrix[rows, cols]


def test_as_operator_takes_tensors_arrays_and_operators():
    K = torch.randn(3, 4, dtype=torch.float64)
    for given in (K, K.numpy(), DenseOperator(K), K.clone().requires_grad_()):
        operator = as_operator(given)
        assert torch.equal(operator.dense(), K)
        assert not operator.dense().requires_grad
    operator = DenseOperator(K)
    assert as_operator(operator) is operator


def test_as_operator_takes_any_layout_of_an_array():
    K = np.arange(12.0).reshape(3, 4)
    read_only = K.copy()
    read_only.flags.writeable = False
    for given in (K[::-1], K.T, K[:, ::2], read_only):
        assert np.array_equal(as_operator(given).dense().numpy(), given)


def test_a_dense_operator_shares_its_matrix():
    K = torch.eye(3)
    assert DenseOperator(K).dense().data_ptr() == K.data_ptr()
    assert DenseOperator(K, symmetric=False).T.dense().data_ptr() == K.data_ptr()


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ([[1.0]], "tensor or an array"),
        ("K", "tensor or an array"),
        (np.array([[None]]), "tensor or an array"),
        (torch.ones(3), "two axes"),
        (torch.ones(2, 3, 2, 3), "reshape"),
        (torch.ones(2, 2, dtype=torch.int64), "float32 or float64"),
        (torch.ones(2, 2, dtype=torch.float16), "float32 or float64"),
        (torch.ones(2, 2, dtype=torch.complex64), "float32 or float64"),
        (torch.ones(0, 2), "empty"),
    ],
    ids=str,
)
def test_as_operator_refuses_the_rest(bad, words):
    with pytest.raises(InputError, match=words):
        as_operator(bad)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_non_finite_matrices_are_refused(bad):
    K = torch.ones(4, 3)
    K[2, 1] = bad
    with pytest.raises(NumericalError, match="1 of 12"):
        DenseOperator(K)
    with pytest.raises(NumericalError, match="1 of 12"):
        FactorOperator(torch.ones(2, 3), K)


def test_symmetry_is_measured_to_within_rounding():
    K = torch.randn(40, 40, dtype=torch.float64)
    K = K @ K.T
    off = K.clone()
    off[3, 7] *= 1 + 1e-14
    assert DenseOperator(K).symmetric
    assert DenseOperator(off).symmetric
    off[3, 7] += 1e-3 * K.abs().max()
    assert not DenseOperator(off).symmetric
    assert DenseOperator(off, symmetric=True).symmetric
    assert not DenseOperator(K, symmetric=False).symmetric
    assert not DenseOperator(K[:, :3]).symmetric


def test_asymmetry_is_that_of_the_dense_form_whatever_the_tiles():
    K = torch.randn(7, 7, dtype=torch.float64)
    expected = float((K - K.T).abs().max() / K.abs().max())
    for side in (1, 2, 3, 7, 100):
        assert asymmetry(Lazy(K, symmetric=False), memory=2 * 8 * side**2) == pytest.approx(
            expected, rel=1e-14
        )
    assert asymmetry(DenseOperator(torch.zeros(3, 3), symmetric=False)) == 0


def test_check_symmetric_says_how_far_off():
    K = torch.eye(3, dtype=torch.float64)
    K[0, 2] = 0.25
    with pytest.raises(NumericalError, match=r"got 0\.25 of it"):
        check_symmetric(DenseOperator(K))
    with pytest.raises(NumericalError, match="nan"):
        check_symmetric(Lazy(K * torch.nan, symmetric=False))
    with pytest.raises(InputError, match="square"):
        check_symmetric(DenseOperator(K[:2]))
    check_symmetric(Lazy(K + K.T, symmetric=False))


def test_long_inner_products_keep_their_digits():
    A = torch.rand(2, 3 * INNER + 5)
    exact = A.double() @ A.double().T
    K = FactorOperator(A)
    v = torch.tensor([1.0, 2.0])
    torch.testing.assert_close(K.dense().double(), exact, rtol=2e-6, atol=0)
    torch.testing.assert_close((K @ v).double(), exact @ v.double(), rtol=2e-6, atol=0)
    torch.testing.assert_close(K.diagonal().double(), exact.diagonal(), rtol=2e-6, atol=0)


@pytest.mark.parametrize("shape", [(4, 5, 3), (1, 5, 3), (4, 1, 3), (4, 5, 1), (1, 1, 1), (4, 5, 0)], ids=str)
def test_products_do_not_depend_on_the_memory_order(shape):
    n, m, c = shape
    M, V = torch.randn(n, m, dtype=torch.float64), torch.randn(m, c, dtype=torch.float64)
    for left in (M, M.T.contiguous().T, M.repeat(2, 2)[:n, :m]):
        for right in (V, V.T.contiguous().T, V.repeat(2, 2)[:m, :c]):
            torch.testing.assert_close(times(left, right), M @ V)


def test_factors_must_match():
    with pytest.raises(InputError, match="one p"):
        FactorOperator(torch.ones(2, 3), torch.ones(2, 4))
    with pytest.raises(InputError, match="right factor"):
        FactorOperator(torch.ones(2, 3), torch.ones(2, 3, dtype=torch.float64))
    with pytest.raises(InputError, match="p >= 1"):
        FactorOperator(torch.ones(2, 0))


def test_sums_and_shifts_must_match():
    square, oblong = DenseOperator(torch.ones(2, 2)), DenseOperator(torch.ones(2, 3))
    with pytest.raises(InputError, match="one shape"):
        _ = square + oblong
    with pytest.raises(InputError, match="one shape"):
        SumOperator()
    with pytest.raises(InputError, match="other term"):
        _ = square + DenseOperator(torch.ones(2, 2, dtype=torch.float64))
    with pytest.raises(InputError, match="square"):
        oblong.shift(1.0)
    with pytest.raises(InputError, match="finite"):
        square.shift(float("nan"))
    with pytest.raises(InputError, match="finite"):
        _ = float("inf") * square
    with pytest.raises(InputError, match="square"):
        Lazy(torch.ones(2, 3), symmetric=True)


def test_numbers_of_all_kinds_scale_an_operator():
    K = DenseOperator(torch.ones(2, 2))
    numbers: list[Any] = [2, 2.0, np.float32(2), np.float64(2), np.int64(2), torch.tensor(2.0)]
    for two in numbers:
        assert torch.equal((two * K).dense(), 2 * torch.ones(2, 2))
        assert torch.equal((K * two).dense(), 2 * torch.ones(2, 2))
    others: list[Any] = ["2", torch.ones(2), K]
    for bad in others:
        with pytest.raises(TypeError):
            _ = bad * K
        with pytest.raises(TypeError):
            _ = K + bad if bad is not K else K * bad


def test_in_memory_holds_what_is_read_in_tiles_and_fits():
    lazy, cheap = Lazy(torch.eye(4), symmetric=True), FactorOperator(torch.ones(4, 1))
    held = in_memory((2.0 * lazy).shift(1.0) + cheap)
    assert isinstance(held, DenseOperator)
    assert held.symmetric
    assert torch.equal(held.dense(), 3 * torch.eye(4) + 1)
    for operator in (cheap, 2.0 * cheap.shift(1.0) + cheap, DenseOperator(torch.eye(4)).shift(2.0)):
        assert in_memory(operator) is operator
    assert in_memory(lazy, memory=lazy.nbytes - 1) is lazy
