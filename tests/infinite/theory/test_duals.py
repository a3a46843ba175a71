"""The theory page: its formulas for duals, as they are printed, are what the functions compute."""

import itertools
import math

import pytest
import torch
from scipy import integrate, special, stats

from infinite.theory.printed import XX, XY, YY, doubles, mean_over_plane, normal, rectifier
from tangentkit.infinite import PiecewiseLinear
from tangentkit.infinite.duals.closed_forms import Erf, Exponential, Gelu, Monomial, Rectifier, Sign, Sine
from tangentkit.infinite.duals.hermite import hermite_coefficients
from tangentkit.infinite.duals.kinks import moments
from tangentkit.infinite.duals.quadrature import expectations


def erf(a: float):
    s = 2 * a * a
    x, y = 1 + s * XX, 1 + s * YY
    rho = s * XY / math.sqrt(x * y)
    return 2 / math.pi * math.asin(rho), 2 / math.pi * s / math.sqrt(x * y * (1 - rho**2))


def gelu():
    x, y = 1 + XX, 1 + YY
    root = math.sqrt(x * y)
    rho = XY / root
    tau = math.sqrt(1 - rho**2)
    g = 1 / (tau * root)
    return (
        XY / 4 + (XY * math.asin(rho) + XX * YY * tau / root + rho**2 * g) / (2 * math.pi),
        1 / 4 + (math.asin(rho) + XY * g * (1 / x + 1 / y + g**2)) / (2 * math.pi),
    )


def sine(f: float, beta: float):
    a, b = (math.exp(-(f**2) * (XX + sign * 2 * XY + YY) / 2) - 1 for sign in (-1, 1))
    return (
        math.sin(beta) ** 2 + (a - b * math.cos(2 * beta)) / 2,
        f**2 * (math.cos(beta) ** 2 + (a + b * math.cos(2 * beta)) / 2),
    )


