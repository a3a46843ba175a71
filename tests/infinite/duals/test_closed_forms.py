"""Duals in closed form against 50-digit arithmetic, published numbers and quadrature."""

import math

import mpmath as mp
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from infinite.duals.closed_duals import AWKWARD, CLOSED, tensors
from tangentkit.infinite.duals.closed_forms import (
    Erf,
    Gelu,
    Rectifier,
    Sine,
)
from tangentkit.infinite.duals.quadrature import expectations
from tangentkit.infinite.duals.registry import Pointwise


def exact_rectifier(slope: float):
    def pair(a, c, b):
        if a * b == 0:
            return mp.mpf(0), mp.mpf((1 + slope) ** 2) / 4
        rho = max(min(c / mp.sqrt(a * b), mp.mpf(1)), mp.mpf(-1))
        angle = mp.pi - mp.acos(rho)
        relu = mp.sqrt(a * b) * (mp.sqrt(1 - rho**2) + rho * angle) / (2 * mp.pi)
        return slope * c + (1 - slope) ** 2 * relu, slope + (1 - slope) ** 2 * angle / (2 * mp.pi)

    return pair


def exact_erf(scale: float):
    def pair(a, c, b):
        s = 2 * mp.mpf(scale) ** 2
        root = mp.sqrt((1 + s * a) * (1 + s * b))
        return 2 / mp.pi * mp.asin(s * c / root), 2 * s / mp.pi / mp.sqrt(root**2 - (s * c) ** 2)

    return pair


def exact_sine(frequency: float, phase: float):
    def pair(a, c, b):
        f, p = mp.mpf(frequency), mp.mpf(phase)
        near, far = mp.exp(-(f**2) * (a + b - 2 * c) / 2), mp.exp(-(f**2) * (a + b + 2 * c) / 2)
        return (near - mp.cos(2 * p) * far) / 2, f**2 * (near + mp.cos(2 * p) * far) / 2

    return pair


EXACT = [
    (Rectifier(), exact_rectifier(0.0)),
    (Rectifier(0.25), exact_rectifier(0.25)),
    (Rectifier(-1.0), exact_rectifier(-1.0)),
    (Erf(), exact_erf(1.0)),
    (Erf(0.5), exact_erf(0.5)),
    (Sine(), exact_sine(1.0, 0.0)),
    (Sine(0.5, 0.75), exact_sine(0.5, 0.75)),
]


POINTS = [
    *AWKWARD,
    (1.3, 0.4, 0.7),
    (2.0, -1.1, 2.0),
    (1e8, 3e7, 2e8),
    (1e8, 1e8, 1e8),
    (1e-8, 1e8**0.5 * 0.3e-4, 1e8),
    (50.0, -49.9, 50.0),
]


@pytest.mark.parametrize(("dual", "exact"), EXACT, ids=lambda value: getattr(value, "name", ""))
@pytest.mark.parametrize("point", POINTS, ids=str)
def test_closed_forms_agree_with_fifty_digits(dual, exact, point):
    """Within what one unit in the last place of the arguments changes: no formula can do better."""
    with mp.workdps(50):
        a, c, b = (mp.mpf(value) for value in point)
        eps = mp.mpf(2) ** -52
        truth = exact(a, c, b)
        moved = [exact(a * (1 + eps), c, b), exact(a, c * (1 - eps), b), exact(a, c, b * (1 + eps))]
        for found, right, *others in zip(dual.both(*tensors(*point)), truth, *moved, strict=True):
            spread = sum(abs(other - right) for other in others)
            scale = abs(right) + mp.sqrt(abs(exact(a, a, a)[0] * exact(b, b, b)[0]))
            assert abs(mp.mpf(found.item()) - right) <= 16 * (spread + eps * scale), (found, right)


@pytest.mark.parametrize("point", [(1.3, 0.4, 0.7), (2.0, -2.0, 2.0), (1.0, 1 - 1e-15, 1.0), (0.0, 0.0, 1.0)])
def test_gelu_agrees_with_an_integral_over_one_variable(point):
    """v is integrated out given u by hand, and u by mpmath."""
    a, c, b = (mp.mpf(value) for value in point)
    std = mp.sqrt(a)
    ratio, s2 = (c / a, b - c * c / a) if a else (mp.mpf(0), b)
    q = mp.sqrt(1 + s2)

    def mean(m):  # E[v Φ(v)] for v ~ N(m, s2), and its derivative in m
        z = m / q
        return m * mp.ncdf(z) + s2 / q * mp.npdf(z), mp.ncdf(z) + (m / q - s2 / q**2 * z) * mp.npdf(z)

    edges = [-9, -3, 0, 3, 9]
    kernel = mp.quad(lambda z: std * z * mp.ncdf(std * z) * mean(ratio * std * z)[0] * mp.npdf(z), edges)
    slope = mp.quad(
        lambda z: (mp.ncdf(std * z) + std * z * mp.npdf(std * z)) * mean(ratio * std * z)[1] * mp.npdf(z),
        edges,
    )
    for found, right in zip(Gelu().both(*tensors(*point)), (kernel, slope), strict=True):
        assert float(found) == pytest.approx(float(right), rel=1e-13, abs=1e-15)


def test_gelu_of_small_inputs_is_half_of_them():
    xx, xy, yy = tensors(1e-18, -0.3e-18, 2e-18)
    assert float(Gelu()(xx, xy, yy)) == pytest.approx(-0.3e-18 / 4, rel=1e-15)


@pytest.mark.parametrize(
    ("point", "relu", "step", "erf", "erf_slope"),
    [
        ((1.3, 0.4, 0.7), 0.265378, 0.318865, 0.175480, 0.450158),
        ((2.0, -1.1, 2.0), 0.092796, 0.157314, -0.290043, 0.283573),
    ],
)
def test_closed_forms_give_the_published_numbers(point, relu, step, erf, erf_slope):
    found = *Rectifier().both(*tensors(*point)), *Erf().both(*tensors(*point))
    assert [value.item() for value in found] == pytest.approx([relu, step, erf, erf_slope], abs=1e-6)


def test_relu_is_exact_where_arccos_is_not():
    xx = torch.rand(1000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    kernel, slope = Rectifier().both(xx, xx, xx)
    assert torch.equal(slope, torch.full_like(xx, 0.5))
    torch.testing.assert_close(kernel, xx / 2, rtol=4e-16, atol=0)


@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(sorted(CLOSED)),
    a=st.floats(1e-3, 4.0),
    b=st.floats(1e-3, 4.0),
    rho=st.one_of(st.floats(-1, 1), st.sampled_from([-1.0, 1.0, 1 - 1e-12, 0.999])),
)
def test_closed_forms_agree_with_quadrature(name, a, b, rho):
    dual, function, kinks = CLOSED[name]
    xx, xy, yy = tensors(a, rho * math.sqrt(a * b), b)
    values = expectations(Pointwise(function, kinks)._functions, xx, xy, yy, kinks=kinks, nodes=81)
    norms = dual.diag(xx) * dual.diag(yy), dual.derivative_diag(xx) * dual.derivative_diag(yy)
    for found, right, norm in zip(dual.both(xx, xy, yy), values, norms, strict=True):
        assert abs(found - right) <= 1e-8 * norm.sqrt(), (found, right)
