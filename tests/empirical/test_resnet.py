"""A network of real size: float32 against float64."""

import pytest
import torch

from cases import gap
from tangentkit import models
from tangentkit.empirical import TangentKernel


def both(width, n):
    model = models.resnet18(outputs=10, width=width, zero_init_residual=False).eval()
    x = torch.randn(n, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    return model, x


def test_narrow_resnet_agrees_with_the_reference():
    from tangentkit import reference

    model, x = both(2, 3)
    x = x[:, :, ::4, ::4]
    j = reference.jacobian(model.double(), x.double())
    assert gap(TangentKernel(model.double(), "full")(x.double()), reference.full_kernel(j, j)) <= 1e-10
    assert gap(TangentKernel(model.float(), "full")(x), reference.full_kernel(j, j)) <= 2e-5


@pytest.mark.slow
def test_resnet18_in_float32():
    model, x = both(64, 8)
    single = TangentKernel(model)(x)
    double = TangentKernel(model.double())(x.double())
    assert gap(single, double) <= 2e-5
