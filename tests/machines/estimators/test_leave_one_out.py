"""Leave-one-out errors and ridge paths of kernel regression: those of refits."""

import pytest
import torch

from machines.estimators.problems import features, network
from tangentkit.empirical import TangentKernel
from tangentkit.machines import KernelRegression


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


@pytest.mark.parametrize("solver", ["auto", "eigh"])
def test_of_float32_samples_left_out_and_those_of_no_weight_are_as_fitted_without(solver):
    x = torch.randn(60, 5, generator=torch.Generator().manual_seed(0)) + 10
    y, weights = (x[:, 0] - 10) * (x[:, 1] - 10), (torch.arange(60) % 7 > 0).float()
    K = (1 + x @ x.T) ** 2
    ridge = 1e-4 * float(K.diagonal().mean())
    errors = KernelRegression(ridge=ridge, solver=solver).fit(K, y, weights).leave_one_out()
    assert errors.dtype == torch.float32
    for i in (0, 1, 7, 30):
        others = [j for j in range(60) if j != i and weights[j] > 0]
        A = K.double()[others][:, others] + ridge * torch.eye(len(others)).double()
        expected = y[i] - K.double()[i, others] @ torch.linalg.solve(A, y.double()[others])
        torch.testing.assert_close(errors[i].double(), expected, rtol=1e-2, atol=1e-2)
