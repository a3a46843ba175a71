"""Exact where it can be, finite everywhere, positive in float32, and within its memory."""

import pytest
import torch
from torch import nn

from tangentkit import data
from tangentkit.core.errors import BudgetError, NumericalError
from tangentkit.infinite import InfiniteKernel


def mlp(depth: int, d: int = 7, activation=nn.ReLU) -> nn.Sequential:
    hidden = [layer for i in range(depth) for layer in (nn.Linear(8 if i else d, 8), activation())]
    return nn.Sequential(*hidden, nn.Linear(8, 1))


def cnn(*head: nn.Module, features: int = 8, activation=nn.ReLU) -> nn.Sequential:
    convs = [nn.Conv2d(2, 8, 3, padding=1), activation(), nn.Conv2d(8, 8, 3, padding=1), activation()]
    return nn.Sequential(*convs, *head, nn.Flatten(), nn.Linear(features, 1))


@pytest.mark.parametrize("depth", [1, 2, 5, 10, 30])
def test_a_unit_input_has_the_depth_on_the_diagonal(depth):
    x = torch.randn(20, 7, dtype=torch.float64)
    x = x / x.norm(dim=1, keepdim=True) * 7**0.5
    # In Arora's normalization the first layer has no factor 2, so K stays 1 and every layer adds 1 to Θ.
    kernel = InfiniteKernel(mlp(depth), w_std={str(2 * i): 2**0.5 for i in range(1, depth + 1)})
    exact = torch.full((20,), depth + 1.0, dtype=torch.float64)
    torch.testing.assert_close(kernel.diag(x), exact, rtol=1e-14, atol=0)
    torch.testing.assert_close(kernel(x).diagonal(), exact, rtol=1e-14, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("model", "activation"),
    [
        ("mlp", nn.ReLU),
        ("mlp", nn.GELU),
        ("mlp", nn.ELU),
        ("flatten", nn.ReLU),
        ("gap", nn.ReLU),
        ("gap", nn.GELU),
    ],
)
def test_equal_opposite_and_zero_inputs_are_finite_and_so_are_gradients(model, activation, dtype):
    makers = {
        "mlp": lambda: (mlp(3, activation=activation), (7,)),
        "flatten": lambda: (cnn(features=8 * 12, activation=activation), (2, 4, 3)),
        "gap": lambda: (cnn(nn.AdaptiveAvgPool2d(1), activation=activation), (2, 4, 3)),
    }
    network, shape = makers[model]()
    base = torch.randn(2, *shape, dtype=dtype)
    x = torch.stack([base[0], base[0], -base[0], 2 * base[0], 0 * base[0], base[1]]).requires_grad_()
    kernel = InfiniteKernel(network, w_std=1.4)
    for values in (kernel(x), kernel(x, x), kernel(x, base), kernel.diag(x)):
        assert values.isfinite().all()
        (gradient,) = torch.autograd.grad(values.sum(), x)
        assert gradient.isfinite().all()
    k = kernel(x.detach())
    torch.testing.assert_close(k[:, 0], k[:, 1], rtol=1e-3, atol=1e-4)
    eigenvalues = torch.linalg.eigvalsh(k.double())
    assert eigenvalues[0] >= -1e-5 * eigenvalues[-1]


@pytest.mark.parametrize("model", ["mlp", "gap", "windows"])
def test_gradients_are_those_of_finite_differences(model):
    networks = {
        "mlp": (mlp(2), (7,)),
        "gap": (cnn(nn.AdaptiveAvgPool2d(1)), (2, 4, 3)),
        "windows": (cnn(nn.AvgPool2d(2, ceil_mode=True), features=32), (2, 4, 3)),
    }
    network, shape = networks[model]
    x = torch.randn(3, *shape, dtype=torch.float64, requires_grad=True)
    y = torch.randn(2, *shape, dtype=torch.float64)
    kernel = InfiniteKernel(network, w_std=1.4, b_std=0.5)
    # The diagonal of a symmetric kernel is a function of its own.
    torch.autograd.gradcheck(lambda x: kernel(x, y), (x,), fast_mode=True)
    torch.autograd.gradcheck(lambda x: kernel(x), (x,), fast_mode=True)
    torch.autograd.gradcheck(kernel.diag, (x,), fast_mode=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_float32_and_float64_agree(dtype):
    x = torch.randn(30, 7, dtype=torch.float64)
    exact = InfiniteKernel(mlp(10), w_std=2**0.5)(x)
    got = InfiniteKernel(mlp(10).to(dtype), w_std=2**0.5)(x.to(dtype))
    assert got.dtype == dtype
    assert (got.double() - exact).abs().max() <= (1e-4 if dtype == torch.float32 else 1e-12) * exact.max()


def smallest_over_largest(n: int) -> float:
    images = data.load("fashion-mini" if n <= 300 else "fashion-mnist", "train", limit=n).inputs
    x = images.flatten(1).float()
    k = InfiniteKernel(mlp(10, d=x.shape[1]), w_std=2**0.5)(x)
    assert k.dtype == torch.float32
    eigenvalues = torch.linalg.eigvalsh(k.double())
    return float(eigenvalues[0] / eigenvalues[-1])


def test_real_images_are_positive_in_float32():
    assert smallest_over_largest(300) >= -1e-5


@pytest.mark.slow
@pytest.mark.data
def test_two_thousand_real_images_are_positive_in_float32(real_data):
    assert smallest_over_largest(2000) >= -1e-5


def test_overflow_is_an_error():
    class Exponential(nn.Module):
        def forward(self, x):
            return torch.exp(x)

    with pytest.raises(NumericalError, match="not finite"):
        InfiniteKernel(mlp(2, activation=Exponential))(torch.full((2, 7), 30.0))


def test_a_budget_too_small_for_one_pair_is_an_error_with_numbers():
    model = cnn(nn.AdaptiveAvgPool2d(1))
    x = torch.randn(2, 2, 16, 16)
    with pytest.raises(BudgetError, match=r"at least 98.3 kB, got 20.0 kB"):
        InfiniteKernel(model, memory="20kB")(x)
    small = InfiniteKernel(model, memory="100kB")(x)
    torch.testing.assert_close(small, InfiniteKernel(model)(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("head", [(), (nn.AdaptiveAvgPool2d(1),)], ids=["flatten", "gap"])
def test_tensors_stay_within_the_budget(head):
    model = cnn(*head, features=8 if head else 800)
    x = torch.randn(12, 2, 10, 10)
    budget = 1_500_000
    kernel = InfiniteKernel(model, memory=budget)
    kernel(x[:2])  # maps between pairs are made once
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        kernel(x)
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    alive = most = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        alive += event.nbytes()
        most = max(most, alive)
    assert 0 < most <= budget


def test_it_does_not_grow_with_autograd_off_and_works_in_inference_mode():
    x = torch.randn(3, 7)
    kernel = InfiniteKernel(mlp(2))
    with torch.inference_mode():
        inside = kernel(x)
    assert torch.equal(inside, kernel(x))
    assert not kernel(x).requires_grad
