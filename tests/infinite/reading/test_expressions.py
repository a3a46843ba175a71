"""Scalar functions that a forward pass writes out, step by step."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tangentkit.core.errors import ModelError
from tangentkit.infinite import InfiniteKernel, PiecewiseLinear, Pointwise
from tangentkit.infinite.reading.expressions import Expression, Variable


class Net(nn.Module):
    """One hidden layer and a scalar function of it."""

    def __init__(self, function, dual=None):
        super().__init__()
        self.first, self.act, self.last = nn.Linear(5, 8), Scalar(function, dual), nn.Linear(8, 1)

    def forward(self, x):
        return self.last(self.act(self.first(x)))


class Scalar(nn.Module):
    def __init__(self, function, dual):
        super().__init__()
        self.function = function
        if dual is not None:
            self.dual = dual

    def forward(self, h):
        return self.function(h)


def in_place(h):
    h *= torch.sigmoid(1.702 * h)
    return h


def above(u):
    return u * (u > 0.5)


WRITTEN = {
    "swish": (lambda h: h * torch.sigmoid(h), Pointwise(F.silu)),
    "quick gelu": (in_place, Pointwise(lambda u: u * torch.sigmoid(1.702 * u))),
    "mish": (lambda h: torch.tanh(F.softplus(h)) * h, Pointwise(F.mish)),
    "squared relu": (lambda h: F.relu(h) ** 2, Pointwise(lambda u: u.clamp(min=0) ** 2)),
    "clamp": (lambda h: h.clamp(min=0), PiecewiseLinear((0.0,), (0.0, 1.0))),
    "hardtanh": (lambda h: torch.clamp(h, -1, max=1), PiecewiseLinear((-1.0, 1.0), (0.0, 1.0, 0.0), -1.0)),
    "shifted relu": (lambda h: F.relu(1 - 2 * h), PiecewiseLinear((0.5,), (-2.0, 0.0), 1.0)),
    "shortcut of itself": (lambda h: torch.add(h, F.relu(h), alpha=2), PiecewiseLinear((0.0,), (1.0, 3.0))),
    "affine": (lambda h: 2 * h + 1, PiecewiseLinear((), (2.0,), 1.0)),
    "two activations": (lambda h: torch.relu(torch.tanh(h)), Pointwise(lambda u: u.clamp(min=0).tanh())),
    "maximum": (
        lambda h: torch.maximum(h, torch.zeros_like(h)) - torch.minimum(h, 0.5 * h),
        PiecewiseLinear((0.0,), (-1.0, 0.5)),
    ),
    "maximum with a number": (
        lambda h: torch.minimum(torch.tensor(1.0), torch.maximum(h, torch.tensor(-1.0))),
        PiecewiseLinear((-1.0, 1.0), (0.0, 1.0, 0.0), -1.0),
    ),
    "max of two": (lambda h: torch.max(1 - h, h), PiecewiseLinear((0.5,), (-1.0, 1.0), 1.0)),
    "where": (lambda h: torch.where(h > 0, h, 0.2 * h), PiecewiseLinear((0.0,), (0.2, 1.0))),
    "where between": (
        lambda h: torch.where((h < -1) | (h >= 2), h**2, h),
        Pointwise(lambda u: torch.where((u < -1) | (u >= 2), u**2, u), (-1, 2)),
    ),
    "mask": (lambda h: h * (h > 0.5).to(h.dtype), Pointwise(above, (0.5,))),
    "masked": (lambda h: h.masked_fill(h <= 0.5, 0), Pointwise(above, (0.5,))),
    "step": (lambda h: (h > 0).float(), Pointwise(lambda u: (u > 0).to(u.dtype), (0,))),
    "clamp to a moving bound": (
        lambda h: torch.clamp(h, max=1 - h),
        PiecewiseLinear((0.5,), (1.0, -1.0)),
    ),
    "dropped": (lambda h: h * torch.sigmoid(F.dropout(h, 0.1, training=False)), Pointwise(F.silu)),
    "quotient": (lambda h: h / (1 + h.abs()), Pointwise(F.softsign)),
}


@pytest.mark.parametrize("kind", ["nngp", "ntk"])
@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_written_out_is_one_function(name, kind):
    function, dual = WRITTEN[name]
    x = torch.randn(4, 5, dtype=torch.float64)
    written, known = (
        InfiniteKernel(model, kind, w_std=1.3, b_std=0.2)(x) for model in (Net(function), Net(function, dual))
    )
    torch.testing.assert_close(written, known, rtol=1e-9, atol=1e-10)


def test_slopes_of_prelu_count_as_constants():
    x = torch.randn(4, 5, dtype=torch.float64)

    def kernel(activation):
        return InfiniteKernel(nn.Sequential(nn.Linear(5, 8), activation, nn.Linear(8, 1)), w_std=1.3)(x)

    with pytest.warns(UserWarning, match=r"slopes of PReLU \('1'\) count as constants"):
        found = kernel(nn.PReLU(8, 0.3))
    torch.testing.assert_close(found, kernel(nn.LeakyReLU(0.3)), rtol=1e-6, atol=0)  # 0.3 in float32
    frozen = nn.PReLU(dtype=torch.float64).requires_grad_(False)
    assert torch.equal(kernel(frozen), kernel(nn.LeakyReLU(0.25)))
    unequal = nn.PReLU(8).requires_grad_(False)
    unequal.weight[0] = 0.5
    with pytest.raises(ModelError, match=r"PReLU '1'.*differ from channel to channel"):
        kernel(unequal)


def test_kinks_are_found_where_a_step_bends():
    inner = Expression(torch.mul, (Variable(), Variable()))
    assert Expression(torch.sub, (inner, 4.0)).kinks() == ()
    bent = Expression(torch.relu, (Expression(torch.sub, (inner, 4.0)),), bends=(0.0,))
    assert bent.kinks() == pytest.approx((-2.0, 2.0), abs=1e-12)
    assert isinstance(bent.dual(), Pointwise)
    tent = Expression(
        torch.relu,
        (Expression(torch.sub, (1.0, Expression(torch.abs, (Variable(),), bends=(0.0,)))),),
        bends=(0.0,),
    )
    dual = tent.dual()
    assert isinstance(dual, PiecewiseLinear)
    assert dual.kinks == pytest.approx((-1.0, 0.0, 1.0))
    assert dual.slopes == pytest.approx((0.0, 1.0, -1.0, 0.0))


def test_a_jump_is_not_piecewise_linear():
    jump = Expression(torch.sign, (Expression(torch.sub, (Variable(), 1.0)),), bends=(0.0,))
    dual = jump.dual()
    assert isinstance(dual, Pointwise)
    assert dual.kinks == pytest.approx((1.0,))


def test_functions_of_two_fields_are_not_one_of_one():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Linear(5, 8), nn.Linear(5, 8), nn.Linear(8, 1)

        def forward(self, x):
            return self.c(self.a(x) * torch.sigmoid(self.b(x)))

    with pytest.raises(ModelError, match="products of branches"):
        InfiniteKernel(Two())(torch.randn(2, 5))
