"""Estimates: right on average, as far off as they say, exact where theory says so."""

import pytest
import torch
from torch import Tensor

from tangentkit.core.errors import InputError, NumericalError
from tangentkit.core.seeds import Key
from tangentkit.linalg import (
    FactorOperator,
    Operator,
    hutchinson_diagonal,
    hutchinson_trace,
    hutchpp_trace,
    trace,
)

TRACES = {
    "hutchinson": lambda K, count, key: hutchinson_trace(K, samples=count, key=key),
    "hutch++": lambda K, count, key: hutchpp_trace(K, products=count, key=key),
}
every_trace = pytest.mark.parametrize("estimate", TRACES.values(), ids=TRACES.keys())


def falling(n: int, power: float) -> Tensor:
    """A positive matrix with eigenvalues i^-power and random eigenvectors."""
    Q, _ = torch.linalg.qr(torch.randn(n, n, dtype=torch.float64))
    return (Q * torch.arange(1, n + 1, dtype=torch.float64) ** -power) @ Q.T


@every_trace
@pytest.mark.parametrize("power", [0.0, 0.5, 2.0])
def test_traces_are_as_far_off_as_they_say(estimate, power):
    K = falling(60, power)
    K = K + torch.randn(60, 60, dtype=torch.float64) / 60  # need not be symmetric
    estimates = [estimate(K, 30, Key(0).fold(repeat)) for repeat in range(200)]
    values = torch.stack([each.value for each in estimates])
    exact = float(K.trace())
    # The mean of 200 estimates within 5 of its own standard errors; the errors as wide as the spread.
    assert abs(float(values.mean()) - exact) < 5 * float(values.std()) / 200**0.5
    stated = torch.stack([each.error for each in estimates]).square().mean().sqrt()
    assert float(stated / values.std()) == pytest.approx(1, abs=0.25)


def test_diagonals_are_as_far_off_as_they_say():
    K = falling(20, 0.5)
    samples = 400
    estimate = hutchinson_diagonal(K, samples=samples, key=Key(0))
    assert estimate.value.shape == estimate.error.shape == (20,)
    assert ((estimate.value - K.diagonal()).abs() < 5 * estimate.error).all()
    off_diagonal = K - torch.diag(K.diagonal())
    torch.testing.assert_close(estimate.error, off_diagonal.norm(dim=1) / samples**0.5, rtol=0.3, atol=0)


def test_the_trace_is_exact_where_theory_says_so():
    diagonal = torch.diag(torch.arange(1.0, 9.0, dtype=torch.float64))
    result = hutchinson_trace(diagonal, samples=3, key=Key(0))
    assert float(result.value) == pytest.approx(36)
    assert float(result.error) == pytest.approx(0, abs=1e-12)
    A = torch.randn(50, 3, dtype=torch.float64)
    result = hutchpp_trace(FactorOperator(A), products=9, key=Key(0))
    assert float(result.value) == pytest.approx(float(A.square().sum()))
    assert float(result.error) == pytest.approx(0, abs=1e-10)


def test_hutchpp_is_better_where_the_spectrum_falls():
    K = falling(200, 2.0)
    plain, better = (
        torch.stack([estimate(K, 60, Key(1).fold(repeat)).value - K.trace() for repeat in range(20)]).norm()
        for estimate in TRACES.values()
    )
    assert better < plain / 5


@every_trace
def test_estimates_follow_their_key(estimate):
    K = falling(30, 0.5)
    first, again, other = (estimate(K, 9, Key(seed)).value for seed in (3, 3, 4))
    assert first == again
    assert first != other


@every_trace
@pytest.mark.parametrize("n", [1, 2])
def test_more_products_than_columns_are_no_harm(estimate, n):
    K = torch.full((n, n), 2.0)
    result = estimate(K, 30, Key(0))
    assert abs(float(result.value) - 2 * n) <= 5 * float(result.error) + 1e-4
    assert result.products <= 30


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_estimates_keep_the_dtype(dtype):
    K = torch.eye(4, dtype=dtype)
    for result in (
        hutchinson_trace(K, samples=2, key=Key(0)),
        hutchpp_trace(K, products=6, key=Key(0)),
        hutchinson_diagonal(K, samples=2, key=Key(0)),
    ):
        assert result.value.dtype == result.error.dtype == dtype


def test_the_exact_trace():
    A, B = (torch.randn(5, 3, dtype=torch.float64) for _ in range(2))
    assert float(trace(FactorOperator(A, B))) == pytest.approx(float((A * B).sum()))
    with pytest.raises(InputError, match="square"):
        trace(torch.ones(2, 3))


def test_bad_input_is_refused():
    class Broken(Operator):
        def block(self, rows: slice, cols: slice) -> Tensor:
            return torch.full((rows.stop - rows.start, cols.stop - cols.start), torch.nan)

    broken = Broken((4, 4), dtype=torch.float32, device="cpu")
    for ask in (
        lambda K: hutchinson_trace(K, samples=2, key=Key(0)),
        lambda K: hutchpp_trace(K, products=6, key=Key(0)),
        lambda K: hutchinson_diagonal(K, samples=2, key=Key(0)),
    ):
        with pytest.raises(NumericalError, match="non-finite"):
            ask(broken)
        with pytest.raises(InputError, match="square"):
            ask(torch.ones(2, 3))
    for ask in (
        lambda: hutchinson_trace(torch.eye(3), samples=1, key=Key(0)),
        lambda: hutchpp_trace(torch.eye(3), products=5, key=Key(0)),
        lambda: hutchinson_diagonal(torch.eye(3), samples=0, key=Key(0)),
    ):
        with pytest.raises(InputError, match="too few"):
            ask()
