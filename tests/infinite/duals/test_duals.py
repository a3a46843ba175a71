"""Duals in closed form against 50-digit arithmetic, quadrature, and the laws every dual obeys."""

import math

import mpmath as mp
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from tangentkit.core.errors import InputError, ModelError
from tangentkit.infinite.duals.closed_forms import (
    Dual,
    Erf,
    Exponential,
    Gelu,
    Monomial,
    Rectifier,
    Sign,
    Sine,
)
from tangentkit.infinite.duals.piecewise_linear import PiecewiseLinear
from tangentkit.infinite.duals.quadrature import expectations
from tangentkit.infinite.duals.registry import MAKERS, MODULES, Pointwise, dual_of

CLOSED = {
    "relu": (Rectifier(), torch.relu, (0.0,)),
    "leaky": (Rectifier(0.2), lambda u: F.leaky_relu(u, 0.2), (0.0,)),
    "abs": (Rectifier(-1.0), torch.abs, (0.0,)),
    "line": (Rectifier(1.0), lambda u: 1.0 * u, ()),
    "sign": (Sign(), torch.sign, (0.0,)),
    "erf": (Erf(), torch.erf, ()),
    "erf scaled": (Erf(0.6), lambda u: torch.erf(0.6 * u), ()),
    "gelu": (Gelu(), F.gelu, ()),
    "sin": (Sine(), torch.sin, ()),
    "cos": (Sine(phase=math.pi / 2), torch.cos, ()),
    "sine": (Sine(1.3, 0.4), lambda u: torch.sin(1.3 * u + 0.4), ()),
    "exp": (Exponential(0.7), lambda u: torch.exp(0.7 * u), ()),
    "constant": (Monomial(0), lambda u: 0.0 * u + 1.0, ()),
    "identity": (Monomial(1), lambda u: 1.0 * u, ()),
    "cube": (Monomial(3), lambda u: u**3, ()),
    "fourth": (Monomial(4), lambda u: u**4, ()),
    "hardtanh": (PiecewiseLinear((-1.0, 1.0), (0.0, 1.0, 0.0), -1.0), F.hardtanh, (-1.0, 1.0)),
    "three lines": (
        PiecewiseLinear((-0.5, 2.0), (-1.0, 0.5, 3.0), 0.3),
        lambda u: 0.3 - u + 1.5 * F.relu(u + 0.5) + 2.5 * F.relu(u - 2),
        (-0.5, 2.0),
    ),
}
AWKWARD = [
    (1.0, 1.0, 1.0),
    (2.0, -2.0, 2.0),
    (1.0, 1 - 1e-15, 1.0),
    (1.0, 1e-15 - 1, 1.0),
    (0.0, 0.0, 1.0),
    (1.0, 0.0, 0.0),
    (0.0, 0.0, 0.0),
    (1e-30, 1e-30, 1e-30),
    (1e-18, 0.3e-18, 1e-18),
    (3.0, 0.0, 2.0),
]


@pytest.fixture(params=CLOSED)
def closed(request):
    return CLOSED[request.param]


@pytest.fixture(params=CLOSED)
def dual(request) -> Dual:
    return CLOSED[request.param][0]


