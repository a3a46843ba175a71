"""Tails: error rates under the null model, and the index of planted power laws."""

import sys

import numpy as np
import pytest
import torch

from tangentkit.analysis import PowerLaw, matrix_tail
from tangentkit.core.errors import InputError, NumericalError, TangentkitError, UnknownNameError
from tangentkit.core.seeds import Key
from tangentkit.linalg import Hill, spectrum
from tangentkit.linalg.spectra.tails import gaussian_null, law_distance, tail


def gaussian(n: int, d: int, seed: int) -> torch.Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def pareto(n: int, alpha: float, seed: int) -> np.ndarray:
    uniform = np.random.default_rng(seed).uniform(size=n)
    return np.sort(uniform ** (-1 / (alpha - 1)))[::-1]


def test_the_gaussian_null_is_that_of_gaussian_matrices():
    drawn = gaussian_null(30, 20, 1000, 0)
    rng = np.random.default_rng(1)
    dense = np.linalg.svd(rng.standard_normal((1000, 20, 30)), compute_uv=False) ** 2
    error = dense.std(0) * (2 / 1000) ** 0.5
    assert (np.abs(drawn.mean(0) - dense.mean(0)) < 4.5 * error).all()
    np.testing.assert_allclose(drawn.std(0), dense.std(0), rtol=0.15)
    assert (np.diff(drawn, axis=1) <= 0).all()


@pytest.mark.parametrize("null", ["gaussian", "shuffled"])
def test_gaussian_matrices_have_no_heavy_tail_but_for_the_nominal_rate(null):
    called = [
        matrix_tail(gaussian(40, 30, seed), null=null, draws=19, seed=seed).is_heavy for seed in range(200)
    ]
    assert 2 <= sum(called) <= 20  # ten expected, standard deviation three


@pytest.mark.parametrize("features", [15, 30, 45])
def test_gaussian_kernels_have_no_heavy_tail_whatever_their_rank(features):
    called = 0
    for seed in range(200):
        X = gaussian(30, features, seed)
        called += spectrum(X @ X.T).tail(draws=19, seed=seed).is_heavy
    # Of more features than samples the null is the square one, whose tail is heavier: then fewer are called.
    assert called <= 20
    assert features > 30 or called >= 2


@pytest.mark.parametrize("alpha", [1.8, 2.5, 3.5])
def test_a_pareto_spectrum_recovers_its_index(alpha):
    values, inside, heavy = None, [], []
    for seed in range(60):
        values = pareto(600, alpha, seed)
        found = tail(values, Hill(), null_values=gaussian_null(600, 600, 19, 0), null="", key=Key(seed))
        inside.append(found.low <= alpha <= found.high)
        heavy.append(found.is_heavy)
    assert np.mean(inside) > 0.85
    assert all(heavy)


def test_a_matrix_with_pareto_singular_values_recovers_its_index():
    values = pareto(200, 2.5, 3)
    U, V = (torch.linalg.qr(gaussian(n, 200, n))[0] for n in (300, 200))
    found = matrix_tail((U * torch.as_tensor(values.copy()).sqrt()) @ V.T)
    assert found.alpha == pytest.approx(2.5, abs=4 * 1.5 / 20**0.5)
    assert found.is_heavy
    assert found.alpha == pytest.approx(Hill(20).fit(values).alpha, rel=1e-6)


def test_heavy_tailed_entries_make_a_heavy_tail_that_shuffling_keeps():
    # Entries with P(|x| > t) = 1/t give eigenvalues with a density of exponent 1 + 1/2.
    rng = np.random.default_rng(0)
    A = torch.as_tensor(rng.uniform(size=(200, 200)) ** -1.0 * rng.choice([-1, 1], (200, 200)))
    found = matrix_tail(A)
    assert found.alpha == pytest.approx(1.5, abs=4 * 0.5 / 20**0.5)
    assert found.is_heavy
    assert not matrix_tail(A, null="shuffled", draws=19).is_heavy


def test_a_tail_shows_its_range_beside_the_null_model():
    found = spectrum(torch.diag(torch.arange(1.0, 101.0).double() ** -1.0)).tail(seed=3)
    assert len(found.sizes) == len(found.range) == found.null_range.shape[1]
    at = list(found.sizes).index(10)
    assert found.range[at] == pytest.approx(found.alpha)
    np.testing.assert_allclose(found.null_range[:, at], found.null_alphas)
    assert found.table().rows[-1] == ("verdict", "heavy tail")
    assert found.to_dict()["p_value"] == found.p_value == 0.01
    assert found.plot().get_xlabel() == "values in the tail m"
    again = spectrum(torch.diag(torch.arange(1.0, 101.0).double() ** -1.0)).tail(seed=3)
    assert again.to_dict() == found.to_dict()


