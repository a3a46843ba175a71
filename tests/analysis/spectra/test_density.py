"""Spectral densities by Lanczos against all eigenvalues, and on every kind of operator."""

import numpy as np
import pytest
import torch

import tangentkit as tk
from tangentkit.analysis import KernelProducts, spectral_density
from tangentkit.analysis.spectra.density import SpectralDensity, _smooth
from tangentkit.core.errors import InputError, NumericalError, UnknownNameError
from tangentkit.core.seeds import Key
from tangentkit.linalg import FactorOperator, spectrum
from tangentkit.linalg.operators.matrices import DenseOperator
from tangentkit.linalg.spectra.lanczos import lanczos_quadrature


def with_values(values, seed=0):
    n = len(values)
    Q, _ = torch.linalg.qr(
        torch.randn(n, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    )
    K = (Q * torch.as_tensor(values, dtype=torch.float64)) @ Q.T
    return (K + K.T) / 2


def exact(density: SpectralDensity, values: np.ndarray) -> np.ndarray:
    """The slow, obvious version: one Gaussian for each eigenvalue."""
    log = density.scale == "log"
    values = values[values > 0] if log else values
    grid = np.log10(density.grid) if log else density.grid
    places, widths = density.resolution.bumps(values, density.scale)
    return _smooth(grid, places, widths, np.full(len(values), 1 / density.count))


SPECTRA = {
    "Marchenko-Pastur": np.linalg.svd(np.random.default_rng(0).standard_normal((150, 300)))[1] ** 2 / 300,
    "power law": np.arange(1, 151.0) ** -1.0,
    "gap": np.concatenate([np.linspace(1, 2, 100), np.linspace(5, 6, 50)]),
}


@pytest.mark.parametrize("scale", ["linear", "log"])
@pytest.mark.parametrize("name", SPECTRA)
def test_95_percent_bands_hold_the_density_of_all_eigenvalues(name, scale):
    K, inside = with_values(SPECTRA[name]), []
    for seed in range(20):
        found = spectral_density(K, steps=30, scale=scale, points=100, seed=seed)
        truth = exact(found, SPECTRA[name])
        low, high = found.band()
        seen = truth > 0.02 * truth.max()
        inside.append(((low <= truth) & (truth <= high))[seen].mean())
    assert 0.88 < np.mean(inside) < 0.99


def test_errors_fall_with_the_root_of_the_number_of_random_vectors():
    K = with_values(SPECTRA["Marchenko-Pastur"])
    few, many = (spectral_density(K, steps=20, probes=probes).error.mean() for probes in (10, 160))
    assert few / many == pytest.approx(4, rel=0.3)


@pytest.mark.parametrize("probes_at_once", [1, 3, 8])
def test_gauss_rules_are_exact_for_polynomials_whatever_the_memory(probes_at_once):
    values = SPECTRA["gap"]
    K = DenseOperator(with_values(values))
    n, steps = len(values), 6
    memory = probes_at_once * (steps + 4) * n * 8
    nodes, weights = lanczos_quadrature(K, probes=8, steps=steps, key=Key(3), memory=memory)
    V = torch.randn(n, 8, generator=Key(3).torch(), dtype=torch.float64)
    V = V / V.norm(dim=0)
    for degree in range(2 * steps):
        moment = (V * (torch.linalg.matrix_power(K.matrix, degree) @ V)).sum(0)
        np.testing.assert_allclose((weights * nodes**degree).sum(1), moment, rtol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_operators_of_low_rank_end_their_rules_early(dtype):
    A = torch.randn(300, 5, dtype=dtype)
    found = spectral_density(FactorOperator(A), steps=50, probes=100)
    truth = torch.linalg.svdvals(A.double()).square()
    np.testing.assert_allclose(found.nodes.max(1), float(truth[0]), rtol=1e-5)
    assert found.at_zero.value == pytest.approx(295 / 300, abs=4 * found.at_zero.error + 1e-9)
    trace = found.mean(lambda nodes: nodes)
    assert abs(trace.value - float(truth.sum()) / 300) < 4 * trace.error


def test_a_whole_spectrum_has_an_exact_density_of_area_one():
    s = spectrum(with_values(SPECTRA["Marchenko-Pastur"]))
    for scale in ("linear", "log"):
        found = spectral_density(s, scale=scale)
        grid = found.grid if scale == "linear" else np.log10(found.grid)
        assert np.trapezoid(found.density, grid) == pytest.approx(1, abs=1e-2)
        assert not found.error.any()
    assert found.share_below(1.0).value == pytest.approx((SPECTRA["Marchenko-Pastur"] < 1).mean(), abs=0.01)
    assert found.table().texts()[0] == ["eigenvalues", "150"]


def area(density: SpectralDensity) -> float:
    """The integral over the axis of its scale."""
    log = density.scale == "log"
    return float(np.trapezoid(density.density, np.log10(density.grid) if log else density.grid))


@pytest.mark.parametrize("scale", ["linear", "log"])
@pytest.mark.parametrize("steps", [10, 80, 200])
def test_the_density_keeps_all_mass_however_narrow_its_gaussians(steps, scale):
    K = with_values([1e-3] * 100 + [1e-2] * 50 + [0.2] * 49 + [50.0])
    found = spectral_density(K, steps=steps, scale=scale, probes=3)
    assert area(found) + (found.at_zero.value if scale == "log" else 0) == pytest.approx(1, abs=1e-3)


def test_an_outlier_keeps_its_share_in_log_scale():
    found = spectral_density(with_values([*np.linspace(0.5, 1, 199), 100.0]), scale="log", probes=100)
    beyond = np.trapezoid(found.density[found.grid > 20], np.log10(found.grid[found.grid > 20]))
    share = (found.weights * (found.nodes > 20)).sum(1).mean()
    assert beyond == pytest.approx(share, rel=1e-3)


@pytest.mark.parametrize("scale", ["linear", "log"])
@pytest.mark.parametrize("of_products", [True, False], ids=["products", "spectrum"])
def test_values_that_differ_by_rounding_are_one_peak(of_products, scale):
    K = torch.eye(50)
    found = spectral_density(K if of_products else spectrum(K), scale=scale).density
    inner = found[1:-1]
    peaks = (inner > found[:-2]) & (inner >= found[2:]) & (inner > 1e-3 * found.max())
    assert peaks.sum() == 1
    assert found.max() < 1e6


@pytest.mark.parametrize("scale", [1e-36, 1e-30, 1e-20, 1e20, 1e30, 1e36])
def test_densities_in_float32_do_not_depend_on_the_scale_of_the_operator(scale):
    K = with_values(SPECTRA["Marchenko-Pastur"]).float()
    plain, scaled = (spectral_density(one, steps=20, probes=2) for one in (K, scale * K))
    np.testing.assert_allclose(scaled.nodes / scale, plain.nodes, rtol=1e-4)
    np.testing.assert_allclose(scaled.weights, plain.weights, atol=1e-5)
    np.testing.assert_allclose(scaled.density * scale, plain.density, atol=1e-4)


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_densities_in_float64_do_not_depend_on_the_scale_of_the_operator(scale):
    K = with_values(SPECTRA["Marchenko-Pastur"])
    plain, scaled = (spectral_density(one, steps=20, probes=2) for one in (K, scale * K))
    np.testing.assert_allclose(scaled.density * scale, plain.density, atol=1e-6)
    np.testing.assert_allclose(scaled.error * scale, plain.error, atol=1e-6)


def test_zeros_have_no_place_in_log_scale_and_are_said():
    found = spectral_density(spectrum(torch.diag(torch.tensor([1.0, 0.5, 0.0, 0.0]))), scale="log")
    assert found.at_zero.value == 0.5
    assert np.trapezoid(found.density, np.log10(found.grid)) == pytest.approx(0.5, abs=0.01)
    assert "50.0% of them are zero" in found.figure().caption


# Kinds of operators -------------------------------------------------------------------------------------


def small_network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2)).double()


