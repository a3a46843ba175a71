"""The kernel GLM against the reference, against scikit-learn's SGD, and against Adam written out."""

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import SGDClassifier
from torch import nn

from tangentkit import reference
from tangentkit.core.errors import InputError, NumericalError
from tangentkit.core.seeds import Key
from tangentkit.empirical import TangentKernel
from tangentkit.machines import LBFGS, SGD, Adam, KernelGLM, Newton


def problem(n=30, classes=3, *, seed=0):
    key = Key(seed).fold("glm", n, classes)
    x = torch.randn(n, 3, dtype=torch.float64, generator=key.torch())
    y = torch.randint(classes, (n,), generator=key.fold("y").torch())
    y[:classes] = torch.arange(classes)
    K = torch.exp(-0.5 * torch.cdist(x, x).square())
    return K, y


@pytest.mark.parametrize("classes", [2, 4])
def test_lbfgs_finds_the_minimum_of_the_reference(classes):
    K, y = problem(classes=classes)
    W, b = reference.kernel_glm(K, y, ridge=1e-3, steps=3000)
    machine = KernelGLM(ridge=1e-3, scaling=None, solver=Newton(tol=1e-9)).fit(K, y)
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


@pytest.mark.parametrize("solver", ["lbfgs", "sgd", Adam(steps=50)])
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
        machine = KernelGLM(solver=LBFGS(max_steps=3), ridge=1e-4).fit(K, y)
    assert (machine.converged_, machine.n_iter_) == (False, 3)


def test_refusals():
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
