"""Kernel regression: every solver against the reference and against a second route."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge
from torch import nn

from machines.estimators.problems import ALL, DUAL, features, kernel_of, network
from tangentkit import reference
from tangentkit.compute import gram
from tangentkit.core.seeds import Key
from tangentkit.empirical import ConjugateKernel, TangentKernel
from tangentkit.linalg import CG, Eigen
from tangentkit.machines import KernelRegression, NystromRegression


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


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 3), st.sampled_from(ALL), st.integers(0, 99))
def test_all_shapes_reach_the_same_minimum(n, d, c, solver, seed):
    Phi, y = features(n, d, seed=seed), features(n, c, seed=seed + 100)
    fit = KernelRegression("features", ridge=0.1, solver=solver).fit(Phi, y).predict(Phi)
    # At the minimum the gradient vanishes: Φᵀ(y - f) = ridge γ, so f = Φ Φᵀ (y - f) / ridge.
    torch.testing.assert_close(Phi @ (Phi.T @ (y - fit)) / 0.1, fit, rtol=1e-4, atol=1e-5)


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


@pytest.mark.parametrize("solver", ["auto", "features", "normal"])
def test_small_singular_values_of_float32_features_count_where_a_ridge_holds_them(solver):
    generator = Key(0).fold("features").torch()
    Phi = torch.randn(6000, 40, generator=generator) * torch.logspace(2, -3, 40)
    y = Phi @ torch.randn(40, generator=generator) + 0.1 * torch.randn(6000, generator=generator)
    machine = KernelRegression("features", ridge=1e-2, solver=solver).fit(Phi, y)
    theirs = Ridge(alpha=1e-2, fit_intercept=False).fit(Phi.double().numpy(), y.double().numpy()).coef_
    assert np.abs(machine.coef_.numpy() - theirs).max() <= 1e-5 * np.abs(theirs).max()
    assert machine.coef_.dtype == torch.float32
