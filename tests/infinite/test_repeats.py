"""Samples that come twice are one sample, however deep the network."""

import pytest
import torch
from torch import nn

from tangentkit.infinite import InfiniteKernel
from tangentkit.infinite.repeats import repeats


def deep(depth: int, activation: type[nn.Module]) -> nn.Module:
    layers = [layer for _ in range(depth) for layer in (nn.Linear(20, 20), activation())]
    return nn.Sequential(*layers, nn.Linear(20, 1))


def samples() -> torch.Tensor:
    x = torch.randn(7, 20, generator=torch.Generator().manual_seed(0))
    x[3], x[5] = x[0], x[0]
    return x


@pytest.mark.parametrize("activation", [nn.ReLU, nn.GELU])
@pytest.mark.parametrize("kind", ["ntk", "nngp"])
def test_repeated_samples_have_equal_rows_in_float32(activation, kind):
    kernel, x = InfiniteKernel(deep(100, activation), kind, w_std=2**0.5), samples()
    k, exact = kernel(x), kernel(x.double()).float()
    torch.testing.assert_close(k, exact, rtol=2e-3, atol=0)
    assert (k[[0, 3, 5]][:, [0, 3, 5]] == k[0, 0]).all()
    across = kernel(x[:3], x[3:])
    assert across[0, 0] == across[0, 2] == k[0, 0]


def test_gradients_still_reach_both_of_two_equal_samples():
    x = samples().double().requires_grad_()
    kernel = InfiniteKernel(deep(2, nn.ReLU))
    (gradient,) = torch.autograd.grad(kernel(x)[0, 3], x)
    torch.testing.assert_close(gradient[0], gradient[3])
    assert gradient[0].abs().max() > 0


def test_only_samples_that_are_equal_to_the_last_bit_repeat():
    x = samples()
    near = x.clone()
    near[0, 0] = torch.nextafter(near[0, 0], torch.tensor(9.0))
    assert repeats(x, near) == [([1], [1]), ([2], [2]), ([0, 3, 5], [3, 5]), ([4], [4]), ([6], [6])]
