"""Spectra on the sphere against closed forms, adaptive quadrature, the cube and the paper."""

import math

import mpmath as mp
import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.special import eval_chebyt, eval_gegenbauer

from infinite.scalar_kernels import CASES, real_only, relu_mlp
from tangentkit.core.errors import InputError, NumericalError
from tangentkit.infinite.scalar.cube import Cube, boolean_cube_spectrum, fractional_variance
from tangentkit.infinite.scalar.degrees import ResolutionWarning, degree_variances
from tangentkit.infinite.scalar.sphere import Sphere, sphere_spectrum


def funk_hecke(phi, d: int, k: int) -> float:
    """E[φ(t) P_k(t)] in θ, t = cos θ, with scipy's Gegenbauer polynomials and adaptive quadrature."""

    def zonal(t):
        lam = (d - 2) / 2
        return eval_chebyt(k, t) if d == 2 else eval_gegenbauer(k, lam, t) / eval_gegenbauer(k, lam, 1.0)

    def integral(f):
        return quad(
            lambda a: f(math.cos(a)) * math.sin(a) ** (d - 2), 0, math.pi, epsabs=1e-12, epsrel=1e-11
        )[0]

    kernel = lambda t: float(phi(torch.tensor([t], dtype=torch.float64)))  # noqa: E731
    return integral(lambda t: kernel(t) * zonal(t)) / integral(lambda t: t**0)


@pytest.mark.parametrize("d", [2, 3, 10, 100, 1024, 20000])
def test_the_exponential_kernel_is_a_bessel_function(d):
    # E[exp(t) P_k(t)] = Γ(d/2) 2^(d/2 - 1) I_{k + d/2 - 1}(1)
    half = mp.mpf(d) / 2
    truth = [float(mp.gamma(half) * 2 ** (half - 1) * mp.besseli(k + half - 1, 1)) for k in range(17)]
    np.testing.assert_allclose(sphere_spectrum(torch.exp, d, top=16), truth, rtol=1e-9)


@pytest.mark.parametrize("name", ["relu ck", "relu ntk", "erf ntk", "laplace"])
@pytest.mark.parametrize("d", [2, 3, 5, 12])
def test_spectra_agree_with_adaptive_quadrature(name, d):
    phi, degrees = CASES[name].torch, [0, 1, 2, 3, 6]
    truth = [funk_hecke(phi, d, k) for k in degrees]
    found = sphere_spectrum(phi, d, top=6)[degrees]
    np.testing.assert_allclose(found, truth, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_real_and_complex_kernels_agree(name):
    phi = CASES[name].torch
    for d in (2, 8, 40):
        torch.testing.assert_close(
            sphere_spectrum(phi, d, top=5), sphere_spectrum(real_only(phi), d, top=5), rtol=1e-6, atol=1e-14
        )


def test_on_the_circle_the_spectrum_is_a_fourier_series():
    n = 4096
    angles = 2 * math.pi * torch.arange(n, dtype=torch.float64) / n
    phi = CASES["geometric"].torch
    fourier = torch.fft.rfft(phi(angles.cos())).real / n
    torch.testing.assert_close(sphere_spectrum(phi, 2, top=9), fourier[:10], rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("d", [2, 3, 4, 7])
def test_harmonics_are_counted_by_their_polynomials(d):
    # All polynomials of degree <= k, on the sphere, are the harmonics of degree k and k - 1, k - 2, ...
    points = torch.nn.functional.normalize(torch.randn(400, d, dtype=torch.float64), dim=1)
    for k in range(4 if d < 7 else 3):
        gram = (1 + points @ points.T) ** k  # its features are all monomials of degree <= k
        assert int(torch.linalg.matrix_rank(gram, rtol=1e-10)) == sum(Sphere(d).sizes(k))


@pytest.mark.parametrize("d", [2, 3, 30])
def test_smooth_kernels_have_all_variance_in_low_degrees(d):
    phi = CASES["rbf"].torch
    variances = degree_variances(phi, Sphere(d), top=60)
    assert float(variances.values.sum()) == pytest.approx(variances.total, rel=1e-12)
    mu = sphere_spectrum(phi, d, top=60)
    torch.testing.assert_close(
        fractional_variance(mu, Sphere(d), total=variances.total), variances.shares, rtol=1e-10, atol=1e-15
    )


def test_published_ratios_of_cube_and_sphere():
    phi = relu_mlp(2, 2.0, 1.0, "ntk").torch
    published = {
        16: [1.000, 1.002, 1.140, 1.507],
        32: [1.000, 1.0005, 1.066, 1.212],
        64: [1.000, 1.0001, 1.032, 1.099],
        128: [1.000, 1.000, 1.016, 1.048],
    }
    for d, ratios in published.items():
        found = boolean_cube_spectrum(phi, d, top=3) / sphere_spectrum(phi, d, top=3)
        np.testing.assert_allclose(found, ratios, atol=6e-4)
    shares = [degree_variances(phi, space, top=3).shares for space in (Cube(16), Sphere(16))]
    for share in shares:
        np.testing.assert_allclose(share, [0.508, 0.269, 0.100, 0.032], atol=2e-3)


def test_cube_and_sphere_agree_as_the_dimension_grows():
    phi = CASES["erf ntk"].torch
    gaps = [
        (boolean_cube_spectrum(phi, d, top=3) / sphere_spectrum(phi, d, top=3) - 1).abs()
        for d in (32, 64, 128)
    ]
    # the gap is of order 1/d: it halves
    for k in (2, 3):
        assert float(gaps[1][k] / gaps[0][k]) == pytest.approx(0.5, abs=0.06)
        assert float(gaps[2][k] / gaps[1][k]) == pytest.approx(0.5, abs=0.03)


def test_high_degrees_of_real_kernels_are_hidden_with_a_warning():
    phi = real_only(CASES["relu ntk"].torch)
    with pytest.warns(ResolutionWarning, match="in degree"):
        a = sphere_spectrum(phi, 1024, top=20)
    assert a[18:].eq(0).all()
    torch.testing.assert_close(
        a[:5], sphere_spectrum(CASES["relu ntk"].torch, 1024, top=4), rtol=1e-5, atol=0
    )


@pytest.mark.parametrize("d", [1, 0, -2, 3.0])
def test_bad_dimensions_are_refused(d):
    with pytest.raises(InputError, match="dimension of a sphere"):
        sphere_spectrum(torch.exp, d, top=2)


def test_bad_kernels_are_refused():
    with pytest.raises(NumericalError, match="in degree 1"):
        sphere_spectrum(lambda t: 1 - t, 5, top=4)
    with pytest.raises(NumericalError, match="not finite"):
        sphere_spectrum(lambda t: torch.sqrt(t), 5, top=4)
    with pytest.raises(InputError, match="shape"):
        sphere_spectrum(lambda t: t.mean(), 5, top=4)
    with pytest.raises(InputError, match="degree"):
        sphere_spectrum(torch.exp, 5, top=-1)
    with pytest.raises(InputError, match=r"0\.\.∞"):
        fractional_variance(torch.ones(3), Sphere(5))