def test_products_of_a_tangent_kernel_give_what_the_formed_kernel_gives():
    kernel = tk.TangentKernel(small_network(), outputs="full")
    x = torch.randn(5, 6, dtype=torch.float64)
    K = kernel(x).reshape(10, 10)
    lazy = KernelProducts(kernel, x)
    torch.testing.assert_close(lazy.dense(), K)
    torch.testing.assert_close(lazy.diagonal(), K.diagonal())
    torch.testing.assert_close(lazy[3:5, 1:9], K[3:5, 1:9])
    a, b = (spectral_density(one, steps=5, probes=2) for one in (lazy, K))
    np.testing.assert_allclose(a.density, b.density, rtol=1e-6, atol=1e-9)
    J = spectrum(lazy, 2, of="jacobian")
    torch.testing.assert_close(J.values, spectrum(K, 2, of="jacobian").values)


def test_products_are_of_the_full_kernel_only():
    with pytest.raises(InputError, match="outputs='trace'"):
        KernelProducts(tk.TangentKernel(small_network()), torch.randn(3, 6).double())


def test_stored_kernels_have_densities(tmp_path):
    kernel, x = tk.TangentKernel(small_network()), torch.randn(20, 6, dtype=torch.float64)
    stored = tk.gram(kernel, x, store=tmp_path / "k.zarr", tile=7, progress=False)
    a, b = (tk.spectral_density(one, steps=10, probes=3) for one in (stored, kernel(x)))
    np.testing.assert_allclose(a.density, b.density, rtol=1e-6, atol=1e-9)
    beyond = tk.spectral_density(stored, steps=10, probes=3, memory=1000)
    np.testing.assert_allclose(beyond.density, b.density, rtol=1e-6, atol=1e-9)


