"""The theory page: its formulas, evaluated as they are printed, are what the functions named beside them compute."""

import importlib
import itertools
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats
from torch import nn

import tangentkit as tk
from tangentkit import infinite
from tangentkit.infinite import InfiniteKernel, PiecewiseLinear, Program
from tangentkit.infinite.duals.closed_forms import Erf, Exponential, Gelu, Monomial, Rectifier, Sign, Sine
from tangentkit.infinite.duals.hermite import hermite_coefficients
from tangentkit.infinite.duals.kinks import moments
from tangentkit.infinite.duals.quadrature import expectations
from tangentkit.infinite.scalar.cube import Cube, cube_points
from tangentkit.infinite.scalar.degrees import degree_variances
from tangentkit.infinite.scalar.series import power_series
from tangentkit.infinite.scalar.sphere import Sphere

PAGE = Path(__file__).parents[2] / "docs" / "theory.md"
XX, XY, YY = 1.3, 0.4, 0.7
W, B = 1.3, 0.4


def doubles(*numbers: float) -> list[torch.Tensor]:
    return [torch.tensor(number, dtype=torch.float64) for number in numbers]


def normal(z: np.ndarray) -> np.ndarray:
    return np.exp(-z * z / 2) / math.sqrt(2 * math.pi)


def mean_over_plane(function, xx: float = XX, xy: float = XY, yy: float = YY) -> float:
    """E f(u, v) with v given u, by scipy."""
    slope, rest = xy / xx, math.sqrt(yy - xy * xy / xx)

    def inner(z: float) -> float:
        u = math.sqrt(xx) * z
        return integrate.quad(
            lambda w: function(u, slope * u + rest * w) * normal(w), -9, 9, points=(0,), epsabs=1e-8
        )[0]

    return integrate.quad(lambda z: inner(z) * normal(z), -9, 9, points=(0,), epsabs=1e-8)[0]


# names -------------------------------------------------------------------------------------------------------


PLACES = [
    infinite,
    *(
        importlib.import_module(f"tangentkit.infinite.{name}")
        for name in ("duals.closed_forms", "propagate.network")
    ),
]


def named(token: str) -> object:
    """What a name stands for: from `tk`, a public name or one of a table's, or a path below tangentkit.infinite."""
    if token == "tangentkit.infinite":
        return infinite
    first, *rest = token.split(".")
    found = tk if first == "tk" else next(getattr(place, first) for place in PLACES if hasattr(place, first))
    for part in rest:
        found = getattr(found, part)
    return found


def test_every_name_on_the_page_exists_and_every_public_name_is_on_it():
    page = PAGE.read_text()
    tokens = {token.rstrip(".") for token in re.findall(r"`([A-Za-z_][\w.]*)", page)} - {"tk"}
    assert len(tokens) > 40
    for token in tokens:
        assert named(token) is not None
    public = {name for name, value in vars(infinite).items() if callable(value) and name[0] != "_"}
    assert len(public) > 20
    assert not {name for name in public if not re.search(rf"\b{name}\b", page)}


# from a network to its kernels -------------------------------------------------------------------------------


class Written(nn.Module):
    def __init__(self, forward, **layers):
        super().__init__()
        for name, layer in layers.items():
            setattr(self, name, layer)
        self.rule = forward

    def forward(self, x):
        return self.rule(self, x)


def kernels(forward, x, y, *, standard: bool = False, **layers):
    options = {"w_std": W, "b_std": B, "parameterization": "standard" if standard else "ntk"}
    return [InfiniteKernel(Written(forward, **layers), kind, **options)(x, y) for kind in ("nngp", "ntk")]


def layer(k, t, *, fan_in: float | None = None):
    """A linear layer; in the standard parameterization with its fan_in."""
    gains = (W**2, B**2) if fan_in is None else (fan_in, 1.0)
    return W**2 * k + B**2, W**2 * t + gains[0] * k + gains[1]


