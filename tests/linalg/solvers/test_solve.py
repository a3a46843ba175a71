"""Every method solves every kind of system it should, and says so where it cannot."""

import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tangentkit.core.errors import BudgetError, InputError, NumericalError
from tangentkit.core.seeds import Key
from tangentkit.linalg import (
    CG,
    Auto,
    Cholesky,
    DenseOperator,
    Eigen,
    FactorOperator,
    Method,
    Nystrom,
    Operator,
    PivotedCholesky,
    Solution,
    solve,
)

METHODS = {
    "auto": Auto(),
    "auto without memory": Auto(memory=1),
    "cholesky": Cholesky(),
    "eigen": Eigen(),
    "cg": CG(),
    "cg nystrom": CG(preconditioner=Nystrom(5, Key(0))),
    "cg pivoted": CG(preconditioner=PivotedCholesky(5)),
    "cg without memory": CG(memory=1),
}
every_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS.keys())
every_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
TOLERANCE = {torch.float32: 1e-2, torch.float64: 1e-6}
"""Condition number 30 times √ε, which is what the methods promise of the residual."""


class Lazy(Operator):
    """A matrix known only by its blocks."""

    def __init__(self, matrix: Tensor, *, symmetric: bool = True) -> None:
        super().__init__(matrix.shape, dtype=matrix.dtype, device=matrix.device, symmetric=symmetric)
        self.matrix = matrix

    def block(self, rows: slice, cols: slice) -> Tensor:
        return self.matrix[rows, cols]


def matrix_of(values: Tensor, seed: int = 0) -> Tensor:
    """A symmetric matrix with given eigenvalues and random eigenvectors."""
    n = len(values)
    Q, _ = torch.linalg.qr(
        torch.randn(n, n, generator=torch.Generator().manual_seed(seed), dtype=values.dtype)
    )
    K = (Q * values) @ Q.T
    return (K + K.T) / 2


def rbf(n: int, width: float, dtype: torch.dtype = torch.float64) -> Tensor:
    """The Gaussian kernel of n points on a line: its eigenvalues fall faster than exponentially."""
    x = torch.linspace(0, 1, n, dtype=dtype)
    return torch.exp(-((x[:, None] - x) ** 2) / (2 * width**2))


OPERATORS = {
    "tensor": lambda K: K,
    "array": lambda K: K.numpy(),
    "dense": DenseOperator,
    "factor": lambda K: FactorOperator(torch.linalg.cholesky(K)),
    "lazy": Lazy,
    "lazy undeclared": lambda K: Lazy(K, symmetric=False),
    "composed": lambda K: (
        (0.5 * Lazy(K) + DenseOperator(K / 2)).shift(0.25) + DenseOperator(K * 0).shift(-0.25)
    ),
}


@every_dtype
@pytest.mark.parametrize("make", OPERATORS.values(), ids=OPERATORS.keys())
@every_method
def test_solves_positive_definite_systems(method: Method, make, dtype):
    K = matrix_of(torch.linspace(0.5, 15, 12, dtype=dtype))
    for y in (torch.randn(12, dtype=dtype), torch.randn(12, 5, dtype=dtype)):
        solution = solve(make(K), y, method=method)
        expected = torch.linalg.solve(K.double(), y.double())
        assert solution.converged, solution.message
        assert solution.value.shape == y.shape
        assert solution.value.dtype == dtype
        error = (solution.value.double() - expected).norm() / expected.norm()
        assert error < TOLERANCE[dtype]
        assert_residual_is_true(solution, K, y)


def assert_residual_is_true(solution: Solution, K: Tensor, y: Tensor) -> None:
    K, y, x = K.double(), y.double().reshape(len(y), -1), solution.value.double().reshape(len(y), -1)
    residuals = (K @ x - y).norm(dim=0) / y.norm(dim=0)
    noise = 1e-4 if solution.value.dtype == torch.float32 else 1e-12
    torch.testing.assert_close(solution.details["residuals"].double(), residuals, rtol=1e-3, atol=noise)
    assert solution.residual == float(solution.details["residuals"].max())


