"""Duals by quadrature against thirty digits, and their statement of the error with it."""

import mpmath as mp
import pytest
import torch

from tangentkit.infinite.duals.registry import dual_of


def sigmoid(x):
    return 1 / (1 + mp.exp(-x))


def softplus(x):
    return mp.log(1 + mp.exp(x))


def mish_slope(x):
    return mp.tanh(softplus(x)) + x * mp.sech(softplus(x)) ** 2 * sigmoid(x)


SMOOTH = {
    "tanh": (mp.tanh, lambda x: mp.sech(x) ** 2),
    "sigmoid": (sigmoid, lambda x: sigmoid(x) * sigmoid(-x)),
    "silu": (lambda x: x * sigmoid(x), lambda x: sigmoid(x) * (1 + x * sigmoid(-x))),
    "softplus": (softplus, sigmoid),
    "mish": (lambda x: x * mp.tanh(softplus(x)), mish_slope),
}
POINTS = [(1.3, 0.4, 0.7), (2.0, -1.9, 2.0)]


def check(name: str, point: tuple[float, ...], exact: list) -> None:
    dual = dual_of(name)
    arguments = [torch.tensor([value], dtype=torch.float64) for value in point]
    xx, _, yy = arguments
    norms = [(f(xx) * f(yy)).sqrt() for f in (dual.diag, dual.derivative_diag)]
    found, stated = dual.both(*arguments), dual.error(*arguments)
    for value, right, error, norm in zip(found, exact, stated, norms, strict=True):
        miss = abs(value.item() - float(right))
        assert miss <= 1e-11 * norm.item()
        assert miss <= error.item() + 1e-14 * norm.item()  # rounding of both
        assert error.item() <= 1e-10 * norm.item()


@pytest.mark.parametrize("point", POINTS, ids=str)
@pytest.mark.parametrize("name", SMOOTH)
def test_duals_of_smooth_functions_have_the_digits_of_the_trapezoidal_rule(name, point):
    """The trapezoidal rule in two independent normal variables, whose error is exponentially small in 1/step."""
    with mp.workdps(30):
        a, c, b = (mp.mpf(value) for value in point)
        step = mp.mpf(1) / 6
        z = [step * i for i in range(-50, 51)]
        density = [mp.npdf(v) * step for v in z]
        rest = mp.sqrt(b - c * c / a)
        exact = []
        for function in SMOOTH[name]:
            at_u = [function(mp.sqrt(a) * v) * p for v, p in zip(z, density, strict=True)]
            exact.append(
                sum(
                    f
                    * sum(
                        function(c / mp.sqrt(a) * v + rest * w) * p for w, p in zip(z, density, strict=True)
                    )
                    for f, v in zip(at_u, z, strict=True)
                )
            )
    check(name, point, exact)


@pytest.mark.parametrize("point", POINTS, ids=str)
def test_the_dual_of_elu_has_the_digits_of_its_integral(point):
    """The inner integral by hand, E[elu(v) given u], and the outer one split where elu bends."""
    with mp.workdps(30):
        a, c, b = (mp.mpf(value) for value in point)
        std, rest = mp.sqrt(a), mp.sqrt(b - c * c / a)

        def given(mean):
            falling = mp.exp(mean + rest**2 / 2) * mp.ncdf(-(mean + rest**2) / rest)
            rising = mean * mp.ncdf(mean / rest) + rest * mp.npdf(mean / rest)
            return rising + falling - mp.ncdf(-mean / rest), mp.ncdf(mean / rest) + falling

        def elu(u):
            return (u, mp.mpf(1)) if u > 0 else (mp.expm1(u), mp.exp(u))

        exact = [
            mp.quad(
                lambda z, i=i: elu(std * z)[i] * given(c / std * z)[i] * mp.npdf(z),
                [-10, -4, -1, 0, 1, 4, 10],
            )
            for i in (0, 1)
        ]
    check("elu", point, exact)
