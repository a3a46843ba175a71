"""Landmarks: all of them are kernel regression; two solvers, three kinds of kernel, any budget give one answer."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import Ridge

from tangentkit.core.errors import InputError, NumericalError
from tangentkit.core.seeds import Key
from tangentkit.linalg import Operator
from tangentkit.machines import KernelRegression, NystromRegression

SOLVERS = ["direct", "falkon"]


def rbf(x, y):
    return torch.exp(-torch.cdist(x, y).square() / 2)


def samples(n, d=2, *, seed=0, dtype=torch.float64):
    return torch.randn(n, d, dtype=torch.float64, generator=Key(seed).fold(n, d).torch()).to(dtype)


class Stored(Operator):
    """A matrix that gives blocks and nothing else, as one on disk does."""

    def __init__(self, matrix):
        super().__init__(matrix.shape, dtype=matrix.dtype, device="cpu", symmetric=True)
        self.matrix, self.read = matrix, 0

    def block(self, rows, cols):
        self.read += 1
        return self.matrix[rows, cols]


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("weighted", [False, True])
def test_with_all_samples_it_is_kernel_regression(solver, weighted):
    x, z, y = samples(60), samples(9, seed=1), samples(60, 3, seed=2)
    w = torch.linspace(0.2, 2, 60, dtype=torch.float64) if weighted else None
    exact = KernelRegression(rbf, ridge=1e-2).fit(x, y, w)
    machine = NystromRegression(rbf, landmarks=60, ridge=1e-2, solver=solver).fit(x, y, w)
    torch.testing.assert_close(machine.predict(z), exact.predict(z), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("solver", SOLVERS)
def test_it_is_scikit_learns_nystroem_and_ridge(solver):
    x, z, y = (part.numpy() for part in (samples(200), samples(9, seed=1), samples(200, 2, seed=2)))
    theirs = Nystroem("rbf", gamma=0.5, n_components=15, random_state=0).fit(x)
    ridge = Ridge(alpha=0.1, fit_intercept=False).fit(theirs.transform(x), y)

    def kernel(x, y):
        return np.exp(-0.5 * ((x[:, None] - y[None]) ** 2).sum(-1))

    ours = NystromRegression(kernel, landmarks=theirs.component_indices_, ridge=0.1, solver=solver).fit(x, y)
    np.testing.assert_allclose(ours.predict(z), ridge.predict(theirs.transform(z)), rtol=1e-5, atol=1e-6)


@settings(deadline=None, max_examples=20)
@given(st.integers(2, 40), st.integers(1, 40), st.integers(1, 3), st.booleans())
def test_solvers_agree_at_all_sizes(n, m, c, weighted):
    x, y = samples(n, seed=n), samples(n, c, seed=m)
    w = torch.arange(n) % 3 + 1 if weighted else None
    a, b = (NystromRegression(rbf, landmarks=m, ridge=0.1, solver=s).fit(x, y, w) for s in SOLVERS)
    assert len(a.landmarks_) == min(m, n)
    torch.testing.assert_close(a.predict(x), b.predict(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("memory", [None, 20_000])
def test_functions_matrices_and_stored_operators_give_the_same(solver, memory):
    x, z, y = samples(80), samples(9, seed=1), samples(80, 1, seed=2)[:, 0]
    options = {"landmarks": 20, "ridge": 1e-2, "solver": solver, "memory": memory}
    function = NystromRegression(rbf, **options).fit(x, y)
    K, stored = rbf(x, x), Stored(rbf(x, x))
    for X in (K, stored):
        machine = NystromRegression(**options).fit(X, y)
        torch.testing.assert_close(machine.dual_coef_, function.dual_coef_, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(machine.predict(rbf(z, x)), function.predict(z), rtol=1e-6, atol=1e-6)
    features = NystromRegression("features", **options).fit(x, y)
    linear = NystromRegression(lambda x, y: x @ y.T, **options).fit(x, y)
    torch.testing.assert_close(features.predict(z), linear.predict(z))


def test_a_stored_operator_that_fits_is_read_once():
    x, y = samples(80), samples(80, 1)[:, 0]
    stored = Stored(rbf(x, x))
    NystromRegression(landmarks=20, solver="falkon", ridge=1e-2).fit(stored, y)
    assert stored.read == 1  # one strip holds all rows


@pytest.mark.parametrize("solver", SOLVERS)
def test_kernels_in_float32_are_solved_as_well_as_they_are_given(solver):
    x, y = samples(300, dtype=torch.float32), samples(300, 1)[:, 0]
    machine = NystromRegression(rbf, landmarks=50, ridge=0.1, solver=solver).fit(x, y)
    centers = x[machine.landmarks_]
    # The same equations by least squares in float64, with the jitter that float32 needs.
    C, M = rbf(x, centers).double(), rbf(centers, centers).double()
    M = (M + M.T) / 2 + 10 * torch.finfo(torch.float32).eps * torch.eye(50)
    root = torch.linalg.cholesky(M).T
    rows, targets = torch.cat([C, 0.1**0.5 * root]), torch.cat([y, torch.zeros(50)])[:, None]
    expected = C @ torch.linalg.lstsq(rows, targets, driver="gelsd").solution[:, 0]
    assert machine.predict(x).dtype == torch.float32
    assert machine.converged_
    assert float((machine.predict(x) - expected).norm() / expected.norm()) < 1e-2


def test_landmarks_come_from_the_seed():
    x, y = samples(50), samples(50, 1)[:, 0]
    one, same, other = (NystromRegression(rbf, landmarks=10, seed=s).fit(x, y).landmarks_ for s in (0, 0, 1))
    np.testing.assert_array_equal(one, same)
    assert set(one.tolist()) != set(other.tolist())


def test_auto_says_what_it_chose_and_why():
    x, y = samples(30), samples(30, 1)[:, 0]
    machine = NystromRegression(rbf, landmarks=5).fit(x, y)
    assert (machine.solver_, "a second" in machine.reason_) == ("direct", True)
    assert machine._solver(1e12)[0] == "falkon"


def test_bad_landmarks_and_options_are_refused():
    x, y = samples(20), samples(20, 1)[:, 0]
    with pytest.raises(InputError, match="bad landmarks: expected different indices from 0 to 19"):
        NystromRegression(rbf, landmarks=[0, 20]).fit(x, y)
    with pytest.raises(InputError, match="bad landmarks: expected different indices"):
        NystromRegression(rbf, landmarks=[3, 3]).fit(x, y)
    with pytest.raises(InputError, match="bad number of landmarks: expected at least 1"):
        NystromRegression(rbf, landmarks=0).fit(x, y)
    with pytest.raises(InputError, match="bad ridge: expected a finite number > 0"):
        NystromRegression(rbf, ridge=0.0).fit(x, y)
    with pytest.raises(InputError, match="bad tol: expected a finite number > 0, got 0"):
        NystromRegression(rbf, tol=0).fit(x, y)
    with pytest.raises(KeyError, match=r"unknown solver 'falcon'.*'falkon'"):
        NystromRegression(rbf, solver="falcon").fit(x, y)
    with pytest.raises(
        InputError,
        match=r"targets do not match the samples: expected shape \(20,\) or \(20, c\), got \(19,\)",
    ):
        NystromRegression(rbf).fit(x, y[:-1])
    with pytest.raises(NumericalError, match=r"not positive definite.*got -"):
        NystromRegression(lambda x, y: -rbf(x, y)).fit(x, y)
    with pytest.raises(NumericalError, match="not symmetric"):
        NystromRegression(lambda x, y: x[:, :1] - y[:, :1].T).fit(x, y)
    with pytest.raises(InputError, match="landmarks need a kernel with one output"):
        NystromRegression(lambda x, y: torch.einsum("ij,ab->iajb", rbf(x, y), torch.eye(2).double())).fit(
            x, y
        )
    with pytest.warns(ConvergenceWarning, match="not converged after 1 step"):
        NystromRegression(rbf, ridge=1e-8, solver="falkon", max_steps=1, landmarks=15).fit(x, y)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_large_landmark_is_no_ridge_for_all_others(dtype):
    generator = torch.Generator().manual_seed(0)
    x, z = (torch.randn(n, 4, generator=generator, dtype=torch.float64) for n in (100, 30))
    x[0] *= 1e3

    def kernel(a, b):
        return (1 + a @ b.T) ** 2

    y = torch.sin(x[:, 1])
    exact = kernel(z, x) @ torch.linalg.solve(kernel(x, x) + torch.eye(100), y)
    machine = NystromRegression(kernel=kernel, landmarks=100, ridge=1.0).fit(x.to(dtype), y.to(dtype))
    assert (machine.predict(z.to(dtype)) - exact).norm() < 1e-3 * exact.norm()
