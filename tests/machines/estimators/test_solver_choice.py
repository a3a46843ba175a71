"""Which solver "auto" takes, and the options of solvers that are named."""

import pytest
import torch
from torch import nn

from machines.estimators.problems import features, kernel_of, network
from tangentkit.core.errors import NumericalError
from tangentkit.core.seeds import Key
from tangentkit.empirical import ConjugateKernel, TangentKernel
from tangentkit.linalg import CG, Eigen, FactorOperator, Nystrom, PivotedCholesky
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


@pytest.mark.parametrize("solver", ["auto", "eigh", Eigen()])
@pytest.mark.parametrize("ridge", [0.0, 1e-9])
def test_rounding_of_float32_is_taken_for_what_it_is_in_float64(solver, ridge):
    Phi, z, y = features(40, 5), features(20, 5, seed=2), features(40, 1, seed=1)[:, 0]
    K, k = (Phi.float() @ Phi.float().T).double(), (z.float() @ Phi.float().T).double()
    machine = KernelRegression(ridge=ridge, solver=solver).fit(K, y)
    exact = KernelRegression("features").fit(Phi, y)
    assert (machine.solver_, "show its rounding" in machine.message_) == ("eigh", True)
    torch.testing.assert_close(machine.predict(k), exact.predict(z), rtol=1e-4, atol=1e-4)


def test_a_cut_off_that_is_given_is_the_one_that_is_taken():
    Phi, y = features(40, 5), features(40, 1, seed=1)[:, 0]
    K = (Phi.float() @ Phi.float().T).double()
    for solver in (Eigen(rtol=1e-30), "eigh"):
        cutoff = None if isinstance(solver, Eigen) else 1e-30
        machine = KernelRegression(solver=solver, cutoff=cutoff).fit(K, y)
        torch.testing.assert_close(machine.predict(K), y, rtol=0, atol=1e-4)  # all eigenvectors: y itself


def test_kernels_that_are_not_positive_are_decomposed_as_they_are_where_that_is_asked_for():
    Q, _ = torch.linalg.qr(features(4, 4))
    K = Q @ torch.diag(torch.tensor([2.0, 0.1, -0.3, 1e-3], dtype=torch.float64)) @ Q.T
    K, y = (K + K.T) / 2, features(4, 1, seed=1)[:, 0]
    torch.testing.assert_close(KernelRegression(solver="eigh").fit(K, y).predict(K), y)


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


@pytest.mark.parametrize(("mean", "share"), [(0.0, 1e-5), (10.0, 1e-4)])
@pytest.mark.parametrize("solver", ["auto", "eigh"])
def test_a_ridge_above_rounding_is_solved_for_though_float32_has_too_few_digits(mean, share, solver):
    """A large mean makes one eigenvalue n times the others: n ε of it is a thousand ridges, and rounding is not."""
    x, z = (torch.randn(n, 5, generator=torch.Generator().manual_seed(n)) for n in (400, 100))
    y = x[:, 0] * x[:, 1]
    kernel = TangentKernel(nn.Sequential(nn.Linear(5, 64), nn.ReLU(), nn.Linear(64, 1)))
    K, k = kernel(x + mean), kernel(z + mean, x + mean)
    ridge = share * float(K.diagonal().mean())
    exact = k.double() @ torch.linalg.solve(K.double() + ridge * torch.eye(400).double(), y.double())
    machine = KernelRegression(ridge=ridge, solver=solver).fit(K, y)
    found = machine.predict(k)
    assert found.dtype == torch.float32
    assert (found - exact).norm() < 0.01 * exact.norm()
    path = KernelRegression(ridge=ridge, solver="eigh").fit(K, y).ridge_path([3 * ridge])[0]
    other = k.double() @ torch.linalg.solve(K.double() + 3 * ridge * torch.eye(400).double(), y.double())
    assert (path.predict(k) - other).norm() < 0.01 * other.norm()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_large_sample_takes_nothing_from_the_others(dtype):
    generator = torch.Generator().manual_seed(0)
    x, z = (torch.randn(n, 4, generator=generator, dtype=torch.float64) for n in (200, 50))
    x[0] *= 1e3
    y, K, k = torch.sin(x[:, 1]), (1 + x @ x.T) ** 2, (1 + z @ x.T) ** 2
    exact = k @ torch.linalg.solve(K + torch.eye(200), y)
    found = KernelRegression(ridge=1.0).fit(K.to(dtype), y.to(dtype)).predict(k.to(dtype))
    assert (found - exact).norm() < 1e-3 * exact.norm()


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
