"""Kernel logistic regression against scikit-learn's, against its own equations, and where there is no optimum."""

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from torch import nn

from tangentkit.core.errors import BudgetError
from tangentkit.core.seeds import Key
from tangentkit.empirical import TangentKernel
from tangentkit.machines import KernelLogistic


def problem(n=40, d=4, classes=3, *, seed=0):
    draw = Key(seed).fold(n, d, classes).numpy()
    x = draw.standard_normal((n, d))
    scores = x @ draw.standard_normal((d, classes)) + draw.gumbel(size=(n, classes))
    return x, scores.argmax(1), draw.standard_normal((7, d))


def linear(x, y):
    return x @ y.T


@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("ridge", [1e-3, 1.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_on_a_linear_kernel_it_is_scikit_learns(classes, ridge, weighted):
    x, y, z = problem(classes=classes)
    w = np.linspace(0.2, 3, len(y)) if weighted else None
    theirs = LogisticRegression(C=1 / ridge, fit_intercept=False, solver="newton-cholesky", tol=1e-12).fit(
        x, y, w
    )
    ours = KernelLogistic(linear, ridge=ridge).fit(x, y, w)
    np.testing.assert_allclose(ours.predict_proba(z), theirs.predict_proba(z), atol=1e-6)
    np.testing.assert_array_equal(ours.predict(z), theirs.predict(z))
    given = KernelLogistic(ridge=ridge).fit(x @ x.T, y, w)
    np.testing.assert_allclose(given.decision_function(z @ x.T), ours.decision_function(z), atol=1e-8)
    assert ours.converged_


@pytest.mark.parametrize("classes", [2, 4])
def test_at_the_end_its_equations_hold(classes):
    x, y, _ = problem(classes=classes)
    K = np.exp(-0.5 * ((x[:, None] - x) ** 2).sum(-1))
    machine = KernelLogistic(ridge=0.05).fit(K, y)
    # Σ ℓ + ridge/2 αᵀ K α is least where ridge α = χ - p.
    p = machine.predict_proba(K)
    gap = np.eye(classes)[y] - p
    np.testing.assert_allclose(0.05 * machine.dual_coef_, gap if classes > 2 else gap[:, 1], atol=1e-5)


def test_block_kernels_end_where_their_equations_hold():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    x, y = torch.randn(12, 2, dtype=torch.float64), torch.arange(12) % 3
    machine = KernelLogistic(TangentKernel(model, outputs="full"), ridge=0.3).fit(x, y)
    # The objective is convex, so this is its minimum, outputs being coupled by the kernel.
    gap = torch.eye(3, dtype=torch.float64)[y] - machine.predict_proba(x)
    torch.testing.assert_close(0.3 * machine.dual_coef_, gap, rtol=1e-6, atol=1e-6)
    assert machine.converged_


def test_a_block_kernel_without_coupling_is_the_plain_kernel():
    x, y, z = (torch.from_numpy(part) for part in problem(n=15))
    K, k = x @ x.T, z @ x.T
    eye = torch.eye(3, dtype=torch.float64)
    block = KernelLogistic(ridge=0.1).fit(torch.einsum("ij,ab->iajb", K, eye), y)
    plain = KernelLogistic(ridge=0.1).fit(K, y)
    torch.testing.assert_close(
        block.predict_proba(torch.einsum("ij,ab->iajb", k, eye)), plain.predict_proba(k), rtol=1e-6, atol=1e-7
    )


@pytest.mark.parametrize("classes", [2, 3])
def test_separable_data_have_no_optimum_and_it_says_so(classes):
    x = np.arange(4 * classes, dtype=float)[:, None]
    y = np.repeat(np.arange(classes), 4)
    K = np.exp(-0.5 * (x - x.T) ** 2)
    with pytest.warns(ConvergenceWarning, match="separable and ridge is 0: the optimum is at infinity"):
        machine = KernelLogistic(ridge=0.0, max_iter=15).fit(K, y)
    assert not machine.converged_
    assert machine.n_iter_ <= 15
    np.testing.assert_array_equal(machine.predict(K), y)
    assert np.isfinite(machine.predict_proba(K)).all()


def test_the_limit_of_steps_is_reported():
    x, y, _ = problem(classes=2)
    with pytest.warns(ConvergenceWarning, match="stopped after 1 step,"):
        machine = KernelLogistic(linear, ridge=1e-3, max_iter=1).fit(x, y)
    assert (machine.converged_, machine.n_iter_) == (False, 1)


def test_without_a_ridge_and_with_few_features_it_is_maximum_likelihood():
    x, y, z = problem(n=200, d=2, classes=2)
    theirs = LogisticRegression(C=np.inf, fit_intercept=False, solver="newton-cholesky", tol=1e-12).fit(x, y)
    ours = KernelLogistic(linear, ridge=0.0).fit(x, y)
    assert ours.converged_
    np.testing.assert_allclose(ours.predict_proba(z), theirs.predict_proba(z), atol=1e-6)


def test_large_logits_do_not_overflow():
    x, y, _ = problem(classes=3)
    machine = KernelLogistic(linear, ridge=1e-8).fit(1e3 * x, y)
    assert np.isfinite(machine.objective_)
    assert machine.converged_


def test_a_step_that_does_not_fit_is_refused():
    x, y, _ = problem(classes=3)
    with pytest.raises(BudgetError, match=r"Newton step.*KernelGLM"):
        KernelLogistic(ridge=1.0, memory=40 * 40 * 8 * 2 - 1).fit(x @ x.T, y)


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_in_features_it_is_what_it_is_on_their_kernel(classes, dtype):
    x, y, z = problem(n=60, classes=classes)
    x, z, w = x.astype(dtype), z.astype(dtype), np.linspace(0, 2, 60)
    inside = KernelLogistic("features", ridge=1e-2).fit(x, y, w)
    exact = x.astype(float)
    outside = KernelLogistic(ridge=1e-2).fit(exact @ exact.T, y, w)
    np.testing.assert_allclose(inside.objective_, outside.objective_, rtol=1e-8)
    np.testing.assert_allclose(
        inside.decision_function(z), outside.decision_function(z @ exact.T), rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(inside.portable().predict_proba(z), inside.predict_proba(z))
    assert inside.coef_.shape == ((4,) if classes == 2 else (4, classes))
    assert inside.X_fit_ is None
    with pytest.raises(AttributeError, match="coef_"):
        inside.dual_coef_  # noqa: B018
    with pytest.raises(AttributeError, match="dual_coef_"):
        outside.coef_  # noqa: B018


def test_more_features_than_samples_are_solved_in_the_samples():
    x, y, z = problem(n=20, d=30, classes=3)
    inside, outside = (
        KernelLogistic("features", ridge=1.0).fit(x, y),
        KernelLogistic(ridge=1.0).fit(x @ x.T, y),
    )
    np.testing.assert_allclose(inside.decision_function(z), outside.decision_function(z @ x.T), atol=1e-8)
    assert inside.dual_coef_.shape == (20, 3)


@pytest.mark.parametrize("ridge", [1e-2, 1e-6, 1e-12])
@pytest.mark.parametrize("classes", [2, 3])
def test_a_kernel_of_low_rank_is_fitted_whatever_its_null_space_does(ridge, classes):
    x, y, z = problem(n=80, d=3, classes=classes)
    ours = KernelLogistic(ridge=ridge).fit(x @ x.T, y)
    theirs = LogisticRegression(C=1 / ridge, fit_intercept=False, solver="newton-cholesky", tol=1e-12).fit(
        x, y
    )
    assert ours.converged_
    np.testing.assert_allclose(ours.predict_proba(z @ x.T), theirs.predict_proba(z), atol=1e-5)