def relu(k, t, q, r):
    """ReLU by its angle: (S + (π - θ) xy)/2π and (π - θ)/2π."""
    root = (q * r - k * k).clamp(min=0).sqrt()
    angle = torch.pi - torch.arctan2(root, k)
    return (root + angle * k) / (2 * torch.pi), t * angle / (2 * torch.pi)


@pytest.fixture
def images():
    x, y = torch.randn(2, 2, 3, 6, dtype=torch.float64)
    return x, y


def pairs(x, y):
    """<x_p, y_q>/d of sequences (n, d, p), as (n, m, p, q)."""
    return torch.einsum("ncp,mcq->nmpq", x, y) / x.shape[1]


def variances(x):
    return torch.einsum("ncp,ncp->np", x, x) / x.shape[1]


def hidden(x, y):
    """K and Θ behind a layer that acts on each position alone, and a ReLU."""
    q, r = (W**2 * variances(v) + B**2 for v in (x, y))
    return relu(*layer(pairs(x, y), 0 * pairs(x, y)), q[:, None, :, None], r[None, :, None, :])


@pytest.mark.parametrize("standard", [False, True], ids=["ntk", "standard"])
def test_linear_layers_and_activations(standard):
    x, y = torch.randn(2, 3, 5, dtype=torch.float64)
    k, q, r = x @ y.T / 5, (x * x).sum(1)[:, None] / 5, (y * y).sum(1) / 5
    after = layer(k, 0 * k, fan_in=5 if standard else None)
    after = relu(*after, W**2 * q + B**2, W**2 * r + B**2)
    expected = layer(*after, fan_in=8 if standard else None)
    found = kernels(
        lambda m, x: m.b(m.a(x).relu()), x, y, standard=standard, a=nn.Linear(5, 8), b=nn.Linear(8, 1)
    )
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-13)


def test_filters_windows_and_heads(images):
    x, y = images
    k, t = hidden(x, y)
    conv, head = nn.Conv1d(3, 8, 1), nn.Linear(8, 1)
    same = torch.arange(6)
    # (1/F) Σ_a K(p + a, q + a) without padding, then the mean over p = q.
    filtered = [sum(f[:, :, a : a + 4, a : a + 4] for a in range(3)) / 3 for f in (k, t)]
    middle = layer(*filtered)
    cases = {
        "flatten": (
            lambda m, x: m.wide(m.conv(x).relu().flatten(1)),
            layer(*(f[:, :, same, same].mean(-1) for f in (k, t))),
        ),
        "global pooling": (
            lambda m, x: m.head(m.conv(x).relu().mean(2)),
            layer(*(f.mean((2, 3)) for f in (k, t))),
        ),
        "windows": (
            lambda m, x: m.third(nn.functional.avg_pool1d(m.conv(x).relu(), 2).flatten(1)),
            layer(
                *(
                    torch.stack(
                        [f[:, :, i : i + 2, i : i + 2].mean((2, 3)) for i in range(0, 6, 2)], -1
                    ).mean(-1)
                    for f in (k, t)
                )
            ),
        ),
        "a sum": (
            lambda m, x: m.head(m.conv(x).relu().sum(2)),
            layer(*(36 * f.mean((2, 3)) for f in (k, t))),
        ),
        "a filter": (
            lambda m, x: m.head(m.next(m.conv(x).relu()).mean(2)),
            layer(*(f.mean((2, 3)) for f in middle)),
        ),
        "zeros around": (
            lambda m, x: m.ten(nn.functional.pad(m.conv(x).relu(), (1, 3)).flatten(1)),
            layer(*(f[:, :, same, same].sum(-1) / 10 for f in (k, t))),
        ),
    }
    for name, (forward, expected) in cases.items():
        found = kernels(
            forward,
            x,
            y,
            conv=conv,
            head=head,
            wide=nn.Linear(48, 1),
            third=nn.Linear(24, 1),
            ten=nn.Linear(80, 1),
            next=nn.Conv1d(8, 8, 3),
        )
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12, msg=name)


