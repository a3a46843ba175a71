"""From functions and modules to their duals."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from infinite.duals.closed_duals import tensors
from tangentkit.core.errors import InputError, ModelError
from tangentkit.infinite.duals.closed_forms import (
    Dual,
    Monomial,
    Rectifier,
)
from tangentkit.infinite.duals.piecewise_linear import PiecewiseLinear
from tangentkit.infinite.duals.registry import MAKERS, MODULES, Pointwise, dual_of


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