def test_the_null_of_singular_values_is_of_singular_values():
    K = gaussian(80, 80, 0)
    K = K @ K.T
    ofK, ofJ = (spectrum(K, of=of).tail() for of in ("kernel", "jacobian"))
    assert ofJ.alpha - 1 == pytest.approx(2 * (ofK.alpha - 1), rel=1e-3)
    np.testing.assert_allclose(ofJ.null_alphas - 1, 2 * (ofK.null_alphas - 1), rtol=1e-6)
    assert ofJ.p_value == ofK.p_value


def test_a_tail_of_one_value_excludes_no_exponent():
    found = spectrum(torch.diag(torch.arange(1.0, 21.0))).tail(1)
    assert (found.low, found.high) == (1.0, np.inf)


def test_distances_to_a_law_are_those_of_their_definition():
    values = np.array([5.0, 2.0, 1.5])
    law = 1 - values[::-1] ** -1.5
    steps = np.concatenate([np.abs(law - np.arange(1, 4) / 3), np.abs(law - np.arange(3) / 3)])
    assert law_distance(values, 1.0, 2.5) == pytest.approx(steps.max())


def test_bad_input_is_refused():
    A = gaussian(30, 30, 0)
    with pytest.raises(UnknownNameError, match="gaussian"):
        spectrum(A @ A.T).tail(null="cauchy")
    with pytest.raises(UnknownNameError, match="shuffled"):
        matrix_tail(A, null="shufled")
    with pytest.raises(InputError, match="at least 19"):
        matrix_tail(A, draws=5)
    with pytest.raises(InputError, match="two axes"):
        matrix_tail(A[0])
    with pytest.raises(NumericalError, match="finite"):
        matrix_tail(A.log())
    for few in (A[:2], torch.ones(30, 30), torch.zeros(30, 30)):
        with pytest.raises(InputError, match="tail"):
            matrix_tail(few)


def test_without_the_package_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "powerlaw", None)
    with pytest.raises(TangentkitError, match=r"tangentkit\[analysis\].*Hill"):
        matrix_tail(gaussian(30, 30, 0), PowerLaw())


def test_a_power_law_with_xmin_by_ks_recovers_a_planted_index():
    pytest.importorskip("powerlaw")
    # Below 1 a flat bulk, above it the law; xmin must be found near 1.
    rng = np.random.default_rng(0)
    values = np.sort(np.concatenate([rng.uniform(0.2, 1, 300), pareto(200, 2.5, 1)]))[::-1]
    fit = PowerLaw().fit(values)
    assert fit.xmin == pytest.approx(1, abs=0.25)
    assert fit.alpha == pytest.approx(2.5, abs=4 * 1.5 / fit.size**0.5)
    assert fit.distance == pytest.approx(law_distance(values[: fit.size], fit.xmin, fit.alpha), abs=0.02)


@pytest.mark.slow
def test_a_power_law_of_gaussian_matrices_is_no_heavy_tail_beside_its_null():
    pytest.importorskip("powerlaw")
    found = [matrix_tail(gaussian(40, 30, s), PowerLaw(2), draws=19, seed=s) for s in range(40)]
    assert sum(one.is_heavy for one in found) <= 6  # two expected
    assert min(one.alpha for one in found) < 6  # what alone would be called a heavy tail


@pytest.mark.parametrize("A", [torch.zeros(40, 40), torch.ones(40, 40)], ids=["zero", "constant"])
def test_matrices_of_rank_one_or_none_are_refused_by_what_they_lack(A):
    with pytest.raises(InputError, match=r"at least 2 beyond rounding.*of the 40"):
        matrix_tail(A)


def test_matrices_of_integers_are_those_of_their_numbers():
    A = torch.randint(0, 9, (60, 60), generator=torch.Generator().manual_seed(0))
    assert matrix_tail(A, draws=19).alpha == matrix_tail(A.double(), draws=19).alpha


def test_complex_matrices_are_refused():
    with pytest.raises(InputError, match="complex matrix: expected real numbers"):
        matrix_tail(torch.ones(60, 60, dtype=torch.complex64))