def test_branches_channels_and_normalization(images):
    x, y = (v[..., 0] for v in images)
    k, t = (f[:, :, 0, 0] for f in hidden(x[..., None], y[..., None]))
    q, r = (W**2 * variances(v[..., None])[:, 0] + B**2 for v in (x, y))
    branch = layer(k, t)
    plain = layer(x @ y.T / 3, 0 * k)
    norm = (q[:, None] + 1e-3).sqrt() * (r + 1e-3).sqrt()
    layers = {
        "a": nn.Linear(3, 8),
        "b": nn.Linear(8, 8),
        "c": nn.Linear(3, 24),
        "head": nn.Linear(8, 1),
        "wide": nn.Linear(32, 1),
        "norm": nn.LayerNorm(8, eps=1e-3, elementwise_affine=False),
    }

    def sums(m, x):
        h = m.a(x)
        return m.head(2 * h - 0.5 * m.b(h.relu()))

    cases = {
        "a scaled sum": (sums, layer(*(4 * p + 0.25 * b for p, b in zip(plain, branch, strict=True)))),
        "channels": (
            lambda m, x: m.wide(torch.cat([m.a(x).relu(), m.c(x)], 1)),
            layer(*(0.25 * a + 0.75 * p for a, p in zip((k, t), plain, strict=True))),
        ),
        "a part": (lambda m, x: m.head(m.c(x)[:, 5:13]), layer(*plain)),
        "a norm": (lambda m, x: m.head(m.norm(m.a(x))), layer(*(f / norm for f in plain))),
    }
    for name, (forward, expected) in cases.items():
        for one, other in zip(kernels(forward, x, y, **layers), expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12, msg=name)


# duals -------------------------------------------------------------------------------------------------------


def rectifier(s: float):
    p, q, root = (1 + s) / 2, (1 - s) / 2, math.sqrt(XX * YY - XY**2)
    alpha = math.atan2(XY, root)
    return p**2 * XY + 2 / math.pi * q**2 * (root + alpha * XY), p**2 + 2 / math.pi * q**2 * alpha


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


# scalar kernels ----------------------------------------------------------------------------------------------


def test_mlps_on_normalized_inputs():
    c = torch.linspace(-1, 1, 9, dtype=torch.float64)
    depth, w2, b2 = 3, 1.7, 0.3
    sigma, q = w2 * c + b2, torch.tensor(w2 + b2, dtype=torch.float64)
    sigmas, slopes = [sigma], []
    for _ in range(depth):
        value, slope = Erf().both(q, sigma, q)
        slopes.append(w2 * slope)
        sigma, q = w2 * value + b2, w2 * Erf().diag(q) + b2
        sigmas.append(sigma)
    written_out = sum(s * math.prod(slopes[h:], start=torch.ones_like(c)) for h, s in enumerate(sigmas))
    for kind, expected in (("nngp", sigmas[-1]), ("ntk", written_out)):
        phi = infinite.mlp_kernel_function(depth, "erf", weight_variance=w2, bias_variance=b2, kind=kind)
        torch.testing.assert_close(phi(c), expected, rtol=1e-12, atol=1e-13)
    one = torch.ones(1, dtype=torch.float64)
    for layers in (1, 4):
        values = [
            infinite.mlp_kernel_function(layers, "relu", weight_variance=2.0, kind=kind)(one).item()
            for kind in ("nngp", "ntk")
        ]
        assert values == pytest.approx([2, 2 * (layers + 1)], rel=1e-14)


def phi(t):
    return torch.exp(0.7 * t) + 0.2 * t**3