def test_bad_input_is_refused():
    K = torch.eye(5)
    for bad in ({"steps": 1}, {"probes": 1}, {"points": 1}):
        with pytest.raises(InputError, match="too few"):
            spectral_density(K, **bad)
    with pytest.raises(UnknownNameError):
        spectral_density(K, scale="cubic")
    with pytest.raises(InputError, match="all values"):
        spectral_density(spectrum(K, 2))
    with pytest.raises(NumericalError, match="symmetric"):
        spectral_density(torch.arange(9.0).reshape(3, 3))
    with pytest.raises(NumericalError, match="finite"):
        spectral_density(torch.full((3, 3), torch.nan))
    with pytest.raises(NumericalError, match="linear"):
        spectral_density(torch.diag(torch.tensor([1.0, -1.0])), scale="log")
    with pytest.raises(NumericalError, match="operator is zero"):
        spectral_density(torch.zeros(3, 3), scale="log")


@pytest.mark.parametrize("value", [5.0, -3.0])
def test_rules_that_end_early_show_no_eigenvalues_that_there_are_not(value):
    density = spectral_density(value * torch.eye(30))
    assert density.nodes.min() == pytest.approx(value)
    assert density.nodes.max() == pytest.approx(value)
    assert f"{value:g} to {value:g}" in repr(density)


@pytest.mark.parametrize(
    "zero", [torch.zeros(30, 30), spectrum(torch.zeros(30, 30))], ids=["matrix", "spectrum"]
)
def test_zero_has_no_density(zero):
    with pytest.raises(NumericalError, match="the operator is zero"):
        spectral_density(zero)


def test_the_trace_is_exact_where_the_diagonal_is_at_hand():
    K = with_values(SPECTRA["power law"])
    rows = dict(spectral_density(K, probes=2, steps=10).table().rows)
    assert (rows["trace"].value, rows["trace"].error) == (pytest.approx(float(K.trace())), 0.0)


def test_the_band_that_is_drawn_stays_above_zero():
    density = spectral_density(with_values(SPECTRA["gap"]), probes=2)
    low, high = density.band()
    assert (low == 0).any()
    assert (density.density < high - density.density).any()
    band = density.plot().collections[0].get_paths()[0].vertices[:, 1]
    assert band.min() >= 0
    assert band.max() == pytest.approx(high.max())
