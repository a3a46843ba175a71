"""Networks that scale in the forward pass, against their formulas."""

from math import exp, pi, sqrt

import pytest
import torch
from scipy.integrate import quad
from torch import nn
from torch.nn import functional as F

from tangentkit import models
from tangentkit.core import InputError
from tangentkit.models.layers import second_moment


class Erf(nn.Module):
    def forward(self, x):
        return torch.erf(x)


def gaussian_mean(function):
    """E function(z), z ~ N(0, 1), by adaptive quadrature on both sides of a kink at 0."""

    def integrand(z):
        return float(function(torch.tensor(z, dtype=torch.float64))) * exp(-z * z / 2) / sqrt(2 * pi)

    return sum(quad(integrand, *side, epsabs=1e-13, epsrel=1e-12)[0] for side in ((-12, 0), (0, 12)))


@pytest.mark.parametrize(
    "make",
    [
        models.normalized_tanh,
        models.normalized_softplus,
        models.normalized_relu,
        models.normalized_sigmoid,
    ],
)
def test_normalized_activations_have_mean_zero_and_variance_one(make):
    sigma = make()
    assert abs(gaussian_mean(sigma)) < 1e-10
    assert abs(gaussian_mean(lambda z: sigma(z) ** 2) - 1) < 1e-10


def test_constants_agree_with_the_published_ones():
    z = torch.linspace(-3, 3, 13, dtype=torch.float64)
    published = {
        models.normalized_tanh: torch.tanh(z) / 0.627928,
        models.normalized_softplus: (F.softplus(z) - 0.806059) / sqrt(0.271514),
        models.normalized_relu: sqrt(2 * pi / (pi - 1)) * (z.relu() - 1 / sqrt(2 * pi)),
        models.normalized_sigmoid: (z.sigmoid() - 0.5) / sqrt(0.21747 / (2 * sqrt(2 * pi))),
    }
    for make, expected in published.items():
        torch.testing.assert_close(make()(z), expected, rtol=5e-6, atol=5e-6)


@pytest.mark.parametrize("sigma", [torch.relu, torch.tanh, torch.erf, F.gelu, torch.sin, F.softplus])
def test_the_second_moment_is_the_gaussian_mean_of_the_square(sigma):
    assert abs(second_moment(sigma) - gaussian_mean(lambda z: sigma(z) ** 2)) < 1e-11


def test_second_moment_of_erf_is_known():
    assert abs(1 / second_moment(torch.erf) - 2.15258) < 5e-6


def test_two_layer_is_its_formula():
    d, h, n = 7, 11, 5
    model, x = models.two_layer(d, h, seed=2).double(), torch.randn(n, d, dtype=torch.float64)
    w, v = model.fc1.weight, model.fc2.weight[0]
    sigma = models.normalized_tanh()
    expected = sum(v[i] * sigma(x @ w[i] / sqrt(d)) for i in range(h)) / sqrt(h)
    torch.testing.assert_close(model(x)[:, 0], expected)


def test_two_layer_has_the_kernels_of_the_formula():
    """CK = X1ᵀ X1; NTK = (XᵀX/d) ∘ [σ'(WX/√d)ᵀ diag(v)² σ'(WX/√d)/h] + CK, the columns of X being samples."""
    d, h, n = 7, 11, 5
    model, x = models.two_layer(d, h, seed=2).double(), torch.randn(n, d, dtype=torch.float64)
    w, v = model.fc1.weight.detach(), model.fc2.weight.detach()[0]
    z = w @ x.T / sqrt(d)
    slope = (1 - torch.tanh(z) ** 2) / 0.6279287303491067
    x1 = torch.tanh(z) / 0.6279287303491067 / sqrt(h)
    expected = (x @ x.T / d) * (slope.T @ torch.diag(v**2) @ slope / h) + x1.T @ x1

    gradients = []
    for i in range(n):
        parts = torch.autograd.grad(model(x[i : i + 1])[0, 0], list(model.parameters()))
        gradients.append(torch.cat([part.flatten() for part in parts]))
    jacobian = torch.stack(gradients)
    torch.testing.assert_close(jacobian @ jacobian.T, expected)