def test_spectra_on_the_cube_and_on_the_sphere():
    d = 6
    x = cube_points(d)
    values = phi(x.mean(1))
    expected = torch.stack([(values * x[:, :k].prod(1)).mean() for k in range(d + 1)])
    mu = infinite.boolean_cube_spectrum(phi, d)
    torch.testing.assert_close(mu, expected, rtol=1e-9, atol=1e-15)
    sizes = torch.tensor([math.comb(d, k) for k in range(d + 1)], dtype=torch.float64)
    torch.testing.assert_close(infinite.fractional_variance(mu, d), sizes * mu / (sizes * mu).sum())

    def density(t):
        return (1 - t * t) ** ((d - 3) / 2)

    def gegenbauer(k, t):
        return special.eval_gegenbauer(k, (d - 2) / 2, t) / special.eval_gegenbauer(k, (d - 2) / 2, 1.0)

    whole = integrate.quad(density, -1, 1)[0]
    for k, a in enumerate(infinite.sphere_spectrum(phi, d, top=4)):
        direct = integrate.quad(
            lambda t, k=k: float(phi(torch.tensor(t, dtype=torch.float64))) * gegenbauer(k, t) * density(t),
            -1,
            1,
        )
        assert float(a) == pytest.approx(direct[0] / whole, rel=1e-7, abs=1e-12)


@pytest.mark.parametrize("space", [Cube(7), Sphere(5)], ids=["cube", "sphere"])
def test_one_step_of_the_walk_over_degrees(space):
    """P_k = t P_{k-1} taken apart; then φ = Σ_k v_k P_k gives φ back."""
    t = torch.linspace(-1, 1, 8, dtype=torch.float64)
    polynomials, up = [torch.ones_like(t), t], space.up(np.arange(8))
    for k in range(1, 7):
        polynomials.append((t * polynomials[k] - (1 - up[k]) * polynomials[k - 1]) / up[k])
    if isinstance(space, Cube):
        # At t = 1 - 2r/d, P_k is the mean of the parities of k coordinates over points with r signs changed.
        x = cube_points(7)
        for k, polynomial in enumerate(polynomials):
            parities = torch.stack([x[:, list(s)].prod(1) for s in itertools.combinations(range(7), k)]).mean(
                0
            )
            here = torch.stack([parities[(x.mean(1) - value).abs() < 1e-9].mean() for value in t])
            torch.testing.assert_close(polynomial, here, rtol=1e-9, atol=1e-9)
    variances = degree_variances(lambda t: t**3 + 0.5 * t**2, space, top=3).values
    again = sum(v * p for v, p in zip(variances, polynomials, strict=False))
    torch.testing.assert_close(again, t**3 + 0.5 * t**2, rtol=1e-9, atol=1e-10)


def test_the_power_series():
    series = power_series(phi, 6)
    expected = [0.7**j / math.factorial(j) + 0.2 * (j == 3) for j in range(6)]
    np.testing.assert_allclose(series.coefficients, expected, rtol=1e-10)


def test_energies_of_functions_on_the_cube():
    f = torch.randn(2**4, dtype=torch.float64)
    x = cube_points(4)
    expected = [
        sum((f * x[:, list(s)].prod(1)).mean() ** 2 for s in itertools.combinations(range(4), k))
        for k in range(5)
    ]
    torch.testing.assert_close(
        infinite.degree_energies(f), torch.stack([torch.as_tensor(e) for e in expected])
    )
    both = infinite.empirical_fractional_variance(torch.stack([f, 2 * f]))
    torch.testing.assert_close(both, infinite.degree_energies(f) / f.square().mean())


# tensor programs ---------------------------------------------------------------------------------------------


def test_covariances_of_a_tensor_program():
    program = Program()
    u, v = program.inputs([[XX, XY], [XY, YY]])
    a, b = program.matrix(1.5), program.matrix(0.5)
    h, other = program.apply(torch.relu, u), program.apply(torch.relu, v)
    one, two, three = a @ h, a @ other, b @ other
    law = program.limit()
    assert float(law.mean(one, two).abs().max()) == 0
    assert float(law.covariance(one, two)) == pytest.approx(1.5 * rectifier(0.0)[0], rel=1e-12)
    assert float(law.covariance(one, three)) == 0
    assert float(law.covariance(2 * one + u, two)) == pytest.approx(3 * rectifier(0.0)[0], rel=1e-12)
