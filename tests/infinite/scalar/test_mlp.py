"""The kernel functions of infinitely wide MLPs against published numbers and the recursion written out."""

import itertools
import math

import pytest
import torch

from tangentkit.core.errors import InputError, ModelError, UnknownNameError
from tangentkit.infinite.duals.closed_forms import Erf, Monomial, Rectifier
from tangentkit.infinite.scalar.mlp import mlp_kernel_function


def fractional_variances(phi, d: int = 7) -> list[float]:
    """Shares of the degrees, by brute force: the trace of the Gram matrix of {-1, 1}^d in each space of parities."""
    cube = torch.tensor(list(itertools.product([-1.0, 1.0], repeat=d)), dtype=torch.float64)
    gram = phi(cube @ cube.T / d)
    shares = torch.zeros(d + 1, dtype=torch.float64)
    for k in range(d + 1):
        for subset in itertools.combinations(range(d), k):
            parity = cube[:, list(subset)].prod(1)
            shares[k] += parity @ gram @ parity
    return (shares / shares.sum()).tolist()


@pytest.mark.parametrize(
    ("activation", "depth", "weight", "bias", "kind", "published"),
    [
        ("relu", 2, 2.0, 2.0, "nngp", [0.8388, 0.1300, 0.0245, 0.0046, 0.0015, 0.0005]),
        ("relu", 2, 2.0, 2.0, "ntk", [0.6269, 0.2327, 0.0747, 0.0332, 0.0200, 0.0094]),
        ("relu", 1, 2.0, 2.0, "nngp", [0.7438]),
        ("relu", 1, 2.0, 2.0, "ntk", [0.5865]),
        ("relu", 2, 4.0, 4.0, "nngp", [0.770]),
        ("erf", 2, 1.0, 0.0, "nngp", [0, 0.9181, 0, 0.0762, 0, 0.0057]),
        ("erf", 2, 2.0, 0.0, "nngp", [0, 0.8457, 0, 0.1349, 0, 0.0189]),
        ("erf", 2, 4.0, 0.0, "nngp", [0, 0.7654, 0, 0.1919, 0, 0.0415]),
    ],
)
def test_published_fractional_variances(activation, depth, weight, bias, kind, published):
    phi = mlp_kernel_function(depth, activation, weight_variance=weight, bias_variance=bias, kind=kind)
    places = 3 if len(str(published[0])) < 6 and published[0] else 4
    assert fractional_variances(phi)[: len(published)] == pytest.approx(published, abs=0.6 * 10**-places)


def test_deep_erf_is_white_noise_on_odd_functions():
    shares = fractional_variances(mlp_kernel_function(32, "erf", weight_variance=4.0, kind="nngp"))
    per_function = [shares[k] / math.comb(7, k) for k in (1, 3, 5, 7)]
    assert per_function == pytest.approx([0.01629, 0.01556, 0.01551, 0.01549], abs=6e-6)


@pytest.mark.parametrize(("kind", "trace"), [("nngp", 8.0), ("ntk", 18.0)])
def test_the_kernel_of_a_point_with_itself_is_the_published_one(kind, trace):
    phi = mlp_kernel_function(2, "relu", weight_variance=2.0, bias_variance=2.0, kind=kind)
    assert float(phi.diag()) == pytest.approx(trace, rel=1e-15)
    assert float(phi(torch.ones((), dtype=torch.float64))) == pytest.approx(trace, rel=1e-15)


def test_normalized_relu_network():
    """With σ_w² = 1/E[relu(z)²] = 2 variances stay as they are, and Θ_L(x, x) is L + 1 of them."""
    for depth in range(12):
        sigma, theta = (
            mlp_kernel_function(depth, weight_variance=2.0, kind=kind) for kind in ("nngp", "ntk")
        )
        assert float(sigma.diag()) == pytest.approx(2.0, rel=1e-15)
        assert float(theta.diag()) == pytest.approx(2.0 * (depth + 1), rel=1e-14)


def test_gain_of_erf():
    assert 1 / float(Erf().diag(torch.ones((), dtype=torch.float64))) == pytest.approx(2.15258, abs=5e-6)


