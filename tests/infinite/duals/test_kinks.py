"""Functions with kinks anywhere and inputs of all lengths: tables of what remains without the pieces at kinks."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from tangentkit.infinite import InfiniteKernel, Pointwise
from tangentkit.infinite.duals.gaussian_path import std_of
from tangentkit.infinite.duals.hermite import hermite_coefficients
from tangentkit.infinite.duals.kinks import moments, pieces_of
from tangentkit.infinite.duals.quadrature import expectations, norm, refined, refined_line
from tangentkit.infinite.duals.registry import PiecewiseLinear, dual_of

FUNCTIONS = {
    "hardswish": dual_of("hardswish"),
    "hardshrink": dual_of("hardshrink"),
    "threshold": dual_of(nn.Threshold(0.7, 0.2)),
    "hardtanh": Pointwise(F.hardtanh, (-1, 1)),
    "square of a relu": Pointwise(lambda u: F.relu(u - 1) ** 2, (1,)),
    "elu": Pointwise(lambda u: F.elu(u - 0.5), (0.5,)),
    "elu with a corner": Pointwise(lambda u: F.elu(u + 0.5, 0.3), (-0.5,)),
    "gated, and a kink at 0": Pointwise(lambda u: torch.tanh(u) * F.relu(u + 0.5) + 0.3 * u.abs(), (-0.5, 0)),
}


def unequal(n: int = 24, low: float = 0.5, high: float = 1.8):
    """xx (n, 1), xy (n, n), yy (1, n): stds that nearly agree beside others, and small, large and any angles."""
    generator = torch.Generator().manual_seed(0)
    u = low + (high - low) * torch.rand(n, generator=generator, dtype=torch.float64)
    v = u * (1 + 0.03 * torch.randn(n, generator=generator, dtype=torch.float64))
    theta = torch.rand(n, n, generator=generator, dtype=torch.float64) * torch.pi
    theta[: n // 2] *= 0.03
    theta[0] = 0
    return u.square()[:, None], torch.cos(theta) * u[:, None] * v, v.square()[None]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_tables_agree_with_quadrature_and_with_their_statement(name):
    dual = FUNCTIONS[name]
    xx, xy, yy = unequal()
    stated = dual._table(xx, yy).error
    assert stated < 1e-6
    # On the diagonal the stds nearly agree, which is where kinks meet.
    i = torch.arange(0, 24, 2)
    x, y, between = xx[i, 0], yy[0, i], xy[i, i]
    direct = refined(dual._functions, x, between, y, kinks=dual.kinks, tolerance=1e-9)
    norms = zip(*(refined_line(dual._functions, v, kinks=dual.kinks) for v in (x, y)), strict=True)
    for found, rule, squares in zip(dual.both(xx, xy, yy), direct.values, norms, strict=True):
        assert float(((found[i, i] - rule).abs() / norm(*squares)).max()) <= stated + direct.worst


def test_a_table_is_the_closed_form_of_a_piecewise_linear_function():
    kinks, slopes = (-1.2, 0.0, 2.0), (0.1, 1.0, -0.5, 1.0)
    exact = PiecewiseLinear(kinks, slopes, 0.2)
    dual = Pointwise(lambda u: exact._functions(u)[0], kinks)
    for found, right in zip(dual.both(*unequal()), exact.both(*unequal()), strict=True):
        torch.testing.assert_close(found, right, rtol=0, atol=1e-8)


@pytest.mark.parametrize("apart", [0.0, 1e-9, 1e-5, 1e-3, 7e-3, 0.05, 0.4])
@pytest.mark.parametrize("narrow", [0.0, 1e-6, 1e-3, 0.03])
def test_nothing_jumps_where_kinks_nearly_meet(apart, narrow):
    """At correlation 1 it is known: u > κ and v > λ mean that z exceeds both; nearby nothing may jump."""
    xx, yy = (torch.tensor(value, dtype=torch.float64) for value in (1.5**2, (1.5 * (1 + apart)) ** 2))
    xy = torch.cos(torch.tensor(narrow, dtype=torch.float64)) * (xx * yy).sqrt()
    found = moments(0.5, 0.5, xx, xy, yy, shape=(1, 1))[0, 0]
    if narrow == 0:
        expected = torch.special.ndtr(-torch.maximum(0.5 / xx.sqrt(), 0.5 / yy.sqrt()))
    else:
        expected = expectations(lambda u: ((u > 0.5).to(u),), xx, xy, yy, kinks=(0.5,), nodes=81)[0]
    assert float(found) == pytest.approx(float(expected), abs=3e-8 if narrow == 0 else 1e-9)


@settings(max_examples=25, deadline=None)
@given(
    kink=st.floats(0, 3),
    other=st.floats(0, 3),
    a=st.floats(0.05, 4.0),
    b=st.floats(0.05, 4.0),
    rho=st.one_of(st.floats(-1, 1), st.sampled_from([1.0, -1.0])),
)
def test_moments_beyond_kinks_obey_their_laws(kink, other, a, b, rho):
    xx, xy, yy = (torch.tensor(value, dtype=torch.float64) for value in (a, rho * (a * b) ** 0.5, b))
    found = moments(kink, other, xx, xy, yy, shape=(3, 3))
    swapped = moments(other, kink, yy, xy, xx, shape=(3, 3))
    scale = 1 + float(std_of(xx) * std_of(yy)) ** 2
    for i, j in found:
        assert float(found[i, j]) == pytest.approx(float(swapped[j, i]), abs=1e-7 * scale)
        assert float(found[i, j]) >= -1e-7 * scale
    below = float(torch.special.ndtr(-kink / xx.sqrt()))
    assert float(found[0, 0]) <= below + 1e-8


def test_the_dual_of_pieces_is_their_expectation():
    pieces = pieces_of(
        lambda u: F.relu(u - 1) ** 2 + F.relu(u) - F.relu(-0.3 - u) ** 3, kinks=(-0.3, 0.0, 1.0), order=4
    )
    assert [len(piece.coefficients) for piece in pieces.pieces] == [4, 2, 3]
    xx, xy, yy = (x.squeeze() for x in unequal(6))
    found = pieces.both(xx, xy.diagonal(), yy)
    rule = expectations(pieces, xx, xy.diagonal(), yy, kinks=(-0.3, 1.0), nodes=81)
    for value, right in zip(found, rule, strict=True):
        torch.testing.assert_close(value, right, rtol=1e-8, atol=1e-9)


def test_pieces_take_the_jumps_of_derivatives_out():
    def function(u):
        return torch.where(u > 0.4, torch.sin(3 * u), u.exp())

    pieces = pieces_of(function, kinks=(0.4,), order=3)
    gap = torch.tensor([0.4 - 1e-3, 0.4 + 1e-3], dtype=torch.float64)
    # What remains has no jump in its first three derivatives: third differences across the kink stay bounded.
    h = 1e-3
    u = 0.4 + h * torch.arange(-4.5, 5, dtype=torch.float64)
    rest = function(u) - pieces(u)[0]
    third = rest.diff(n=3) / h**3
    assert (function(gap) - pieces(gap)[0]).diff().abs() < 1e-2
    assert third.max() - third.min() < 100 * h * 10
    raw = function(u).diff(n=3) / h**3
    assert raw.abs().max() > 1e3 * third.abs().max()


def test_hermite_coefficients_obey_parsevals_identity():
    std = torch.tensor([0.3, 1.0, 2.5], dtype=torch.float64)
    found = hermite_coefficients(lambda u: (F.relu(u - 1) ** 2, torch.sin(u)), std, kinks=(1.0,), count=600)
    squares = refined_line(lambda u: (F.relu(u - 1) ** 2, torch.sin(u)), std.square(), kinks=(1.0,))
    for a, square in zip(found, squares, strict=True):
        torch.testing.assert_close(a.square().sum(0), square, rtol=1e-5, atol=0)


def test_hermite_coefficients_do_not_depend_on_where_panels_are_cut():
    # Two kinks within one panel, two in panels beside each other, on an edge, and beyond the reach of the rule.
    std = torch.tensor([0.05, 0.3, 1.0, 2.5, 200.0], dtype=torch.float64)
    kinks = (-5.0, -0.5, 0.3, 0.31, 1.0, 40.0)
    cut, whole = (
        hermite_coefficients(lambda u: (torch.sin(u), torch.tanh(u)), std[:4], kinks=k, count=200)
        for k in (kinks, ())
    )
    for found, right in zip(cut, whole, strict=True):
        torch.testing.assert_close(found, right, rtol=0, atol=1e-13)
    # A step at κ has the coefficients P(z > κ/std) and, for n > 0, density(κ/std) h_{n-1}(κ/std) / √n.
    (found,) = hermite_coefficients(lambda u: ((u > 0.3).to(u),), std, kinks=kinks, count=3)
    z = 0.3 / std
    density = torch.exp(-z * z / 2) / (2 * torch.pi) ** 0.5
    expected = torch.stack([torch.special.ndtr(-z), density, density * z / 2**0.5])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", ["hardswish", "elu"])
def test_gradients_of_duals_are_those_of_finite_differences(name):
    dual = FUNCTIONS[name]
    x = torch.randn(3, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def kernel(x):
        k = x @ x.T / 5 + 0.1 * torch.eye(3, dtype=x.dtype)
        return dual.both(k.diagonal()[:, None], k, k.diagonal()[None])[0]

    # Along random directions, which any wrong entry of the Jacobian changes.
    assert torch.autograd.gradcheck(kernel, x.clone().requires_grad_(), eps=1e-5, atol=1e-6, fast_mode=True)
    x[1], x[2] = x[0], 0
    x.requires_grad_()
    k = x @ x.T
    for value in dual.both(k.diagonal()[:, None], k, k.diagonal()[None]):
        assert torch.autograd.grad(value.sum(), x, retain_graph=True)[0].isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_convolutions_of_a_clipped_function_agree_with_its_closed_form_at_every_position(dtype):
    """A kink that is written with a table is the kink in closed form, position by position."""

    class Clipped(nn.Module):
        def __init__(self, dual):
            super().__init__()
            self.dual = dual

        def forward(self, u):
            return F.hardtanh(u)

    def kernel(dual):
        return InfiniteKernel(
            nn.Sequential(
                nn.Conv2d(2, 8, 3, padding=1),
                Clipped(dual),
                nn.AdaptiveAvgPool2d(1),
                nn.Flatten(),
                nn.Linear(8, 1),
            ),
            w_std=1.4,
            b_std=0.2,
        )

    x = torch.randn(4, 2, 5, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    x[1] = x[0]
    exact, found = kernel(dual_of("hardtanh"))(x), kernel(FUNCTIONS["hardtanh"])(x.to(dtype))
    assert found.dtype == dtype
    tolerance = 1e-8 if dtype == torch.float64 else 3e-6
    torch.testing.assert_close(found.double(), exact, rtol=tolerance, atol=0)
