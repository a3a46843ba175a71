"""The kernel GLM against the reference, against scikit-learn's SGD, and against Adam written out."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import SGDClassifier
from torch import nn

from tangentkit import reference
from tangentkit.core.errors import InputError, NumericalError
from tangentkit.core.seeds import Key
from tangentkit.empirical import ConjugateKernel, TangentKernel
from tangentkit.machines import LBFGS, SGD, Adam, KernelGLM, Newton
from tangentkit.machines.solvers import minimizers, newton


def problem(n=30, classes=3, *, seed=0):
    key = Key(seed).fold("glm", n, classes)
    x = torch.randn(n, 3, dtype=torch.float64, generator=key.torch())
    y = torch.randint(classes, (n,), generator=key.fold("y").torch())
    y[:classes] = torch.arange(classes)
    K = torch.exp(-0.5 * torch.cdist(x, x).square())
    return K, y


@pytest.mark.parametrize("solver", [Newton(tol=1e-9), LBFGS(tol=1e-7)])
@pytest.mark.parametrize("classes", [2, 4])
def test_it_finds_the_minimum_of_the_reference(classes, solver):
    K, y = problem(classes=classes)
    W, b = reference.kernel_glm(K, y, ridge=1e-3, steps=300)
    machine = KernelGLM(ridge=1e-3, scaling=None, solver=solver).fit(K, y)
    expected = (K @ W + b).softmax(1)
    torch.testing.assert_close(machine.predict_proba(K), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(machine.dual_coef_, W, rtol=1e-3, atol=1e-3)


def test_its_logits_are_sums_over_training_samples():
    K, y = problem()
    machine = KernelGLM(scaling="deviation", ridge=1e-2).fit(7 * K, y)
    logits = machine.logits(7 * K[:5])
    shares = machine.dual_coef_.T[None] * (7 * K[:5])[:, None, :] + machine.intercept_[None, :, None] / len(y)
    torch.testing.assert_close(shares.sum(2), logits)
    torch.testing.assert_close(machine.decision_function(7 * K[:5]), logits)
    torch.testing.assert_close(machine.scale_, float((7 * K).std()))


@pytest.mark.parametrize("solver", ["newton", "lbfgs", "sgd", Adam(steps=50)])
@pytest.mark.parametrize("scaling", ["diagonal", "deviation"])
def test_scaling_takes_the_units_out(solver, scaling):
    K, y = problem()
    small, large = (
        KernelGLM(ridge=1e-2, solver=solver, scaling=scaling).fit(s * K, y) for s in (1.0, 1024.0)
    )
    torch.testing.assert_close(large.predict_proba(1024 * K), small.predict_proba(K), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("classes", [2, 3])
def test_sgd_is_the_published_form(classes):
    K, y = problem(classes=classes)
    machine = KernelGLM(solver=SGD(seed=3), ridge=1e-3, scaling=None).fit(K.numpy(), y.numpy())
    theirs = SGDClassifier(
        loss="log_loss",
        penalty="l2",
        alpha=1e-3,
        class_weight="balanced",
        random_state=Key(3).fold("sgd").entropy % 2**32,
    ).fit(K.numpy(), y.numpy())
    np.testing.assert_allclose(machine.predict_proba(K.numpy()), theirs.predict_proba(K.numpy()), rtol=1e-9)
    np.testing.assert_allclose(machine.dual_coef_, theirs.coef_.T)
    np.testing.assert_array_equal(machine.predict(K.numpy()), theirs.predict(K.numpy()))
    assert machine.n_iter_ == theirs.n_iter_


def test_adam_on_a_block_kernel_step_by_step():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    x, z = torch.randn(2, 9, 2, dtype=torch.float64)
    y = torch.arange(9) % 3
    kernel = TangentKernel(model, outputs="full")
    machine = KernelGLM(kernel, solver=Adam(steps=60), ridge=0.0, fit_intercept=False).fit(x, y)
    K = kernel(x).reshape(27, 27)
    scale = K.diagonal().mean()
    alpha = torch.zeros(27, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([alpha])
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy((K / scale @ alpha).reshape(9, 3), y)
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
    expected = (kernel(z, x).reshape(27, 27) / scale @ alpha).detach().reshape(9, 3)
    torch.testing.assert_close(machine.decision_function(z), expected)
    torch.testing.assert_close(machine.losses_[:60], losses)
    assert machine.n_iter_ == 60


def test_long_training_by_adam_ends_where_lbfgs_does():
    K, y = problem(n=12)
    adam = KernelGLM(solver=Adam(steps=1200, learning_rate=2e-2), ridge=0.1).fit(K, y)
    best = KernelGLM(solver=Newton(tol=1e-9), ridge=0.1).fit(K, y)
    torch.testing.assert_close(adam.losses_[-1], best.losses_[-1], rtol=1e-5, atol=0)
    torch.testing.assert_close(adam.predict_proba(K), best.predict_proba(K), rtol=0, atol=1e-3)


def test_weights_count_samples():
    K, y = problem()
    w = torch.linspace(0.5, 2, len(y), dtype=torch.float64)
    machine = KernelGLM(ridge=1e-2, scaling=None, solver=Newton(tol=1e-9)).fit(K, y, w)
    # At the minimum Kᵀ w (p - χ) / Σw + ridge A = 0, and Σ w (p - χ) = 0 for the intercept.
    R = w[:, None] * (machine.predict_proba(K) - torch.eye(3, dtype=K.dtype)[y]) / w.sum()
    torch.testing.assert_close(K @ R, -1e-2 * machine.dual_coef_, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(R.sum(0), torch.zeros(3, dtype=K.dtype), rtol=0, atol=1e-7)


def test_an_optimum_that_is_not_reached_is_reported():
    K, y = problem()
    with pytest.warns(ConvergenceWarning, match="stopped after 3 steps"):
        machine = KernelGLM(solver=Newton(max_steps=3), ridge=1e-4).fit(K, y)
    assert (machine.converged_, machine.n_iter_) == (False, 3)


def test_bad_options_and_kernels_are_refused():
    K, y = problem()
    block = torch.einsum("ij,ab->iajb", K, torch.eye(3, dtype=K.dtype))
    with pytest.raises(InputError, match="SGD fits one kernel for all classes"):
        KernelGLM(solver="sgd").fit(block, y)
    with pytest.raises(NumericalError, match="no diagonal to scale it by"):
        KernelGLM().fit(torch.zeros(30, 30, dtype=torch.float64), y)
    with pytest.raises(KeyError, match=r"unknown solver 'lbfsg'.*'lbfgs'"):
        KernelGLM(solver="lbfsg").fit(K, y)
    with pytest.raises(KeyError, match="unknown scaling 'diag'"):
        KernelGLM(scaling="diag").fit(K, y)


def gradient(machine, K, y, ridge, w=None):
    """The largest entry of the gradient of the mean cross-entropy + ridge/2 ‖A‖², of the kernel as scaled."""
    w = torch.ones(len(y), dtype=K.dtype) if w is None else w
    A, b = (machine.dual_coef_ * machine.scale_).requires_grad_(), machine.intercept_.clone().requires_grad_()
    each = nn.functional.cross_entropy(K / machine.scale_ @ A + b, y, reduction="none")
    loss = w @ each / w.sum() + ridge / 2 * A.square().sum()
    return max(float(part.abs().max()) for part in torch.autograd.grad(loss, [A, b]))


def smooth_kernel(n, *, seed=0):
    """Eigenvalues over ten orders of magnitude, one of them far above all others."""
    x = torch.rand(n, 2, dtype=torch.float64, generator=Key(seed).fold("smooth").torch())
    return 1 + torch.exp(-2 * torch.cdist(x, x).square()), (x[:, 0] > x[:, 1]).long() + (
        x.sum(1) > 1.2
    ).long()


@pytest.mark.parametrize("ridge", [1e-2, 1e-5, 1e-8])
def test_an_ill_conditioned_kernel_is_fitted_to_its_optimum(ridge):
    K, y = smooth_kernel(300)
    machine = KernelGLM(ridge=ridge, solver=Newton(tol=1e-8)).fit(K, y)
    assert machine.converged_
    assert gradient(machine, K, y, ridge) < 1e-7


def test_a_kernel_with_negative_eigenvalues_is_fitted_too():
    K, y = smooth_kernel(60)
    K = K - 0.3 * torch.eye(60, dtype=K.dtype)
    machine = KernelGLM(ridge=1e-3, scaling=None, solver=Newton(tol=1e-8)).fit(K, y)
    assert gradient(machine, K, y, 1e-3) < 1e-7


def test_weights_of_zero_and_of_thousands_are_fitted_to_the_optimum():
    K, y = smooth_kernel(60)
    w = torch.logspace(-2, 3, 60, dtype=torch.float64)
    w[5:20] = 0.0
    machine = KernelGLM(ridge=1e-4, solver=Newton(tol=1e-9)).fit(K, y, w)
    assert machine.converged_
    assert gradient(machine, K, y, 1e-4, w) < 1e-7


def test_a_matrix_in_float32_is_fitted_in_float64():
    K, y = smooth_kernel(80)
    small = K.float()
    machine = KernelGLM(ridge=1e-4, solver=Newton(tol=1e-8)).fit(small, y)
    assert gradient(machine, small.double(), y, 1e-4) < 1e-7


def test_block_kernels_by_newton_end_where_lbfgs_does():
    K, y = problem(n=12)
    block = torch.einsum("ij,ab->iajb", K, torch.tensor([[2.0, 0.5, 0], [0.5, 1, 0], [0, 0, 1]]).double())
    ours, slow = (
        KernelGLM(ridge=1e-2, solver=solver).fit(block, y) for solver in (Newton(tol=1e-9), LBFGS(tol=1e-8))
    )
    torch.testing.assert_close(ours.dual_coef_, slow.dual_coef_, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(ours.intercept_, slow.intercept_, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("scaling", ["diagonal", "deviation", None])
def test_in_features_it_is_what_it_is_on_their_kernel(scaling):
    x = torch.randn(50, 4, dtype=torch.float64, generator=Key(3).torch())
    x[:, 3] = x[:, 2]  # features may depend on each other
    y, z = torch.arange(50) % 3, torch.ones(2, 4, dtype=torch.float64)
    w = torch.linspace(0, 2, 50, dtype=torch.float64)
    inside = KernelGLM("features", ridge=1e-3, scaling=scaling, solver=Newton(tol=1e-10)).fit(x, y, w)
    outside = KernelGLM(ridge=1e-3, scaling=scaling, solver=Newton(tol=1e-10)).fit(x @ x.T, y, w)
    torch.testing.assert_close(inside.scale_, outside.scale_)
    torch.testing.assert_close(inside.dual_coef_, outside.dual_coef_, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(inside.decision_function(z), outside.decision_function(z @ x.T))
    torch.testing.assert_close(inside.coef_, x.T @ inside.dual_coef_)
    torch.testing.assert_close(inside.portable().decision_function(z), inside.decision_function(z))


def test_a_network_with_few_features_needs_no_kernel_matrix():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
    x = torch.randn(20_000, 3)
    kernel = ConjugateKernel(model)
    machine = KernelGLM(kernel, memory="50MB").fit(x, (x[:, 0] > 0).long())  # a matrix would be of 3.2 GB
    assert machine.converged_
    assert machine.coef_.shape == (8, 2)
    assert machine.score(x, (x[:, 0] > 0).long()) > 0.9


def test_separable_data_without_a_ridge_have_no_optimum():
    K, y = problem()
    with pytest.warns(ConvergenceWarning, match="separable and ridge is 0: the optimum is at infinity"):
        machine = KernelGLM(ridge=0.0).fit(K, y)
    assert not machine.converged_
    torch.testing.assert_close(machine.predict(K), y)


@pytest.mark.parametrize("solver", ["newton", "lbfgs"])
@pytest.mark.parametrize("size", [1e-30, 1e-7, 1e7])
def test_the_size_of_the_kernel_does_not_decide_what_is_converged(solver, size):
    K, y = problem()
    one, other = (
        KernelGLM(solver=solver, ridge=1e-3 * s**2, scaling=None).fit(s * K, y) for s in (1.0, size)
    )
    assert one.converged_
    assert other.converged_
    np.testing.assert_allclose(other.losses_[-1], one.losses_[-1], rtol=1e-6)
    torch.testing.assert_close(other.predict_proba(size * K), one.predict_proba(K), rtol=0, atol=1e-3)


def test_adam_that_has_hardly_moved_is_not_converged_however_small_the_kernel():
    K, y = problem()
    machine = KernelGLM(solver=Adam(steps=50), ridge=1e-18, scaling=None, fit_intercept=False)
    assert not machine.fit(1e-7 * K, y).converged_


def test_adam_that_ends_above_its_start_says_so():
    K, y = smooth_kernel(60)
    with pytest.warns(ConvergenceWarning, match="above the start.*smaller learning_rate"):
        KernelGLM(solver=Adam(steps=50), ridge=1e10, scaling=None).fit(1e7 * K, y)


@pytest.mark.parametrize("scaling", ["diagonal", None])
def test_one_large_entry_hides_no_gradient_of_the_others(scaling):
    K, y = problem(n=50, classes=2, seed=3)
    K[0, 0] = 1e4
    ridge = 1e-12 / (float(K.diagonal().mean()) ** 2 if scaling else 1.0)
    machine = KernelGLM(ridge=ridge, scaling=scaling).fit(K, y)
    exact = KernelGLM(ridge=ridge, scaling=scaling, solver=Newton(tol=1e-10)).fit(K, y)
    assert machine.converged_
    assert machine.losses_[-1] < 1.1 * exact.losses_[-1]
    with pytest.warns(ConvergenceWarning, match="stopped after 100 steps"):
        slow = KernelGLM(ridge=ridge, scaling=scaling, solver=LBFGS(max_steps=100)).fit(K, y)
    assert slow.losses_[-1] > 1.1 * exact.losses_[-1]


def test_where_the_start_is_the_optimum_lbfgs_is_converged():
    K, y = torch.ones(30, 30, dtype=torch.float64), torch.arange(30) % 3
    machine = KernelGLM(ridge=1e-4, solver="lbfgs").fit(K, y)
    assert machine.converged_
    np.testing.assert_allclose(machine.losses_[-1], np.log(3))


def test_lbfgs_that_gets_stuck_returns_the_best_point_that_it_saw(monkeypatch):
    found = minimizers.minimize

    def stuck(value_and_gradient, start, **options):
        result = found(value_and_gradient, start, **options)
        value_and_gradient(-1e3 * result.x)  # where a line search may end that rounding leads astray
        return result

    monkeypatch.setattr(minimizers, "minimize", stuck)
    K, y = problem(n=60, classes=2)
    with pytest.warns(ConvergenceWarning, match="stopped after 4 steps"):
        machine = KernelGLM(ridge=1e-3, solver=LBFGS(max_steps=4)).fit(K, y)
    assert machine.losses_[-1] == pytest.approx(min(machine.losses_))
    assert machine.losses_[-1] < machine.losses_[0] < machine.losses_[-2]


def test_newton_does_not_return_what_is_worse_than_its_start(monkeypatch):
    found = newton.minimize

    def lost_in_rounding(*args, **options):
        minimum = found(*args, **options)
        return replace(minimum, coefficients=-1e6 * minimum.coefficients)

    monkeypatch.setattr(newton, "minimize", lost_in_rounding)
    K, y = problem()
    with pytest.warns(ConvergenceWarning, match="rounding hides the optimum"):
        machine = KernelGLM(ridge=1e-4).fit(K, y)
    assert not machine.dual_coef_.any()
    np.testing.assert_allclose(machine.losses_, [np.log(3)])
