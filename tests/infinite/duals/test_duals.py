"""The laws that every dual obeys."""

import pytest
import torch

from infinite.duals.closed_duals import AWKWARD, CLOSED, tensors
from tangentkit.infinite.duals.closed_forms import (
    Dual,
    Exponential,
    Monomial,
    Rectifier,
    Sign,
)
from tangentkit.infinite.duals.piecewise_linear import PiecewiseLinear


@pytest.fixture(params=CLOSED)
def closed(request):
    return CLOSED[request.param]


@pytest.fixture(params=CLOSED)
def dual(request) -> Dual:
    return CLOSED[request.param][0]


def gram(n: int = 24, d: int = 7, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Covariances of inputs of unequal length, with equal, opposite, parallel and zero ones among them."""
    generator = torch.Generator().manual_seed(3)
    x = (
        torch.randn(n, d, generator=generator, dtype=torch.float64)
        * torch.linspace(0.2, 2.0, n)[:, None].double()
    )
    x[3], x[5], x[7], x[9] = x[2], -x[4], 2 * x[6], 0
    return (x @ x.T / d).to(dtype)


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_and_gradients_are_finite(closed, dtype):
    dual, points = closed[0], [*AWKWARD, (1e12, 1e12, 1e12), (1e12, -9e11, 1e12)]
    if isinstance(dual, Exponential | Monomial):  # of which the expectation itself overflows there
        points = [point for point in points if max(point) <= 1e6]
    # Each point is an entry of its own: the gradient of a sum is that of each.
    arguments = [x.requires_grad_() for x in tensors(*map(list, zip(*points, strict=True)), dtype=dtype)]
    for index in (0, 1):
        value = dual.both(*arguments)[index]
        assert value.isfinite().all()
        if not value.requires_grad:
            continue  # a constant
        gradients = torch.autograd.grad(value.sum(), arguments, allow_unused=True, materialize_grads=True)
        assert all(gradient.isfinite().all() for gradient in gradients), gradients
    for diagonal in (dual.diag, dual.derivative_diag):
        (xx,) = tensors([point[0] for point in points], dtype=dtype)
        value = diagonal(xx.requires_grad_())
        assert value.isfinite().all()
        if value.requires_grad:
            assert torch.autograd.grad(value.sum(), xx)[0].isfinite().all()


def generic_arguments() -> list[torch.Tensor]:
    xx, yy = tensors([[0.5], [2.0]], [[1.5, 0.7, 1.0]])
    xy = torch.tensor([[0.3, -0.5, 0.0], [1.6, 0.2, -0.9]], dtype=torch.float64)
    return [x.requires_grad_() for x in (xx, xy, yy)]


def test_gradients_are_those_of_finite_differences(dual):
    # Along random directions, which any wrong entry of the Jacobian changes.
    assert torch.autograd.gradcheck(dual.both, generic_arguments(), fast_mode=True)


def test_duals_obey_prices_theorem(dual):
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
