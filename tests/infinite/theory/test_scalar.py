"""The theory page: its formulas for scalar kernels and tensor programs, as they are printed."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import integrate, special

from infinite.theory.printed import XX, XY, YY, rectifier
from tangentkit import infinite
from tangentkit.infinite import Program
from tangentkit.infinite.duals.closed_forms import Erf
from tangentkit.infinite.scalar.cube import Cube, cube_points
from tangentkit.infinite.scalar.degrees import degree_variances
from tangentkit.infinite.scalar.series import power_series
from tangentkit.infinite.scalar.sphere import Sphere


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
