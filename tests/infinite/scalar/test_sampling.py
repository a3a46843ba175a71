"""Draws of Gaussian processes: covariances, singular kernels, Parseval, and the share of each degree."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from infinite.scalar_kernels import CASES, relu_mlp
from tangentkit.core.errors import InputError, NumericalError
from tangentkit.core.seeds import Key
from tangentkit.infinite.scalar.cube import Cube, boolean_cube_spectrum, cube_points, fractional_variance
from tangentkit.infinite.scalar.sampling import (
    degree_energies,
    empirical_fractional_variance,
    sample_gaussian_process,
    sample_on_cube,
    walsh_hadamard,
)
from tangentkit.linalg import FactorOperator


def gram(name: str, d: int) -> torch.Tensor:
    points = cube_points(d)
    return CASES[name].torch(points @ points.T / d)


def gaps(f: torch.Tensor, K: torch.Tensor) -> torch.Tensor:
    """(empirical - true covariance) in standard errors: Var(f_i f_j) = K_ii K_jj + K_ij²."""
    variance = K.diagonal()[:, None] * K.diagonal() + K**2
    return (f.T @ f / len(f) - K) / (variance / len(f)).sqrt()


@pytest.mark.parametrize("name", ["relu ntk", "erf ntk", "rbf"])
def test_draws_have_the_covariance_of_the_kernel(name):
    K = gram(name, 4)
    z = gaps(sample_gaussian_process(K, samples=20_000, seed=Key(1)), K)
    # 136 different entries: none beyond 5 standard errors, and together of the size of noise
    assert float(z.abs().max()) < 5
    assert 0.5 < float((z**2).mean()) < 2


def test_both_ways_to_draw_on_the_cube_have_one_law():
    d, phi = 4, CASES["relu ntk"].torch
    K = gram("relu ntk", d)
    z = gaps(sample_on_cube(boolean_cube_spectrum(phi, d), d, samples=20_000, seed=Key(2)), K)
    assert float(z.abs().max()) < 5
    assert 0.5 < float((z**2).mean()) < 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_singular_kernels_move_only_along_their_range(dtype):
    x = torch.randn(30, 3, dtype=dtype)
    for K in (x @ x.T, FactorOperator(x)):
        f = sample_gaussian_process(K, samples=7, seed=Key(0))
        assert f.shape == (7, 30)
        assert f.dtype == dtype
        assert torch.isfinite(f).all()
        coefficients = torch.linalg.lstsq(x, f.T).solution
        torch.testing.assert_close(
            x @ coefficients, f.T, rtol=1e-3, atol=3e-3 if dtype == torch.float32 else 1e-6
        )
    assert sample_gaussian_process(0 * (x @ x.T), samples=2, seed=Key(0)).eq(0).all()


def test_seeds_say_everything():
    K = gram("erf ntk", 3)
    before = torch.random.get_rng_state()
    one, two = (sample_gaussian_process(K, samples=5, seed=Key(3)) for _ in range(2))
    other = sample_gaussian_process(K, samples=5, seed=Key(4))
    generator = sample_gaussian_process(K, samples=5, seed=Key(3).torch())
    assert torch.equal(one, two)
    assert torch.equal(one, generator)
    assert not torch.equal(one, other)
    assert torch.equal(before, torch.random.get_rng_state())


@given(d=st.integers(0, 8), batch=st.sampled_from([(), (3,), (2, 2)]), seed=st.integers(0, 99))
@settings(deadline=None, max_examples=30)
def test_the_transform_is_its_own_inverse_and_keeps_energy(d, batch, seed):
    f = torch.randn(*batch, 2**d, generator=Key(seed).torch(), dtype=torch.float64)
    torch.testing.assert_close(walsh_hadamard(walsh_hadamard(f)), 2**d * f)
    energies = degree_energies(f)
    assert energies.shape == (*batch, d + 1)
    torch.testing.assert_close(energies.sum(-1), (f**2).mean(-1))


@given(d=st.integers(1, 8), data=st.data())
@settings(deadline=None, max_examples=30)
def test_a_parity_has_its_energy_in_its_degree(d, data):
    S = data.draw(st.sets(st.integers(0, d - 1)))
    chi = cube_points(d)[:, sorted(S)].prod(1)
    expected = torch.zeros(d + 1, dtype=torch.float64)
    expected[len(S)] = 4
    torch.testing.assert_close(degree_energies(2 * chi), expected)


@pytest.mark.parametrize("kind", ["nngp", "ntk"])
def test_the_share_of_each_degree_is_the_fractional_variance(kind):
    d, samples = 7, 4000
    mu = boolean_cube_spectrum(relu_mlp(2, 2.0, 2.0, kind).torch, d)
    f = sample_on_cube(mu, d, samples=samples, seed=Key(5))
    energies = degree_energies(f)
    # the mean energy of degree k is binom(d, k) μ_k: a χ² with that many degrees of freedom
    sizes = torch.tensor(Cube(d).sizes(d), dtype=torch.float64)
    errors = (2 * sizes * mu**2 / samples).sqrt()
    assert ((energies.mean(0) - sizes * mu).abs() <= 5 * errors).all()
    shares = fractional_variance(mu, d)
    np.testing.assert_allclose(empirical_fractional_variance(f), shares, atol=0.03)


def test_the_share_converges_like_the_root_of_the_draws():
    d = 6
    mu = boolean_cube_spectrum(CASES["erf ntk"].torch, d)
    truth = fractional_variance(mu, d)

    def error(samples: int) -> float:
        draws = (sample_on_cube(mu, d, samples=samples, seed=Key(6).fold(samples, i)) for i in range(40))
        return math.sqrt(
            np.mean([float(((empirical_fractional_variance(f) - truth) ** 2).sum()) for f in draws])
        )

    few, many = error(50), error(800)
    assert 2.5 < few / many < 6  # 4 is the square root of 16


def test_bad_input_is_refused():
    K = gram("exp", 3)
    for bad, error, words in [
        (K[:2], InputError, "square"),
        (K - 3 * torch.eye(8), NumericalError, "semi-definite"),
        (K + torch.arange(8.0)[:, None], NumericalError, "symmetric"),
        (K * math.nan, NumericalError, "finite"),
    ]:
        with pytest.raises(error, match=words):
            sample_gaussian_process(bad, samples=1, seed=Key(0))
    counts: list[Any] = [0, -1, 2.0, True]
    for samples in counts:
        with pytest.raises(InputError, match="samples"):
            sample_gaussian_process(K, samples=samples, seed=Key(0))
    for mu in (-torch.ones(4), torch.ones(5), torch.ones(2, 2), torch.ones(0)):
        with pytest.raises(InputError, match="eigenvalues"):
            sample_on_cube(mu, 3, samples=1, seed=Key(0))
    with pytest.raises(InputError, match="too many"):
        sample_on_cube(torch.ones(3), 40, samples=1, seed=Key(0))
    with pytest.raises(InputError, match="2\\^d"):
        walsh_hadamard(torch.ones(6))
    with pytest.raises(InputError, match="no variance"):
        empirical_fractional_variance(torch.zeros(3, 8))
