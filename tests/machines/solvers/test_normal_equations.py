"""Normal equations: sums over strips of rows, and when they are good enough."""

import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from machines.estimators.problems import features
from tangentkit.core.seeds import Key
from tangentkit.machines import KernelRegression
from tangentkit.machines.solvers.normal_equations import normal_equations, products_of_columns


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