@every_method
@settings(max_examples=15, deadline=None)
@given(n=st.integers(1, 12), c=st.integers(1, 4), seed=st.integers(0, 10**6))
def test_solves_systems_of_any_size(method: Method, n, c, seed):
    generator = torch.Generator().manual_seed(seed)
    A, y = (torch.randn(n, size, generator=generator, dtype=torch.float64) for size in (n, c))
    K = A @ A.T / n + torch.eye(n, dtype=torch.float64)
    solution = solve(K, y, method=method)
    assert solution.converged
    torch.testing.assert_close(solution.value, torch.linalg.solve(K, y), rtol=1e-5, atol=1e-6)


@every_method
def test_ridge_is_added_to_the_diagonal(method: Method):
    K, y = rbf(20, 0.3), torch.randn(20, 2, dtype=torch.float64)
    shifted = K + 0.1 * torch.eye(20, dtype=torch.float64)
    solution = solve(K, y, ridge=0.1, method=method)
    assert solution.converged
    torch.testing.assert_close(solution.value, torch.linalg.solve(shifted, y), rtol=1e-5, atol=1e-6)
    assert_residual_is_true(solution, shifted, y)


@every_method
def test_zero_right_hand_sides_have_zero_solutions(method: Method):
    y = torch.stack([torch.zeros(8), torch.ones(8)], dim=1).double()
    solution = solve(matrix_of(torch.linspace(1, 2, 8, dtype=torch.float64)), y, method=method)
    assert solution.converged
    assert not solution.value[:, 0].any()
    assert solution.value[:, 1].any()


@every_method
def test_inputs_are_left_as_they_were(method: Method):
    K, y = rbf(9, 0.3), torch.ones(9, dtype=torch.float64)
    before = K.clone(), y.clone()
    solve(K, y, ridge=0.1, method=method)
    assert torch.equal(K, before[0])
    assert torch.equal(y, before[1])


# Singular, ill conditioned and indefinite ---------------------------------------------------------------


@every_dtype
def test_eigen_is_the_pseudo_inverse(dtype):
    values = torch.tensor([3.0, -2.0, 1.0, 0.0, 0.0, 0.5, 0.0], dtype=dtype)
    K, y = matrix_of(values), torch.randn(7, 3, dtype=dtype)
    solution = solve(K, y, method=Eigen())
    expected = torch.linalg.pinv(K.double(), rtol=1e-5, hermitian=True) @ y.double()
    torch.testing.assert_close(solution.value.double(), expected, rtol=1e-3, atol=1e-4)
    assert solution.details["rank"] == 4
    assert "4 of 7" in solution.message
    assert_residual_is_true(solution, K, y)
    # What is left of y stands at right angles to the range of K.
    assert (K @ (K @ solution.value - y)).abs().max() < 1e-4


def test_eigen_cuts_at_the_given_tolerance():
    K = torch.diag(torch.tensor([1.0, 1e-2, 1e-4], dtype=torch.float64))
    y = torch.ones(3, dtype=torch.float64)
    for rtol, rank in ((1e-1, 1), (1e-3, 2), (1e-5, 3), (1.0, 0)):
        solution = solve(K, y, method=Eigen(rtol=rtol))
        assert solution.details["rank"] == rank
        expected = torch.where(torch.arange(3) < rank, 1 / K.diagonal(), 0.0)
        torch.testing.assert_close(solution.value, expected)


@every_dtype
def test_cholesky_reports_its_jitter(dtype):
    K = torch.ones(6, 6, dtype=dtype)
    reachable, unreachable = torch.full((6,), 3.0, dtype=dtype), torch.arange(6, dtype=dtype)
    solution = solve(K, reachable, method=Cholesky())
    assert 0 < solution.details["jitter"] <= torch.finfo(dtype).eps ** 0.5
    assert f"jitter of {solution.details['jitter']:.3g}" in solution.message
    assert solution.converged
    solution = solve(K, unreachable, method=Cholesky())
    assert not solution.converged
    assert solution.residual > 0.1
    assert "ridge" in solution.message
    assert solve(K, reachable, ridge=1.0, method=Cholesky()).details["jitter"] == 0


