"""Kernel regression: every solver against the reference, against a second route, and against refits."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF
from sklearn.linear_model import Ridge
from torch import nn

from tangentkit import reference
from tangentkit.compute import gram
from tangentkit.core.errors import NumericalError
from tangentkit.core.seeds import Key
from tangentkit.empirical import ConjugateKernel, TangentKernel
from tangentkit.linalg import CG, Eigen, FactorOperator, Nystrom, PivotedCholesky
from tangentkit.machines import KernelRegression, NystromRegression
from tangentkit.machines.solvers.normal_equations import normal_equations, products_of_columns

DUAL = ["cholesky", "eigh", "cg"]
ALL = [*DUAL, "features", "normal"]


def features(n, d, *, seed=0):
    return torch.randn(n, d, dtype=torch.float64, generator=Key(seed).fold(n, d).torch())


def kernel_of(n, *, seed=0):
    Phi = features(n, n + 5, seed=seed)
    return Phi @ Phi.T / n


def network(outputs=2):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, outputs)).double()


@pytest.mark.parametrize("solver", DUAL)
@pytest.mark.parametrize("ridge", [0.0, 0.3])
@pytest.mark.parametrize("c", [None, 3])
def test_dual_solvers_agree_with_the_reference(solver, ridge, c):
    K, k = kernel_of(30), features(7, 30)
    y = features(30, c or 1, seed=2) if c else features(30, 1, seed=2)[:, 0]
    machine = KernelRegression(ridge=ridge, solver=solver).fit(K, y)
    expected = reference.kernel_regression(K, y, k, ridge=ridge)
    torch.testing.assert_close(machine.predict(k), expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(k @ machine.dual_coef_, machine.predict(k))
    assert machine.solver_ == solver
    assert machine.converged_


@pytest.mark.parametrize("solver", ALL)
@pytest.mark.parametrize("shape", [(40, 6), (12, 30)])
def test_primal_and_dual_agree_on_features_with_weights(solver, shape):
    n, d = shape
    Phi, z, y = features(n, d), features(5, d, seed=1), features(n, 2, seed=2)
    w = features(n, 1, seed=3)[:, 0].square()
    machine = KernelRegression("features", ridge=0.2, solver=solver).fit(Phi, y, w)
    # The normal equations of the weighted objective, spelled out.
    gamma = torch.linalg.solve(Phi.T @ (w[:, None] * Phi) + 0.2 * torch.eye(d), Phi.T @ (w[:, None] * y))
    torch.testing.assert_close(machine.predict(z), z @ gamma, rtol=1e-6, atol=1e-7)
    coefficients = machine.coef_ if solver in ("features", "normal") else Phi.T @ machine.dual_coef_
    torch.testing.assert_close(coefficients, gamma, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("solver", ["eigh", "features", "auto"])
def test_the_weighted_pseudo_inverse_of_the_specification(solver):
    Phi, z, y = features(30, 4), features(6, 4, seed=1), features(30, 1, seed=2)[:, 0]
    w = features(30, 1, seed=3)[:, 0].square()
    root = torch.diag(w.sqrt())
    H = Phi @ Phi.T
    expected = z @ Phi.T @ root @ torch.linalg.pinv(root @ H @ root, hermitian=True, rtol=1e-12) @ root @ y
    torch.testing.assert_close(
        KernelRegression("features", solver=solver).fit(Phi, y, w).predict(z), expected, rtol=1e-8, atol=1e-8
    )


@pytest.mark.parametrize("solver", ALL)
def test_an_integer_weight_is_a_repeated_sample(solver):
    Phi, y, z = features(8, 5), features(8, 1, seed=1)[:, 0], features(4, 5, seed=2)
    times = torch.tensor([1, 2, 0, 3, 1, 1, 2, 1])
    weighted = KernelRegression("features", ridge=0.1, solver=solver).fit(Phi, y, times)
    repeated = KernelRegression("features", ridge=0.1, solver=solver).fit(
        Phi.repeat_interleave(times, 0), y.repeat_interleave(times)
    )
    torch.testing.assert_close(weighted.predict(z), repeated.predict(z), rtol=1e-6, atol=1e-7)


def test_features_do_not_square_the_condition_number():
    x = torch.linspace(0, 1, 60, dtype=torch.float64)
    Phi = x[:, None] ** torch.arange(11)
    y = Phi.sum(1)  # coefficients of one: the features can reach it exactly
    error = {
        solver: float((KernelRegression("features", solver=solver).fit(Phi, y).predict(Phi) - y).norm())
        for solver in ("features", "eigh")
    }
    condition = float(torch.linalg.cond(Phi))
    assert condition > 1e7
    assert error["features"] < 1e-12 * float(y.norm())
    assert error["features"] < error["eigh"]


@pytest.mark.parametrize("d", [1, 3, 130])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_normal_equations_are_sums_over_strips_of_rows(d, weighted, dtype):
    Phi, Y = features(70, d).to(dtype), features(70, 2, seed=1).to(dtype)
    w = features(70, 1, seed=2)[:, 0].square() if weighted else None
    strips = ((rows, Phi[rows]) for rows in (slice(0, 64), slice(64, 70)))
    A, B = normal_equations(strips, Y, w)
    W = (torch.ones(70, dtype=torch.float64) if w is None else w)[:, None]
    close = {"rtol": 0, "atol": 100 * 70 * torch.finfo(dtype).eps}
    torch.testing.assert_close(A, Phi.double().T @ (W * Phi.double()), **close)
    torch.testing.assert_close(B, Phi.double().T @ (W * Y.double()), **close)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "laid_out",
    [
        lambda x: x,
        lambda x: x.T.contiguous().T,
        lambda x: x.repeat_interleave(2, 1)[:, ::2],
        lambda x: x[:, :1],
    ],
    ids=["by rows", "by columns", "with gaps", "one column"],
)
def test_products_of_columns_of_any_layout(dtype, laid_out):
    phi = laid_out(features(9, 4).to(dtype))
    before = phi.clone()
    torch.testing.assert_close(products_of_columns(phi), phi.T @ phi)
    assert torch.equal(phi, before)


def test_of_all_fits_the_shortest():
    Phi, y = features(5, 12), features(5, 1, seed=1)[:, 0]
    machine = KernelRegression("features").fit(Phi, y)
    assert machine.solver_ == "features"
    torch.testing.assert_close(machine.coef_, torch.linalg.pinv(Phi) @ y)
    torch.testing.assert_close(machine.predict(Phi), y)


def test_the_cut_off_leaves_out_small_eigenvalues():
    values = torch.tensor([4.0, 1.0, 1e-6], dtype=torch.float64)
    Q, _ = torch.linalg.qr(features(3, 3))
    K, y = Q @ torch.diag(values) @ Q.T, features(3, 1, seed=1)[:, 0]
    K = (K + K.T) / 2
    cut = KernelRegression(solver="eigh", cutoff=1e-3).fit(K, y)
    same = KernelRegression(solver=Eigen(rtol=1e-3)).fit(K, y)
    top = Q[:, :2]
    torch.testing.assert_close(cut.predict(K), top @ (top.T @ y))
    torch.testing.assert_close(cut.dual_coef_, same.dual_coef_)
    torch.testing.assert_close(KernelRegression(solver="eigh").fit(K, y).predict(K), y)


@pytest.mark.parametrize("ridge", [0.0, 1e-9, 1e-5, 1e-3, 1.0])
def test_what_is_cut_off_is_never_blown_up_by_a_ridge(ridge):
    values = torch.tensor([4.0, 1.0, 1e-4, 1e-6], dtype=torch.float64)
    Q, _ = torch.linalg.qr(features(4, 4))
    K, y = Q @ torch.diag(values) @ Q.T, features(4, 1, seed=1)[:, 0]
    cut = KernelRegression(solver="eigh", cutoff=1e-4, ridge=ridge).fit((K + K.T) / 2, y)
    # Each eigenvector of K has its part λ / (λ + ridge); of those that count as zero no more may come through.
    parts = Q.T @ cut.predict(K) / (Q.T @ y)
    torch.testing.assert_close(parts[:2], values[:2] / (values[:2] + ridge))
    assert (parts[2:].abs() < 1).all()
    path = KernelRegression(solver="eigh", cutoff=1e-4).fit((K + K.T) / 2, y).ridge_path([ridge])[0]
    torch.testing.assert_close(path.predict(K), cut.predict(K))
    std = cut.predict(K, return_std=True, prior=K.diagonal())[1]
    exact = (K - K @ torch.linalg.inv(K + ridge * torch.eye(4)) @ K).diagonal().clamp(min=0).sqrt()
    torch.testing.assert_close(std, exact, rtol=0, atol=0.02)


@pytest.mark.parametrize("ridge", [1e-12, 1e-9, 1e-6])
def test_ridges_below_rounding_change_nothing(ridge):
    Phi, z, y = features(60, 4).float(), features(9, 4, seed=1).float(), features(60, 1, seed=2)[:, 0]
    exact = KernelRegression("features", ridge=ridge).fit(Phi.double(), y).predict(z.double())
    machine = KernelRegression(ridge=ridge, solver="eigh").fit(Phi @ Phi.T, y)
    torch.testing.assert_close(machine.predict(z @ Phi.T).double(), exact, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("solver", DUAL)
def test_block_kernels_couple_the_outputs(solver):
    model, x, z, y = network(), features(9, 3), features(4, 3, seed=1), features(9, 2, seed=2)
    jx, jz = reference.jacobian(model, x), reference.jacobian(model, z)
    K, k = reference.full_kernel(jx, jx), reference.full_kernel(jz, jx)
    expected = reference.kernel_regression(K.reshape(18, 18), y.reshape(18), k.reshape(8, 18), ridge=0.1)
    direct = KernelRegression(TangentKernel(model, outputs="full"), ridge=0.1, solver=solver).fit(x, y)
    torch.testing.assert_close(direct.predict(z), expected.reshape(4, 2), rtol=1e-6, atol=1e-6)
    assert direct.dual_coef_.shape == (9, 2)
    assert direct.blocks_ == 2
    for train, test in [(K, k), (K.reshape(18, 18), k.reshape(8, 18))]:
        given = KernelRegression(ridge=0.1, solver=solver).fit(train, y)
        torch.testing.assert_close(given.predict(test), expected.reshape(4, 2), rtol=1e-6, atol=1e-6)
        assert given.predict(test.numpy()).shape == (4, 2)


def test_the_lazy_form_is_the_linearized_network_trained_to_the_end():
    model, x, z, y = network(), features(9, 3), features(4, 3, seed=1), features(9, 2, seed=2)
    f0, f0_z = model(x).detach(), model(z).detach()
    J, Jz = (reference.jacobian(model, s).flatten(0, 1) for s in (x, z))
    u = torch.linalg.lstsq(J, (y - f0).flatten(), driver="gelsd").solution  # the shortest step that fits
    expected = f0_z + (Jz @ u).reshape(4, 2)
    kernel = TangentKernel(model, outputs="full")
    machine = KernelRegression(kernel, f0=model).fit(x, y)
    torch.testing.assert_close(machine.predict(z), expected, rtol=1e-6, atol=1e-6)
    given = KernelRegression().fit(kernel(x), y, f0=f0)
    torch.testing.assert_close(given.predict(kernel(z, x), f0=f0_z), expected, rtol=1e-6, atol=1e-6)
    # The network is kept as it was at `fit`.
    with torch.no_grad():
        model[2].bias += 1.0
    torch.testing.assert_close(machine.predict(z), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("solver", DUAL)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_posterior_is_that_of_a_gaussian_process(solver, weighted):
    x, z, y = features(20, 2).numpy(), features(6, 2, seed=1).numpy(), features(20, 1, seed=2)[:, 0].numpy()
    w = np.linspace(0.5, 2, 20) if weighted else np.ones(20)
    gp = GaussianProcessRegressor(RBF(1.3, "fixed"), alpha=0.1 / w, optimizer=None).fit(x, y)
    machine = KernelRegression(RBF(1.3), ridge=0.1, solver=solver).fit(x, y, w)
    for ours, theirs in zip(machine.predict(z, return_std=True), gp.predict(z, return_std=True), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        machine.predict(z, return_cov=True)[1], gp.predict(z, return_cov=True)[1], rtol=1e-5, atol=1e-6
    )
    given = KernelRegression(ridge=0.1, solver=solver).fit(RBF(1.3)(x), y, w)
    prior, k = RBF(1.3)(z), RBF(1.3)(z, x)
    np.testing.assert_allclose(
        given.predict(k, return_std=True, prior=np.diag(prior))[1],
        gp.predict(z, return_std=True)[1],
        rtol=1e-5,
    )
    np.testing.assert_allclose(
        given.predict(k, return_cov=True, prior=prior)[1],
        gp.predict(z, return_cov=True)[1],
        rtol=1e-5,
        atol=1e-6,
    )


@pytest.mark.parametrize("shape", [(30, 6), (8, 20)])
@pytest.mark.parametrize("solver", ["features", "normal", "eigh", "cg"])
def test_posterior_deviations_from_features_and_from_the_kernel_agree(shape, solver):
    Phi, z, y = features(*shape), features(5, shape[1], seed=1), features(shape[0], 2, seed=2)
    w = features(shape[0], 1, seed=3)[:, 0].square()
    dense = KernelRegression("features", ridge=0.1, solver="cholesky").fit(Phi, y, w)
    other = KernelRegression("features", ridge=0.1, solver=solver).fit(Phi, y, w)
    std = other.predict(z, return_std=True)[1]
    assert std.shape == (5, 2)
    torch.testing.assert_close(std, dense.predict(z, return_std=True)[1], rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(
        other.predict(z, return_cov=True)[1], dense.predict(z, return_cov=True)[1], rtol=1e-5, atol=1e-7
    )


def test_block_kernels_have_a_posterior_for_every_output():
    model, x, z, y = network(), features(6, 3), features(3, 3, seed=1), features(6, 2, seed=2)
    kernel = TangentKernel(model, outputs="full")
    machine = KernelRegression(kernel, ridge=0.1).fit(x, y)
    K, k, kz = kernel(x).reshape(12, 12), kernel(z, x).reshape(6, 12), kernel(z).reshape(6, 6)
    expected = kz - k @ torch.linalg.inv(K + 0.1 * torch.eye(12)) @ k.T
    torch.testing.assert_close(machine.predict(z, return_cov=True)[1], expected.reshape(3, 2, 3, 2))
    torch.testing.assert_close(
        machine.predict(z, return_std=True)[1], expected.diagonal().sqrt().reshape(3, 2)
    )


def refit_without(i, build, X, y, w, *, rows):
    keep = torch.arange(len(y)) != i
    machine = build().fit(rows(X, keep, keep), y[keep], None if w is None else w[keep])
    return y[i] - machine.predict(rows(X, ~keep, keep))[0]


@pytest.mark.parametrize("solver", ["cholesky", "eigh", "features"])
@pytest.mark.parametrize("shape", [(20, 5), (6, 12)])
@pytest.mark.parametrize("ridge", [0.0, 0.2])
@pytest.mark.parametrize("weighted", [False, True])
def test_leave_one_out_errors_are_those_of_refits(solver, shape, ridge, weighted):
    n, d = shape
    if solver == "cholesky" and ridge == 0 and d < n:
        pytest.skip("the kernel is singular, which Cholesky refuses")
    X, y = features(n, d), features(n, 2, seed=1)
    w = features(n, 1, seed=2)[:, 0].square() if weighted else None
    if weighted and ridge:
        w[3] = 0.0

    def build():
        return KernelRegression("features", ridge=ridge, solver=solver)

    errors = build().fit(X, y, w).leave_one_out()
    expected = torch.stack([refit_without(i, build, X, y, w, rows=lambda X, i, _: X[i]) for i in range(n)])
    torch.testing.assert_close(errors, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("solver", ["eigh", "features"])
@pytest.mark.parametrize("weighted", [False, True])
def test_leave_one_out_where_a_sample_alone_fixes_a_direction(solver, weighted):
    X = features(9, 6)
    X[1], X[2], X[3:] = (
        X[0],
        X[0],
        X[3:] * torch.tensor([1.0, 1, 1, 0, 0, 0]),
    )  # samples on their own, and not
    X[8] = torch.tensor([0.0, 0, 0, 0, 2, 1])
    y, w = features(9, 2, seed=1), features(9, 1, seed=2)[:, 0].square() if weighted else None

    def build():
        return KernelRegression("features", solver=solver)

    leverages = (X @ torch.linalg.pinv(X)).diagonal()
    assert ((leverages > 1 - 1e-12) == (torch.arange(9) == 8)).all()
    expected = torch.stack([refit_without(i, build, X, y, w, rows=lambda X, i, _: X[i]) for i in range(9)])
    torch.testing.assert_close(build().fit(X, y, w).leave_one_out(), expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("ridge", [0.0, 1e-5, 0.05])
def test_leave_one_out_of_a_singular_block_kernel(ridge):
    # Outputs that share features: of some samples one direction is fixed by the sample alone, of others both.
    Phi = features(5, 2 * 6).unflatten(1, (2, 6)) * torch.tensor([1.0, 1, 1, 1, 0, 0])
    Phi[4] = torch.eye(6, dtype=torch.float64)[4:]
    Phi[3, 0] = Phi[2, 0]
    K = torch.einsum("iap,jbp->iajb", Phi, Phi)
    y = features(5, 2, seed=1)

    def build():
        return KernelRegression(ridge=ridge, solver="eigh")

    expected = [refit_without(i, build, K, y, None, rows=lambda K, i, j: K[i][:, :, j]) for i in range(5)]
    torch.testing.assert_close(build().fit(K, y).leave_one_out(), torch.stack(expected), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("solver", ["cholesky", "eigh"])
def test_leave_one_out_of_a_block_kernel_leaves_out_all_outputs_of_a_sample(solver):
    model, x, y = network(), features(7, 3), features(7, 2, seed=1)
    K = TangentKernel(model, outputs="full")(x)

    def build():
        return KernelRegression(ridge=0.05, solver=solver)

    expected = [refit_without(i, build, K, y, None, rows=lambda K, i, j: K[i][:, :, j]) for i in range(7)]
    torch.testing.assert_close(build().fit(K, y).leave_one_out(), torch.stack(expected), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("solver", ["eigh", "features"])
@pytest.mark.parametrize("shape", [(20, 5), (6, 12)])
def test_a_ridge_path_is_as_good_as_refits(solver, shape):
    X, z, y = features(*shape), features(4, shape[1], seed=1), features(shape[0], 1, seed=2)[:, 0]
    w = features(shape[0], 1, seed=3)[:, 0].square()
    ridges = [0.0, 1e-3, 1.0, 100.0]
    for ridge, machine in zip(
        ridges,
        KernelRegression("features", solver=solver, ridge=0.5).fit(X, y, w).ridge_path(ridges),
        strict=True,
    ):
        fresh = KernelRegression("features", solver=solver, ridge=ridge).fit(X, y, w)
        assert machine.ridge == ridge
        torch.testing.assert_close(machine.predict(z), fresh.predict(z), rtol=1e-7, atol=1e-9)
        torch.testing.assert_close(machine.residual_, fresh.residual_, rtol=1e-6, atol=1e-8)
        torch.testing.assert_close(
            machine.predict(z, return_std=True)[1], fresh.predict(z, return_std=True)[1], rtol=1e-7, atol=1e-6
        )
        torch.testing.assert_close(machine.leave_one_out(), fresh.leave_one_out(), rtol=1e-7, atol=1e-9)


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 3), st.sampled_from(ALL), st.integers(0, 99))
def test_all_shapes_reach_the_same_minimum(n, d, c, solver, seed):
    Phi, y = features(n, d, seed=seed), features(n, c, seed=seed + 100)
    fit = KernelRegression("features", ridge=0.1, solver=solver).fit(Phi, y).predict(Phi)
    # At the minimum the gradient vanishes: Φᵀ(y - f) = ridge γ, so f = Φ Φᵀ (y - f) / ridge.
    torch.testing.assert_close(Phi @ (Phi.T @ (y - fit)) / 0.1, fit, rtol=1e-4, atol=1e-5)


def test_auto_says_what_it_chose_and_why():
    K, y = kernel_of(20), features(20, 1)[:, 0]
    chosen = KernelRegression(ridge=0.1).fit(K, y)
    assert (chosen.solver_, "positive definite" in chosen.reason_) == ("cholesky", True)
    assert KernelRegression().fit(K, y).solver_ == "cholesky"
    Phi = features(20, 5)
    singular = KernelRegression().fit(Phi @ Phi.T, y)
    assert (singular.solver_, "singular" in singular.reason_) == ("eigh", True)
    small = KernelRegression(ridge=0.1, memory=3 * 20 * 20 * 8 - 1).fit(K, y)
    assert (small.solver_, "budget" in small.reason_) == ("cg", True)
    torch.testing.assert_close(small.predict(K), chosen.predict(K), rtol=1e-6, atol=1e-6)
    on_features = KernelRegression(ConjugateKernel(network())).fit(features(30, 3), features(30, 1)[:, 0])
    assert (on_features.solver_, "16 features" in on_features.reason_) == ("features", True)


def test_auto_takes_rounding_of_float32_for_what_it_is():
    Phi, y = features(40, 5), features(40, 1, seed=1)[:, 0]
    K = (Phi.float() @ Phi.float().T).double()
    machine = KernelRegression().fit(K, y)
    exact = KernelRegression("features").fit(Phi, y)
    assert machine.solver_ == "eigh"
    torch.testing.assert_close(machine.predict(K), exact.predict(Phi), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("ridge", [0.0, 1e-12, 1e-9])
def test_auto_takes_a_ridge_below_rounding_for_none(ridge):
    x = torch.linspace(-1, 1, 150)
    K, y = torch.exp(-8 * (x[:, None] - x).square()), torch.sin(5 * x)
    machine = KernelRegression(ridge=ridge).fit(K, y)
    assert (machine.solver_, "singular to working precision" in machine.reason_) == ("eigh", True)
    torch.testing.assert_close(
        machine.predict(K), y, rtol=0, atol=1e-2
    )  # a ridge that divides rounding gives 1e3
    with pytest.raises(NumericalError, match=r"not positive definite.*got -0\.5.*Try: ridge="):
        KernelRegression(ridge=0.1).fit(K - 0.5 * torch.eye(150), y)


@pytest.mark.parametrize("kernel", ["trace", "full"])
def test_a_kernel_beyond_the_budget_is_solved_by_products(kernel):
    model, x, z = network(), features(16, 3), features(4, 3, seed=1)
    y = features(16, 2, seed=2)
    k = TangentKernel(model, outputs=kernel)
    small = KernelRegression(k, ridge=0.1, memory=1500, solver=CG(rtol=1e-10)).fit(x, y)
    large = KernelRegression(k, ridge=0.1, solver="cholesky").fit(x, y)
    assert type(small._fit.operator).__name__ == "KernelOperator"
    torch.testing.assert_close(small.predict(z), large.predict(z), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("preconditioner", [None, PivotedCholesky(10), Nystrom(10, Key(0))])
def test_conjugate_gradients_on_an_operator_with_options(preconditioner):
    Phi, y = features(60, 10), features(60, 2, seed=1)
    method = CG(rtol=1e-10, preconditioner=preconditioner)
    machine = KernelRegression(ridge=0.1, solver=method).fit(FactorOperator(Phi), y)
    dense = KernelRegression(ridge=0.1).fit(Phi @ Phi.T, y)
    torch.testing.assert_close(machine.dual_coef_, dense.dual_coef_, rtol=1e-6, atol=1e-7)
    assert machine.n_iter_ > 0


def test_more_features_never_fit_the_training_nodes_worse():
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    x = torch.linspace(-1, 1, 40, dtype=torch.float64)[:, None]
    y, w = torch.exp(torch.sin(6 * x))[:, 0], torch.full((40,), 0.05, dtype=torch.float64)
    conjugate = KernelRegression(ConjugateKernel(model, bias=True), solver="features").fit(x, y, w)
    tangent = KernelRegression("features", solver="features").fit(reference.jacobian(model, x)[:, 0], y, w)
    # The last layer's gradients are among those of all parameters.
    assert tangent.residual_ < conjugate.residual_


@pytest.mark.parametrize("solver", ["cholesky", "eigh", "cg"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_predictions_have_the_dtype_of_the_kernel(solver, dtype):
    K, y = kernel_of(20), features(20, 1)[:, 0]
    exact = KernelRegression(ridge=0.5).fit(K, y)
    machine = KernelRegression(ridge=0.5, solver=solver).fit(K.to(dtype), y)
    assert machine.predict(K.to(dtype)).dtype == dtype
    torch.testing.assert_close(machine.predict(K.to(dtype)).double(), exact.predict(K), rtol=1e-3, atol=1e-4)
    assert KernelRegression(ridge=0.5).fit(K.to(dtype).numpy(), y.numpy()).predict(K.numpy()).shape == (20,)


def test_kernels_stored_on_disk(tmp_path):
    model, x, z = network(), features(20, 3), features(4, 3, seed=1)
    y, kernel = features(20, 1, seed=2)[:, 0], TangentKernel(model)
    stored = gram(kernel, x, store=tmp_path / "k.zarr", tile=7, progress=False)
    expected = KernelRegression(ridge=0.1).fit(kernel(x), y).predict(kernel(z, x))
    by_products = KernelRegression(ridge=0.1, solver=CG(rtol=1e-10, memory=1000)).fit(stored, y)
    torch.testing.assert_close(by_products.predict(kernel(z, x)), expected, rtol=1e-6, atol=1e-6)
    on_landmarks = NystromRegression(landmarks=20, ridge=0.1).fit(stored, y)
    torch.testing.assert_close(on_landmarks.predict(kernel(z, x)), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("ridge", [1e-4, 1e-6, 1e-8])
def test_normal_equations_of_float32_features_keep_the_digits_of_float64(ridge):
    left, right = (
        torch.linalg.qr(torch.randn(n, 40, dtype=torch.float64, generator=Key(0).fold(n).torch()))[0]
        for n in (4000, 40)
    )
    Phi = ((left * torch.logspace(0, -4, 40, dtype=torch.float64)) @ right).float()
    y = (Phi.double().sum(1) + 1e-3 * left[:, 0]).float()
    machine = KernelRegression("features", solver="normal", ridge=ridge).fit(Phi, y)
    exact = Phi.double()
    expected = torch.linalg.solve(
        exact.T @ exact + ridge * torch.eye(40, dtype=torch.float64), exact.T @ y.double()
    )
    assert float((machine.coef_.double() - expected).norm() / expected.norm()) < 1e-5
    assert machine.converged_


def test_normal_equations_are_judged_by_their_own_residual_and_not_by_their_factor(monkeypatch):
    def wrong(strips, Y, weights):
        A, B = normal_equations(strips, Y, weights)
        return 3 * A, B

    monkeypatch.setattr("tangentkit.machines.solvers.fits.normal_equations", wrong)
    Phi = torch.randn(50, 3, dtype=torch.float64, generator=Key(0).torch())
    with pytest.warns(ConvergenceWarning, match=r"residual 6\.\de-01"):
        machine = KernelRegression("features", solver="normal", ridge=1e-9).fit(Phi, Phi[:, 0])
    assert not machine.converged_


def test_a_ridge_below_rounding_is_not_left_to_normal_equations(monkeypatch):
    monkeypatch.setattr("tangentkit.machines.solvers.systems.FEW_FLOPS", 10)
    monkeypatch.setattr("tangentkit.machines.solvers.systems.MOST_FLOPS", 10)
    Phi = torch.randn(50, 3, dtype=torch.float64, generator=Key(0).torch())
    solvers = [
        KernelRegression("features", ridge=ridge).fit(Phi, Phi[:, 0]).solver_ for ridge in (1e-3, 1e-20, 0)
    ]
    assert solvers == ["normal", "features", "features"]


@pytest.mark.parametrize("solver", ["auto", "features", "normal"])
def test_small_singular_values_of_float32_features_count_where_a_ridge_holds_them(solver):
    generator = Key(0).fold("features").torch()
    Phi = torch.randn(6000, 40, generator=generator) * torch.logspace(2, -3, 40)
    y = Phi @ torch.randn(40, generator=generator) + 0.1 * torch.randn(6000, generator=generator)
    machine = KernelRegression("features", ridge=1e-2, solver=solver).fit(Phi, y)
    theirs = Ridge(alpha=1e-2, fit_intercept=False).fit(Phi.double().numpy(), y.double().numpy()).coef_
    assert np.abs(machine.coef_.numpy() - theirs).max() <= 1e-5 * np.abs(theirs).max()
    assert machine.coef_.dtype == torch.float32