@pytest.mark.parametrize("activation", [nn.ReLU, Erf, nn.Identity])
def test_arora_is_its_formula(activation):
    sizes = (4, 6, 5, 3)
    model, x = models.arora_mlp(sizes, activation=activation, seed=1).double(), torch.randn(2, 4).double()
    c = {nn.ReLU: 2.0, Erf: 1 / (2 / pi * torch.asin(torch.tensor(2 / 3.0).double())), nn.Identity: 1.0}
    g = x
    for h, layer in enumerate((model.fc1, model.fc2), 1):
        g = (c[activation] / sizes[h]) ** 0.5 * activation()(g @ layer.weight.T)
    torch.testing.assert_close(model(x), g @ model.fc3.weight.T)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_arora_kernel_is_depth_plus_one_in_the_mean(depth):
    """For ReLU and |x| = 1 the limit Θ(x, x) = L + 1 is the exact mean at every width."""
    x = F.normalize(torch.randn(1, 10, dtype=torch.float64))
    values = []
    for seed in range(300):
        model = models.arora_mlp((10, *[32] * depth, 1), seed=seed).double()
        gradients = torch.autograd.grad(model(x).squeeze(), list(model.parameters()))
        values.append(sum(float((g**2).sum()) for g in gradients))
    values = torch.tensor(values, dtype=torch.float64)
    assert abs(values.mean() - (depth + 1)) < 5 * values.std() / sqrt(len(values))


def test_wang_is_its_formula():
    sizes = (4, 6, 5, 2)
    model, x = models.wang_mlp(sizes, activation=nn.Tanh, seed=1).double(), torch.randn(3, 4).double()
    h = x / sqrt(4)
    for n, layer in zip(sizes[1:], (model.fc1, model.fc2), strict=False):
        h = torch.tanh(h @ layer.weight.T) / sqrt(n)
    torch.testing.assert_close(model(x), h @ model.fc3.weight.T)


def test_weights_of_scaled_networks_are_standard_normal():
    for model in (models.two_layer(100, 100), models.arora_mlp((100, 100, 1)), models.mnist2_mlp()):
        for layer in model.modules():
            if isinstance(layer, nn.Linear) and layer.weight.numel() >= 10_000:
                assert abs(layer.weight.var().item() - 1) < 5 * sqrt(2 / layer.weight.numel())


def test_mnist2_mlp_is_its_formula():
    model, x = models.mnist2_mlp(seed=1).double(), torch.rand(3, 1, 28, 28, dtype=torch.float64)
    h = x.flatten(1)
    for layer in (model.fc1, model.fc2, model.fc3):
        h = F.relu(layer(h) / 10)
    torch.testing.assert_close(model(x), model.fc4(h))


def test_mnist2_cnn_is_the_published_one_with_its_idle_relus():
    w, model = 8, models.mnist2_cnn(seed=1).double()
    x = torch.rand(3, 1, 28, 28, dtype=torch.float64)
    h = x
    for layer, scale in ((model.conv1_1, 72 * w), (model.conv2_1, 36 * w), (model.conv3_1, 9 * w)):
        h = F.relu(F.avg_pool2d(F.relu(layer(h)) / sqrt(scale), 2))
    h = F.relu(model.fc1(h.flatten(1))) / sqrt(128)
    expected = model.fc3(F.relu(model.fc2(h)) / 8)
    torch.testing.assert_close(model(x), expected)
    ours, theirs = (torch.autograd.grad(f.sum(), list(model.parameters())) for f in (model(x), expected))
    torch.testing.assert_close(ours, theirs)


def test_cifar2_cnn_is_its_formula():
    w, model = 2, models.cifar2_cnn(2, seed=1).double()
    x = torch.rand(3, 3, 32, 32, dtype=torch.float64)
    h = x
    for i, channels in enumerate((8 * w, 4 * w, w), 1):
        for j in (1, 2):
            h = F.relu(model.get_submodule(f"conv{i}_{j}")(h)) / sqrt(9 * channels)
        h = F.max_pool2d(h, 2)
    h = F.relu(model.fc1(h.flatten(1))) / sqrt(128)
    torch.testing.assert_close(model(x), model.fc3(F.relu(model.fc2(h)) / 8))


@pytest.mark.parametrize("build", [models.mlp, models.arora_mlp, models.wang_mlp, models.mnist2_mlp])
@pytest.mark.parametrize("sizes", [(), (3,), (3, 0, 1), (0, 1)])
def test_bad_sizes_are_refused(build, sizes):
    with pytest.raises(InputError, match="layer sizes"):
        build(sizes)


def test_centered_is_the_change_since_it_was_wrapped():
    start, x = models.mnist2_cnn(2, seed=3).double(), torch.rand(4, 1, 28, 28, dtype=torch.float64)
    before = start(x)
    model = models.Centered(start)
    assert (model(x) == 0).all()
    trained = [p for p in model.parameters() if p.requires_grad]
    assert {id(p) for p in trained} == {id(p) for p in start.parameters()}
    optimizer = torch.optim.SGD(trained, lr=1e-3)
    model(x).sum().backward()
    optimizer.step()
    torch.testing.assert_close(model(x), start(x) - before)
    assert (model(x) != 0).any()


def test_the_frozen_half_of_centered_stays_in_evaluation_mode():
    model = models.Centered(nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)))
    model.train()
    assert model.model[1].training
    assert not model.initial[1].training
    assert (model.eval()(torch.randn(5, 3)) == 0).all()