def test_cholesky_adds_no_more_jitter_than_allowed():
    K = torch.ones(6, 6, dtype=torch.float64)
    with pytest.raises(NumericalError, match="not positive definite"):
        solve(K, K[0], method=Cholesky(max_jitter=0.0))


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_cholesky_adds_at_most_ten_times_the_jitter_that_is_needed(scale):
    K = matrix_of(scale * torch.tensor([-1e-4, 1.0, 1.0], dtype=torch.float64))
    jitter = solve(K, K[0], method=Cholesky(max_jitter=1.0)).details["jitter"]
    assert 1e-4 * scale < jitter <= 10 * 1e-4 * scale


@every_dtype
@pytest.mark.parametrize("ridge", [0.0, 0.3])
@pytest.mark.parametrize("method", [Cholesky(), Auto()], ids=["cholesky", "auto"])
def test_cholesky_names_the_smallest_eigenvalue_and_a_ridge_that_would_do(method, ridge, dtype):
    K, y = matrix_of(torch.tensor([-1.25, 0.0, 2.0, 40.0], dtype=dtype)), torch.ones(4, dtype=dtype)
    with pytest.raises(NumericalError, match="not positive definite") as caught:
        solve(K, y, ridge=ridge, method=method)
    assert caught.value.got is not None
    assert float(re.match(r"[-\d.e]+", str(caught.value.got))[0]) == pytest.approx(-1.25, rel=1e-2)  # type: ignore[index]
    enough = float(re.search(r"ridge=([\d.e+-]+)", str(caught.value.hint))[1])  # type: ignore[index]
    solution = solve(K, y, ridge=enough, method=method)
    assert solution.converged
    assert solution.details["jitter"] == 0


def test_the_pseudo_inverse_of_zero_is_zero():
    solution = solve(torch.zeros(3, 3), torch.ones(3), method=Eigen())
    assert not solution.value.any()
    assert solution.details["rank"] == 0
    assert solution.residual == 1


# What is refused ----------------------------------------------------------------------------------------


@every_method
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_non_finite_input_is_refused(method: Method, bad):
    K = torch.eye(4, dtype=torch.float64)
    spoiled = K.clone()
    spoiled[1, 1] = bad
    y = torch.ones(4, dtype=torch.float64)
    with pytest.raises(NumericalError, match="non-finite"):
        solve(spoiled, y, method=method)
    with pytest.raises(NumericalError, match="non-finite"):
        solve(Lazy(spoiled), y, method=method)
    with pytest.raises(NumericalError, match="non-finite right-hand side"):
        solve(K, y * bad, method=method)


@every_method
def test_asymmetric_input_is_refused(method: Method):
    K = torch.eye(3)
    K[0, 1] = 0.5
    with pytest.raises(NumericalError, match=r"got 0\.5 of it"):
        solve(K, torch.ones(3), method=method)
    with pytest.raises(InputError, match="not square"):
        solve(K[:, :2], torch.ones(3), method=method)


@pytest.mark.parametrize(
    "y",
    [torch.ones(4), torch.ones(3, 1, 1), torch.ones(()), torch.ones(3, 0), torch.ones(3).double(), [1.0] * 3],
    ids=lambda y: str(getattr(y, "shape", y)),
)
def test_right_hand_sides_that_do_not_fit_are_refused(y):
    with pytest.raises(InputError, match="right-hand side"):
        solve(torch.eye(3), y)


@pytest.mark.parametrize("ridge", [-1e-3, float("nan"), float("inf")])
def test_bad_ridges_are_refused(ridge):
    with pytest.raises(InputError, match="ridge"):
        solve(torch.eye(3), torch.ones(3), ridge=ridge)


def test_labels_may_be_an_array():
    solution = solve(np.eye(3), np.arange(3.0))
    torch.testing.assert_close(solution.value, torch.arange(3.0, dtype=torch.float64))


@pytest.mark.parametrize("method", [Cholesky(memory=8), Eigen(memory=8)], ids=["cholesky", "eigen"])
def test_direct_methods_keep_to_their_budget(method):
    with pytest.raises(BudgetError, match="72 bytes"):
        solve(Lazy(torch.eye(3, dtype=torch.float64)), torch.ones(3, dtype=torch.float64), method=method)


def test_auto_chooses_by_memory():
    K = DenseOperator(torch.eye(10))
    assert isinstance(Auto(memory=3 * K.nbytes).choose(K), Cholesky)
    assert isinstance(Auto(memory=3 * K.nbytes - 1).choose(K), CG)
