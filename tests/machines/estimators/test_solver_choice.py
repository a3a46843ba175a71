"""Which solver "auto" takes, and the options of solvers that are named."""

import pytest
import torch

from machines.estimators.problems import features, kernel_of, network
from tangentkit.core.errors import NumericalError
from tangentkit.core.seeds import Key
from tangentkit.empirical import ConjugateKernel, TangentKernel
from tangentkit.linalg import CG, FactorOperator, Nystrom, PivotedCholesky
from tangentkit.machines import KernelRegression


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