def test_the_ntk_is_the_sum_over_layers():
    """Θ_L = Σ_h Σ_h Π_{h' > h} dΣ_h', written out, against the recursion."""
    c, weight, bias, dual = torch.linspace(-1, 1, 9, dtype=torch.float64), 1.7, 0.3, Rectifier(0.1)
    q, sigma = torch.tensor(weight + bias, dtype=torch.float64), weight * c + bias
    sigmas, slopes = [sigma], []
    for _ in range(3):
        value, slope = dual.both(q, sigma, q)
        q, sigma = weight * dual.diag(q) + bias, weight * value + bias
        sigmas.append(sigma)
        slopes.append(weight * slope)
    total = sum(s * torch.stack([*slopes[h:], torch.ones_like(c)]).prod(0) for h, s in enumerate(sigmas))
    found = mlp_kernel_function(3, dual, weight_variance=weight, bias_variance=bias)(c)
    torch.testing.assert_close(found, total, rtol=1e-13, atol=0)


def test_settings_are_computed_together():
    weights, biases = torch.tensor([[1.0], [2.0], [3.5]]), torch.tensor([0.0, 0.5])
    c = torch.linspace(-1, 1, 11, dtype=torch.float64)
    for activation in ("relu", "erf", "gelu"):
        for kind in ("ntk", "nngp"):
            phi = mlp_kernel_function(2, activation, weight_variance=weights, bias_variance=biases, kind=kind)
            assert phi(c).shape == (3, 2, 11)
            assert phi.diag().shape == (3, 2)
            torch.testing.assert_close(phi(c)[..., -1], phi.diag(), rtol=1e-12, atol=0)
            one = mlp_kernel_function(2, activation, weight_variance=3.5, bias_variance=0.5, kind=kind)
            torch.testing.assert_close(phi(c)[2, 1], one(c), rtol=1e-14, atol=0)


def test_a_network_of_finite_width_approaches_it():
    """Monte Carlo over networks 6-512-512-1: the conjugate kernel within a few standard errors."""
    generator = torch.Generator().manual_seed(0)
    d, width, draws = 6, 512, 40
    x = torch.randn(3, d, generator=generator, dtype=torch.float64)
    x = x / x.norm(dim=1, keepdim=True) * math.sqrt(d)
    samples = []
    for _ in range(draws):
        h = x
        for _ in range(2):
            w = torch.randn(h.shape[1], width, generator=generator, dtype=torch.float64)
            b = torch.randn(width, generator=generator, dtype=torch.float64)
            h = torch.erf(h @ w * math.sqrt(1.5 / h.shape[1]) + b * math.sqrt(0.2))
        samples.append(1.5 * h @ h.T / width + 0.2)
    found = torch.stack(samples)
    exact = mlp_kernel_function(2, "erf", weight_variance=1.5, bias_variance=0.2, kind="nngp")(x @ x.T / d)
    # The bias at finite width is of order 1/width, below the standard error of the mean.
    standard_error = found.std(0) / math.sqrt(draws)
    assert ((found.mean(0) - exact).abs() <= 5 * standard_error + 5 / width).all()


def test_dtypes_depth_zero_and_any_activation():
    c = torch.linspace(-1, 1, 5)
    phi = mlp_kernel_function(0, "relu", weight_variance=2.0, bias_variance=1.0)
    torch.testing.assert_close(phi(c), 2 * c + 1)
    assert mlp_kernel_function(3, "relu")(c).dtype == torch.float32
    assert mlp_kernel_function(1, "relu")(torch.tensor([-1, 0, 1])).dtype == torch.float64
    assert mlp_kernel_function(2, torch.tanh)(c.double()).isfinite().all()
    linear = mlp_kernel_function(4, Monomial(1), weight_variance=1.0)
    torch.testing.assert_close(linear(c), 5 * c)


def test_bad_requests_are_refused():
    with pytest.raises(InputError, match="depth"):
        mlp_kernel_function(-1)
    with pytest.raises(InputError, match="weight variance"):
        mlp_kernel_function(1, weight_variance=-1.0)
    with pytest.raises(InputError, match="bias variance"):
        mlp_kernel_function(1, bias_variance=torch.tensor([0.0, float("nan")]))
    with pytest.raises(UnknownNameError, match="kernel"):
        mlp_kernel_function(1, kind="ck")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ModelError, match="softmax"):
        mlp_kernel_function(1, "softmax")