def tensors(*numbers: float, dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    return [torch.tensor(number, dtype=dtype) for number in numbers]


def gram(n: int = 24, d: int = 7, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Covariances of inputs of unequal length, with equal, opposite, parallel and zero ones among them."""
    generator = torch.Generator().manual_seed(3)
    x = (
        torch.randn(n, d, generator=generator, dtype=torch.float64)
        * torch.linspace(0.2, 2.0, n)[:, None].double()
    )
    x[3], x[5], x[7], x[9] = x[2], -x[4], 2 * x[6], 0
    return (x @ x.T / d).to(dtype)


# against more digits ---------------------------------------------------------------------------------------


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
def test_published_numbers(point, relu, step, erf, erf_slope):
    found = *Rectifier().both(*tensors(*point)), *Erf().both(*tensors(*point))
    assert [value.item() for value in found] == pytest.approx([relu, step, erf, erf_slope], abs=1e-6)


def test_relu_is_exact_where_arccos_is_not():
    xx = torch.rand(1000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    kernel, slope = Rectifier().both(xx, xx, xx)
    assert torch.equal(slope, torch.full_like(xx, 0.5))
    torch.testing.assert_close(kernel, xx / 2, rtol=4e-16, atol=0)


# against quadrature ------------------------------------------------------------------------------------------


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


# laws --------------------------------------------------------------------------------------------------------


def test_both_is_the_two_together(dual):
    k = gram()
    arguments = k.diagonal()[:, None], k, k.diagonal()[None]
    kernel, slope = dual.both(*arguments)
    assert torch.equal(kernel, dual(*arguments))
    assert torch.equal(slope, dual.derivative(*arguments))


@pytest.mark.parametrize("variance", [0.0, 1e-30, 1e-6, 0.3, 1.0, 7.0])
def test_diagonals_are_the_formulas_at_equal_inputs(dual, variance):
    (xx,) = tensors(variance)
    kernel, slope = dual.both(xx, xx, xx)
    # Piecewise linear functions come from a rule of fixed size; all others are exact.
    rtol = 1e-9 if isinstance(dual, PiecewiseLinear) else 1e-13
    torch.testing.assert_close(dual.diag(xx), kernel, rtol=rtol, atol=1e-150)
    torch.testing.assert_close(dual.derivative_diag(xx), slope, rtol=rtol, atol=1e-150)


def test_symmetric_positive_and_within_cauchy_schwarz(dual):
    k = gram()
    q = k.diagonal()
    norms = dual.diag(q), dual.derivative_diag(q)
    for value, norm in zip(dual.both(q[:, None], k, q[None]), norms, strict=True):
        # The ReLU's derivative has an infinite slope at equal inputs: sqrt(eps) is what rounding does there.
        torch.testing.assert_close(value, value.T, rtol=1e-7, atol=1e-12)
        exact = value.clone()
        exact.fill_diagonal_(0).diagonal().add_(norm)
        assert torch.linalg.eigvalsh((exact + exact.T) / 2)[0] >= -1e-7 * norm.max()
        bound = (norm[:, None] * norm[None]).sqrt()
        assert (value.abs() <= bound * (1 + 1e-7) + 1e-12).all()


def test_float32_is_near_float64(dual):
    k = gram()
    single, double = (
        dual.both(x.diagonal()[:, None], x, x.diagonal()[None]) for x in (k.float(), k.float().double())
    )
    for found, right in zip(single, double, strict=True):
        assert found.dtype == torch.float32
        # sqrt(eps) near equal inputs, as above
        torch.testing.assert_close(found.double(), right, rtol=1e-3, atol=1e-3 * float(right.abs().max()))
        away = (k.abs() < 0.9 * (k.diagonal()[:, None] * k.diagonal()).sqrt()).double()
        torch.testing.assert_close(
            found * away, right * away, rtol=2e-5, atol=2e-6 * float(right.abs().max()), check_dtype=False
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_rectifiers_are_homogeneous_at_any_scale(dtype, scale):
    k = gram().to(dtype)
    q = k.diagonal()
    plain = Rectifier(0.1).both(q[:, None], k, q[None])
    scaled = Rectifier(0.1).both(q[:, None] * scale, k * scale, q[None] * scale)
    for index, factor in ((0, scale), (1, 1.0)):
        torch.testing.assert_close(
            scaled[index] / factor, plain[index], rtol=0, atol=5e-4 if dtype == torch.float32 else 3e-8
        )


@pytest.mark.parametrize("point", [*AWKWARD, (1e12, 1e12, 1e12), (1e12, -9e11, 1e12)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_and_gradients_are_finite(closed, point, dtype):
    dual = closed[0]
    if isinstance(dual, Exponential | Monomial) and max(point) > 1e6:
        pytest.skip("the expectation itself overflows")
    arguments = [x.requires_grad_() for x in tensors(*point, dtype=dtype)]
    for index in (0, 1):
        value = dual.both(*arguments)[index]
        assert value.isfinite()
        if not value.requires_grad:
            continue  # a constant
        gradients = torch.autograd.grad(value, arguments, allow_unused=True, materialize_grads=True)
        assert all(gradient.isfinite() for gradient in gradients), gradients
    for diagonal in (dual.diag, dual.derivative_diag):
        (xx,) = tensors(point[0], dtype=dtype)
        value = diagonal(xx.requires_grad_())
        assert value.isfinite()
        if value.requires_grad:
            assert torch.autograd.grad(value, xx)[0].isfinite()


def generic_arguments() -> list[torch.Tensor]:
    xx, yy = tensors([[0.5], [2.0]], [[1.5, 0.7, 1.0]])
    xy = torch.tensor([[0.3, -0.5, 0.0], [1.6, 0.2, -0.9]], dtype=torch.float64)
    return [x.requires_grad_() for x in (xx, xy, yy)]


def test_gradients_are_those_of_finite_differences(dual):
    assert torch.autograd.gradcheck(dual.both, generic_arguments())


def test_prices_theorem(dual):
    if dual in (Sign(), Monomial(0)):
        pytest.skip(
            "a jump's derivative counts as 0 and not as the point mass it is; a constant has no gradient"
        )
    equal = [x.requires_grad_() for x in tensors([[0.7], [2.0]], [[0.7, -0.7], [0.0, 0.0]], [[0.7, 0.7]])]
    for arguments in (generic_arguments(), equal):
        kernel, slope = dual.both(*arguments)
        (gradient,) = torch.autograd.grad(kernel.sum(), arguments[1])
        torch.testing.assert_close(gradient, slope, rtol=1e-9, atol=1e-12)


def test_second_gradients_of_rectifiers():
    assert torch.autograd.gradgradcheck(Rectifier(0.1).both, generic_arguments())


def test_recording_does_not_change_values(dual):
    arguments = generic_arguments()
    for watched, plain in zip(
        dual.both(*arguments), dual.both(*(x.detach() for x in arguments)), strict=True
    ):
        torch.testing.assert_close(watched.detach(), plain, rtol=1e-14, atol=1e-15)


def test_shapes_broadcast_and_arguments_stay(dual):
    shapes = [
        ((3, 1), (3, 4), (1, 4)),
        ((), (3, 4), ()),
        ((3, 4), (), (4,)),
        ((2, 1, 5), (2, 3, 5), (1, 3, 5)),
        ((0, 1), (0, 4), (1, 4)),
    ]
    for shape_x, shape_xy, shape_y in shapes:
        xx, xy, yy = (
            torch.full(shape_x, 2.0).double(),
            torch.full(shape_xy, 0.5).double(),
            torch.full(shape_y, 1.0).double(),
        )
        kernel, slope = dual.both(xx, xy, yy)
        full = torch.broadcast_shapes(shape_x, shape_xy, shape_y)
        assert kernel.shape == slope.shape == full
        single = dual.both(*tensors(2.0, 0.5, 1.0))
        torch.testing.assert_close(kernel, single[0].expand(full))
        torch.testing.assert_close(slope, single[1].expand(full))
        kernel.fill_(7.0)
        slope.fill_(7.0)
        assert (xx == 2).all()
        assert (xy == 0.5).all()
        assert (yy == 1).all()


@pytest.mark.parametrize("name", ["relu", "erf", "gelu", "sine", "cube"])
def test_transforms_of_torch_func(name):
    dual = CLOSED[name][0]
    xx, xy, yy = (x.detach() for x in generic_arguments())
    rows = torch.func.vmap(lambda x, z: dual(x, z, yy[0]))(xx, xy)
    torch.testing.assert_close(rows, dual(xx, xy, yy))
    slope = torch.func.grad(lambda z: dual(xx, z, yy).sum())(xy)
    torch.testing.assert_close(slope, dual.derivative(xx, xy, yy))


def test_conventions_at_zero_variance():
    zero, one = tensors(0.0, 1.0)
    assert Rectifier().derivative(zero, zero, one) == 0.25
    assert Rectifier(0.2).derivative_diag(zero) == pytest.approx(0.36)
    assert Sign()(zero, zero, one) == 0
    assert Sign().diag(zero) == 0
    assert Sign().derivative_diag(one) == 0


# from functions to duals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "same"),
    [
        (nn.ReLU(inplace=True), torch.relu),
        (F.relu, "relu"),
        (F.relu_, torch.Tensor.relu),
        (nn.GELU(), F.gelu),
        (nn.Identity(), "identity"),
        (torch.erf, torch.special.erf),
        (torch.abs, "absolute"),
        (nn.SiLU(), "swish"),
        (nn.ELU(), nn.ELU(1.0, inplace=True)),
        (nn.ReLU6(), F.relu6),
        (nn.Hardtanh(-2, 3), nn.Hardtanh(-2.0, 3.0)),
        (Monomial(3), "monomial_3"),
    ],
)
def test_one_function_has_one_dual(one, same):
    assert dual_of(one) == dual_of(same)
    assert hash(dual_of(one)) == hash(dual_of(same))


def test_options_tell_duals_apart():
    assert dual_of(nn.LeakyReLU(0.2)) == Rectifier(0.2) != dual_of(nn.LeakyReLU())
    assert dual_of(nn.GELU(approximate="tanh")) != dual_of(nn.GELU())
    assert dual_of(nn.ELU(0.5)) != dual_of(nn.ELU(1.0))
    assert dual_of(F.leaky_relu, negative_slope=0.3) == Rectifier(0.3)
    assert dual_of(torch.pow, exponent=4) == Monomial(4)


MODULE_EXAMPLES = [kind(0.3, -0.7) if kind is nn.Threshold else kind().eval() for kind in MODULES]


@pytest.mark.parametrize("module", MODULE_EXAMPLES, ids=lambda module: type(module).__name__)
def test_the_dual_of_every_module_is_that_of_its_function(module):
    """E[φ(u)]² = E[φ(u) φ(v)] for independent u, v, by Gauss-Hermite; loose, since kinks are not split there."""
    import numpy as np

    z, w = np.polynomial.hermite_e.hermegauss(150)
    z, w = torch.from_numpy(z), torch.from_numpy(w / w.sum())
    xx, xy, yy = tensors(1.7, 0.0, 0.6)
    means = [(w * module(z * math.sqrt(variance))).sum() for variance in (1.7, 0.6)]
    squares = (w * module(z * math.sqrt(1.7)) ** 2).sum()
    dual = dual_of(module)
    assert float(dual(xx, xy, yy)) == pytest.approx(float(means[0] * means[1]), abs=2e-2)
    assert float(dual.diag(xx)) == pytest.approx(float(squares), rel=3e-2)


def test_every_name_has_a_dual_with_a_name():
    options = {"pow": {"exponent": 2}, "threshold": {"threshold": 0.1, "value": 0.0}}
    for name in MAKERS:
        dual = dual_of(name, **options.get(name, {}))
        assert isinstance(dual, Dual)
        assert dual.name


def unknown_to_torch(x: torch.Tensor) -> torch.Tensor:
    return x * 2


class Lookalike(nn.ReLU):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return input.clamp(min=0.1)


@pytest.mark.parametrize(
    "thing", [nn.Softmax(dim=1), nn.GLU(), torch.softmax, unknown_to_torch, "rleu", 3, None, Lookalike()]
)
def test_what_has_no_dual_is_named(thing):
    with pytest.raises(ModelError, match="no dual is known") as caught:
        dual_of(thing)
    name = thing if isinstance(thing, str) else getattr(thing, "__name__", type(thing).__name__)
    if thing not in (3, None):
        assert name in str(caught.value)


def test_bad_options_and_functions():
    with pytest.raises(ModelError, match="does not have these options"):
        dual_of("relu", slope=0.1)
    with pytest.raises(InputError, match="entry by entry"):
        Pointwise(lambda u: u.sum(-1))
    with pytest.raises(InputError, match="kinks"):
        Pointwise(torch.tanh, kinks=(float("nan"),))
    with pytest.raises(InputError, match="power"):
        Monomial(-1)
    with pytest.raises(InputError, match="piecewise"):
        PiecewiseLinear((1.0, 0.0), (0.0, 1.0, 2.0))
