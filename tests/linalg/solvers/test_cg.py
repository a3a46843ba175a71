"""Conjugate gradients: how many steps, for which columns, and what it says when it fails."""

import pytest
import torch
from torch import Tensor

from tangentkit.core.errors import InputError
from tangentkit.core.seeds import Key
from tangentkit.linalg import CG, Nystrom, PivotedCholesky, as_operator, solve

PRECONDITIONERS = {"nystrom": Nystrom(40, Key(0)), "pivoted": PivotedCholesky(40)}
every_preconditioner = pytest.mark.parametrize(
    "preconditioner", PRECONDITIONERS.values(), ids=PRECONDITIONERS.keys()
)


def matrix_of(values: Tensor) -> Tensor:
    Q, _ = torch.linalg.qr(torch.randn(len(values), len(values), dtype=values.dtype))
    K = (Q * values) @ Q.T
    return (K + K.T) / 2


def rbf(n: int, width: float) -> Tensor:
    x = torch.linspace(0, 1, n, dtype=torch.float64)
    return torch.exp(-((x[:, None] - x) ** 2) / (2 * width**2))


@pytest.mark.parametrize("distinct", [1, 2, 5])
def test_steps_are_the_number_of_distinct_eigenvalues(distinct):
    K = matrix_of(torch.arange(1.0, distinct + 1, dtype=torch.float64).repeat(20 // distinct))
    solution = solve(K, torch.randn(len(K), dtype=torch.float64), method=CG())
    assert solution.converged
    assert solution.steps == distinct


def test_every_column_stops_when_it_is_done():
    K = matrix_of(torch.linspace(1, 50, 30, dtype=torch.float64))
    vectors = torch.linalg.eigh(K).eigenvectors
    y = torch.stack([vectors[:, 3], vectors[:, 3] + vectors[:, 9], torch.randn(30).double()], dim=1)
    solution = solve(K, y, method=CG())
    steps = solution.details["steps"].tolist()
    assert steps[:2] == [1, 2]
    assert steps[2] == solution.steps > 5
    assert solution.details["converged"].all()


def test_columns_do_not_disturb_each_other():
    K, Y = rbf(30, 0.1) + 0.1 * torch.eye(30), torch.randn(30, 4, dtype=torch.float64)
    together = solve(K, Y, method=CG())
    for y, x in zip(Y.T, together.value.T, strict=True):
        torch.testing.assert_close(solve(K, y, method=CG()).value, x, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rtol", [1e-2, 1e-5, 1e-10])
def test_the_true_residual_meets_the_tolerance(rtol):
    K, y = rbf(60, 0.05), torch.randn(60, 3, dtype=torch.float64)
    solution = solve(K, y, ridge=1e-4, method=CG(rtol=rtol))
    true = (K @ solution.value + 1e-4 * solution.value - y).norm(dim=0) / y.norm(dim=0)
    assert solution.converged
    assert (true <= rtol * (1 + 1e-6)).all()


@pytest.mark.parametrize("max_steps", [0, 1, 7])
def test_running_out_of_steps_is_a_field_of_the_solution(max_steps):
    solution = solve(rbf(100, 0.05), torch.randn(100).double(), ridge=1e-6, method=CG(max_steps=max_steps))
    assert not solution.converged
    assert solution.steps == max_steps
    assert "ill conditioned" in solution.message
    assert "Nystrom" in solution.message
    assert solution.residual > 1e-8


def test_an_indefinite_system_is_a_field_of_the_solution():
    K = matrix_of(torch.linspace(-3, 5, 20, dtype=torch.float64))
    solution = solve(K, torch.randn(20).double(), method=CG())
    assert not solution.converged
    assert "not positive definite" in solution.message
    assert solution.steps <= 20
    assert torch.isfinite(solution.value).all()
    assert solve(K, torch.randn(20).double(), ridge=4.0, method=CG()).converged


def test_rounding_is_named_where_it_stops_the_progress():
    K, y = matrix_of(torch.logspace(0, 3, 40)), torch.randn(40)
    solution = solve(K, y, method=CG(rtol=1e-12))
    assert not solution.converged
    assert "float64" in solution.message
    assert solution.steps < 1000
    assert solution.residual < 1e-3


def test_singular_systems_with_a_solution_are_solved():
    K = matrix_of(torch.cat([torch.zeros(10), torch.linspace(1, 2, 10)]).double())
    y = K @ torch.randn(20).double()
    solution = solve(K, y, method=CG())
    assert solution.converged
    torch.testing.assert_close(solution.value, torch.linalg.pinv(K, rtol=1e-8) @ y, rtol=1e-5, atol=1e-6)


@every_preconditioner
def test_preconditioners_save_steps(preconditioner):
    K, y = rbf(300, 0.03), torch.randn(300, 2).double()
    plain = solve(K, y, ridge=1e-5, method=CG())
    better = solve(K, y, ridge=1e-5, method=CG(preconditioner=preconditioner))
    assert plain.converged
    assert better.converged
    assert better.steps < plain.steps / 4
    torch.testing.assert_close(
        better.value, plain.value, rtol=1e-2, atol=1e-2 * float(plain.value.abs().max())
    )


@every_preconditioner
def test_a_preconditioner_of_full_rank_leaves_two_eigenvalues(preconditioner):
    A = torch.randn(50, 8, dtype=torch.float64)
    solution = solve(
        A @ A.T, torch.randn(50, 3).double(), ridge=1e-3, method=CG(preconditioner=preconditioner)
    )
    assert solution.converged
    assert solution.steps <= 3


@pytest.mark.parametrize(
    "preconditioner", [Nystrom(8, Key(1)), PivotedCholesky(8)], ids=["nystrom", "pivoted"]
)
def test_roots_recover_matrices_of_low_rank(preconditioner):
    A = torch.randn(30, 8, dtype=torch.float64)
    L = preconditioner.root(as_operator(A @ A.T))
    torch.testing.assert_close(L @ L.T, A @ A.T, rtol=1e-6, atol=1e-8)


@every_preconditioner
@pytest.mark.parametrize(
    "K", [torch.zeros(5, 5), -torch.eye(5), torch.eye(1)], ids=["zero", "negative", "1x1"]
)
def test_preconditioners_bear_matrices_without_a_positive_part(preconditioner, K):
    solution = solve(K, torch.ones(len(K)), ridge=2.0, method=CG(preconditioner=preconditioner))
    assert solution.converged
    torch.testing.assert_close(solution.value, 1 / (K.diagonal() + 2))


@every_preconditioner
def test_a_preconditioner_is_symmetric_and_positive(preconditioner):
    apply = preconditioner.prepare(as_operator(rbf(60, 0.1)), ridge=1e-3)
    P = apply(torch.eye(60, dtype=torch.float64))
    torch.testing.assert_close(P, P.T)
    assert torch.linalg.eigvalsh(P).min() > 0


def test_nystrom_follows_its_key():
    K = as_operator(rbf(40, 0.01))
    first, again, other = (Nystrom(5, Key(seed)).root(K) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.allclose(first @ first.T, other @ other.T)


def test_bad_options_are_refused():
    for make in (lambda: CG(rtol=0.0), lambda: CG(rtol=float("nan")), lambda: CG(max_steps=-1)):
        with pytest.raises(InputError):
            make()
    for make in (lambda: Nystrom(0, Key(0)), lambda: PivotedCholesky(-1)):
        with pytest.raises(InputError, match="rank"):
            make()