def monomial(n: int):
    def value(n: int) -> float:
        return sum(
            math.factorial(n) ** 2
            / (math.factorial(n - 2 * j) * math.factorial(j) ** 2 * 4**j)
            * XY ** (n - 2 * j)
            * (XX * YY) ** j
            for j in range(n // 2 + 1)
        )

    return value(n), n**2 * value(n - 1)


def exponential(r: float):
    value = math.exp(r * r * (XX + 2 * XY + YY) / 2)
    return value, r * r * value


PRINTED = {
    "rectifier": (Rectifier(0.2), rectifier(0.2), lambda u: max(u, 0) + 0.2 * min(u, 0)),
    "sign": (Sign(), (2 / math.pi * math.atan2(XY, math.sqrt(XX * YY - XY**2)), 0.0), None),
    "erf": (Erf(0.8), erf(0.8), lambda u: math.erf(0.8 * u)),
    "gelu": (Gelu(), gelu(), lambda u: u * special.ndtr(u)),
    "sine": (Sine(1.2, 0.3), sine(1.2, 0.3), lambda u: math.sin(1.2 * u + 0.3)),
    "exp": (Exponential(0.6), exponential(0.6), lambda u: math.exp(0.6 * u)),
    "monomial": (Monomial(5), monomial(5), lambda u: u**5),
}


@pytest.mark.parametrize("name", PRINTED)
def test_duals_in_closed_form(name):
    dual, printed, function = PRINTED[name]
    assert [float(v) for v in dual.both(*doubles(XX, XY, YY))] == pytest.approx(printed, rel=1e-13)
    if function is not None:  # scipy does not know where v jumps
        mean = mean_over_plane(lambda u, v: function(u) * function(v))
        assert printed[0] == pytest.approx(mean, rel=1e-6)


def test_piecewise_linear_functions_and_their_moments():
    # φ = 0.3 - u left of -0.5, then slopes 0.5 and, from 2 on, 3.
    dual = PiecewiseLinear((-0.5, 2.0), (-1.0, 0.5, 3.0), 0.3)
    a, s = 0.3 + 0.75, 0.5

    def piece(u):
        return 1.5 * max(-0.5 - u, 0) + 2.5 * max(u - 2, 0)

    def slope(u):
        return -1.5 * (u < -0.5) + 2.5 * (u > 2)

    def mean(function, variance):
        points = (-0.5 / math.sqrt(variance), 2 / math.sqrt(variance))
        return integrate.quad(lambda z: function(math.sqrt(variance) * z) * normal(z), -9, 9, points=points)[
            0
        ]

    means, slopes = ([mean(f, variance) for variance in (XX, YY)] for f in (piece, slope))
    printed = (
        a**2
        + s**2 * XY
        + a * sum(means)
        + s * XY * sum(slopes)
        + mean_over_plane(lambda u, v: piece(u) * piece(v))
    )
    kernel, derivative = dual.both(*doubles(XX, XY, YY))
    assert float(kernel) == pytest.approx(printed, rel=1e-7)
    # E[P' P'] = Σ J_κ J_λ M_00, with the side of each kink.

    def beyond(k: float, l: float, sign: int) -> float:  # noqa: E741
        covariance = [[XX, sign * XY], [sign * XY, YY]]
        return float(stats.multivariate_normal([0, 0], covariance).cdf([-k, -l]))

    jumps = ((-1, 0.5, 1.5), (1, 2.0, 2.5))
    both = sum(
        one * other * i * j * beyond(here, there, i * j)
        for (i, here, one), (j, there, other) in itertools.product(jumps, repeat=2)
    )
    assert float(derivative) == pytest.approx(s**2 + s * sum(slopes) + both, rel=1e-7)

    xx, xy, yy = doubles(XX, XY, YY)
    found = moments(0.5, 2.0, xx, xy, yy, shape=(4, 4))
    assert float(found[0, 0]) == pytest.approx(beyond(0.5, 2.0, 1), rel=1e-7)
    k, l = 0.5 / math.sqrt(XX), 2 / math.sqrt(YY)  # noqa: E741
    gained = integrate.quad(
        lambda t: math.exp(-(k * k - 2 * k * l * math.sin(t) + l * l) / (2 * math.cos(t) ** 2)),
        0,
        math.asin(XY / math.sqrt(XX * YY)),
    )[0]
    independent = float(special.ndtr(-k) * special.ndtr(-l))
    assert float(found[0, 0]) == pytest.approx(independent + gained / (2 * math.pi), rel=1e-10)
    for i, j in itertools.product((2, 3), (1, 2, 3)):
        step = -0.5 * found[i - 1, j] + (i - 1) * xx * found[i - 2, j] + j * xy * found[i - 1, j - 1]
        torch.testing.assert_close(found[i, j], step, rtol=1e-12, atol=0)
    assert float(found[1, 2]) == pytest.approx(
        mean_over_plane(lambda u, v: max(u - 0.5, 0) * max(v - 2, 0) ** 2), rel=1e-6
    )


def test_polar_coordinates_and_mehlers_formula():
    theta = math.acos(XY / math.sqrt(XX * YY))
    polar = integrate.dblquad(
        lambda r, angle: (
            r
            * math.exp(-r * r / 2)
            * math.tanh(math.sqrt(XX) * r * math.cos(angle))
            * math.tanh(math.sqrt(YY) * r * math.cos(angle - theta))
        ),
        0,
        2 * math.pi,
        0,
        9,
    )[0] / (2 * math.pi)
    (rule,) = expectations(lambda u: (torch.tanh(u),), *doubles(XX, XY, YY), nodes=81)
    assert float(rule) == pytest.approx(polar, rel=1e-8)
    (a,) = hermite_coefficients(
        lambda u: (torch.tanh(u),), torch.tensor([XX, YY], dtype=torch.float64).sqrt(), count=60
    )
    series = sum(float(a[n, 0] * a[n, 1]) * math.cos(theta) ** n for n in range(60))
    assert series == pytest.approx(polar, rel=1e-8)
