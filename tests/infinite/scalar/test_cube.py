"""Spectra on the Boolean cube against brute force, 80-digit arithmetic, exact rational walks and the paper."""

import math
from fractions import Fraction
from itertools import combinations

import mpmath as mp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from infinite.scalar_kernels import CASES, erf_mlp, real_only, relu_mlp
from tangentkit.core.errors import InputError, NumericalError
from tangentkit.infinite.scalar.cube import (
    Cube,
    boolean_cube_spectrum,
    cube_points,
    cube_weights,
    fractional_variance,
)
from tangentkit.infinite.scalar.degrees import ResolutionWarning, degree_variances
from tangentkit.infinite.scalar.mlp import mlp_kernel_function
from tangentkit.infinite.scalar.sphere import Sphere

every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def shares_in_80_digits(phi, d: int, degrees: list[int]) -> list:
    """binom(d, k) μ_k / φ(1) by the alternating sum over the nodes, with digits to spare."""
    with mp.workdps(90):
        values = [phi(mp.mpf(d - 2 * r) / d) for r in range(d + 1)]
        out = []
        for k in degrees:
            # the coefficients of (1 - z)^k (1 + z)^(d - k)
            plus, minus = Cube(d - k).sizes(d) if k < d else [1] + [0] * d, Cube(k).sizes(k) if k else [1]
            row = [
                sum((-1) ** j * minus[j] * plus[r - j] for j in range(min(k, r) + 1)) for r in range(d + 1)
            ]
            mu = mp.fsum(c * value for c, value in zip(row, values, strict=True)) / mp.mpf(2) ** d
            out.append(math.comb(d, k) * mu / values[0])
        return out


def worst(shares, truth, relative: bool = True) -> float:
    return max(
        abs(float((mp.mpf(float(s)) - t) / (t if relative and t else 1)))
        for s, t in zip(shares, truth, strict=True)
    )


@every_case
@pytest.mark.parametrize("d", [1, 2, 3, 7, 9])
def test_parities_are_eigenvectors_of_the_gram_matrix(case, d):
    points = cube_points(d)
    K = case.torch(points @ points.T / d) / 2**d
    mu = boolean_cube_spectrum(case.torch, d)
    assert mu.shape == (d + 1,)
    for k in range(d + 1):
        for S in list(combinations(range(d), k))[:3]:
            chi = points[:, list(S)].prod(1)
            torch.testing.assert_close(K @ chi, mu[k] * chi, rtol=1e-12, atol=1e-14 * float(mu.max()))


@every_case
@pytest.mark.parametrize("d", [16, 128])
def test_every_route_agrees_with_80_digits(case, d):
    degrees = [0, 1, 2, 3, 5, 8, 12, 16]
    truth = shares_in_80_digits(case.mpmath, d, degrees)
    found = degree_variances(case.torch, Cube(d), top=16)
    assert worst(found.shares[degrees], truth, relative=False) < 1e-13
    # and what it says of its own error holds
    for k, t in zip(degrees, truth, strict=True):
        assert abs(float(found.shares[k]) - float(t)) <= 3 * float(found.errors[k]) / found.total


@pytest.mark.parametrize("name", ["relu ntk", "erf ntk", "exp"])
def test_nothing_cancels_at_dimension_1024(name):
    case, degrees = CASES[name], [0, 1, 2, 8, 15, 16]
    truth = shares_in_80_digits(case.mpmath, 1024, degrees)
    mu = boolean_cube_spectrum(case.torch, 1024, top=16)
    total = float(case.torch(torch.ones(1, dtype=torch.float64)))
    shares = fractional_variance(mu, 1024, total=total)[degrees]
    assert worst(shares, truth) < 1e-11, [float(t) for t in truth]


@pytest.mark.parametrize(("activation", "name"), [("relu", "relu ntk"), ("erf", "erf ntk")])
def test_kernels_of_the_library_are_continued(activation, name):
    depth, sw, sb = {"relu": (3, 2.0, 1.0), "erf": (2, 2.0, 0.5)}[activation]
    phi = mlp_kernel_function(depth, activation, weight_variance=sw, bias_variance=sb)
    truth = shares_in_80_digits(CASES[name].mpmath, 1024, [0, 3, 16])
    mu = boolean_cube_spectrum(phi, 1024, top=16)
    shares = fractional_variance(mu, 1024, total=phi.diag())[[0, 3, 16]]
    assert worst(shares, truth) < 1e-11


@pytest.mark.parametrize("activation", ["relu", "gelu", "sin", "sign", "tanh", "elu"])
@pytest.mark.parametrize("kind", ["nngp", "ntk"])
def test_every_activation_has_a_spectrum(activation, kind):
    phi = mlp_kernel_function(2, activation, weight_variance=1.5, bias_variance=0.1, kind=kind)
    points = cube_points(6)
    values = torch.linalg.eigvalsh(phi(points @ points.T / 6) / 64)
    mu = boolean_cube_spectrum(phi, 6).repeat_interleave(torch.tensor(Cube(6).sizes(6)))
    # by quadrature for few entries, by a table for many: those of tanh and elu differ in the ninth digit
    tolerance = 1e-7 if activation in ("tanh", "elu") else 1e-11
    torch.testing.assert_close(mu.sort().values, values, rtol=tolerance, atol=tolerance * float(mu.max()))


@pytest.mark.parametrize("d", [1, 5, 30, 200, 1024])
def test_the_exponential_kernel_has_a_closed_form_in_every_degree(d):
    # E[exp(x̄) x_1 ⋯ x_k] = sinh(1/d)^k cosh(1/d)^(d-k)
    mu = boolean_cube_spectrum(torch.exp, d)
    k = np.arange(d + 1)
    log_truth = k * math.log(math.sinh(1 / d)) + (d - k) * math.log(math.cosh(1 / d))
    normal = (log_truth > -690) & (
        log_truth > math.log(1e-290) - np.array([math.log(s) for s in Cube(d).sizes(d)])
    )
    kept = normal[: min(d, 60) + 1].nonzero()[0]
    assert len(kept) > min(d, 40)
    np.testing.assert_allclose(mu[kept].log(), log_truth[kept], atol=1e-10)


@given(
    d=st.integers(1, 40),
    coefficients=st.lists(st.integers(0, 9), min_size=1, max_size=12),
    takes_complex=st.booleans(),
)
@settings(deadline=None, max_examples=40)
def test_polynomials_walk_over_degrees(d, coefficients, takes_complex):
    # t^j spreads over degrees as j steps of a walk, in exact fractions.
    walk, truth = [Fraction(1)] + [Fraction(0)] * d, [Fraction(0)] * (d + 1)
    for a in coefficients:
        truth = [v + a * p for v, p in zip(truth, walk, strict=True)]
        walk = [
            (walk[k - 1] * Fraction(d - k + 1, d) if k else 0)
            + (walk[k + 1] * Fraction(k + 1, d) if k < d else 0)
            for k in range(d + 1)
        ]

    def phi(t):
        return sum(a * t**j for j, a in enumerate(coefficients)) + 0 * t

    found = degree_variances(phi if takes_complex else real_only(phi), Cube(d), top=d)
    scale = max(1, sum(coefficients))
    for k in range(d + 1):
        noise = 1.0 if takes_complex else math.sqrt(math.comb(d, k))
        assert abs(found.values[k] - float(truth[k])) <= 2e-14 * scale * noise


@every_case
@pytest.mark.parametrize("d", [1, 2, 10, 101])
def test_all_degrees_sum_to_the_trace(case, d):
    mu = boolean_cube_spectrum(case.torch, d)
    trace = sum(size * float(value) for size, value in zip(Cube(d).sizes(d), mu, strict=True))
    assert trace == pytest.approx(float(case.torch(torch.ones(1, dtype=torch.float64))), rel=1e-11)
    assert float(fractional_variance(mu, d).sum()) == pytest.approx(1, rel=1e-13)


@every_case
def test_eigenvalues_fall_along_even_and_along_odd_degrees(case):
    mu = boolean_cube_spectrum(case.torch, 20)
    slack = 1e-15 * float(mu[0])
    assert (mu[2:] <= mu[:-2] + slack).all()


@pytest.mark.parametrize("d", [7, 60])
def test_a_kernel_of_real_numbers_has_the_same_low_degrees(d):
    phi = CASES["relu ntk"].torch
    both = [degree_variances(f, Cube(d), top=7) for f in (phi, real_only(phi))]
    # ε sqrt(binom(60, 7)) = 4e-12
    torch.testing.assert_close(both[0].values, both[1].values, rtol=1e-8, atol=1e-11)


def test_degrees_that_rounding_hides_come_as_zero_with_a_warning():
    phi = real_only(CASES["relu ntk"].torch)
    with pytest.warns(ResolutionWarning, match=r"in degree \d+ and more beyond.*top="):
        mu = boolean_cube_spectrum(phi, 1024)
    assert mu[40:].eq(0).all()
    truth = boolean_cube_spectrum(CASES["relu ntk"].torch, 1024, top=6)
    torch.testing.assert_close(mu[:7], truth, rtol=1e-4, atol=0)
    # the degrees that can be had come without one
    torch.testing.assert_close(boolean_cube_spectrum(phi, 1024, top=6), truth, rtol=1e-4, atol=0)


def test_a_prefix_is_a_prefix():
    phi = CASES["relu ck"].torch
    whole = degree_variances(phi, Cube(50), top=50)
    for top in (0, 1, 16, 49):
        part = degree_variances(phi, Cube(50), top=top)
        torch.testing.assert_close(part.values, whole.values[: top + 1], rtol=1e-10, atol=1e-12)


def test_functions_that_only_look_analytic_take_the_direct_route():
    # |t|² is constant on every circle and real on the real line: it must be seen through.
    for phi in (lambda t: t.abs() ** 2, lambda t: (t * t.conj()).real if t.is_complex() else t * t):
        torch.testing.assert_close(
            boolean_cube_spectrum(phi, 12), boolean_cube_spectrum(lambda t: t**2, 12), rtol=1e-12, atol=1e-16
        )
    # |t| has a kink at 0; brute force knows.
    points = cube_points(6)
    values = torch.linalg.eigvalsh((points @ points.T / 6).abs() / 64)
    try:
        mu = boolean_cube_spectrum(torch.abs, 6)
    except NumericalError:
        assert values[0] < -1e-8
    else:
        assert float(mu.min()) == pytest.approx(float(values[0]), abs=1e-12)


@pytest.mark.parametrize(("d", "edge"), [(4, 1.0), (7, 1.0), (9, 0.75), (9, 0.6)])
def test_kernels_patched_together_are_seen_as_they_are(d, edge):
    # Flat beyond the edge, and a nugget at t = 1: in the complex plane all that looks like exp.
    def phi(t):
        return torch.where(t >= 1, 9.0, torch.exp(t.clamp(-edge, edge)))

    points = cube_points(d)
    values = torch.linalg.eigvalsh(phi(points @ points.T / d) / 2**d)
    mu = boolean_cube_spectrum(phi, d).repeat_interleave(torch.tensor(Cube(d).sizes(d)))
    torch.testing.assert_close(mu.sort().values, values, rtol=1e-9, atol=1e-13)


def test_routes_that_disagree_are_not_mixed():
    # exp in the complex plane, but more than exp on the real line beyond 0.75, where the series is not compared.
    def phi(t):
        return torch.exp(t) + torch.where(t.abs() > 0.75, 1.0, 0.0) * t**40 + torch.where(t >= 1, 1e3, 0.0)

    def stand_in(t):
        return torch.exp(t) if t.is_complex() else phi(t)

    d = 30
    found, direct = (degree_variances(f, Cube(d), top=d) for f in (stand_in, real_only(phi)))
    torch.testing.assert_close(found.values, direct.values, rtol=0, atol=1e-8)


def test_a_float32_kernel_is_known_to_float32():
    mu = boolean_cube_spectrum(
        lambda t: torch.exp(t.to(torch.complex64 if t.is_complex() else torch.float32)), 10
    )
    torch.testing.assert_close(mu, boolean_cube_spectrum(torch.exp, 10), rtol=1e-3, atol=1e-7)


def test_weights_are_orthogonal():
    # W Wᵀ with the measure of the nodes is diagonal: the polynomials are orthogonal.
    d = 9
    W = cube_weights(d, top=d)
    measure = np.array([math.comb(d, r) / 2**d for r in range(d + 1)])
    np.testing.assert_allclose((W / measure) @ W.T, np.diag(Cube(d).sizes(d)), atol=1e-10)


def test_dimensions_beyond_float64():
    # binom(5000, 2500) has 1503 digits
    mu = boolean_cube_spectrum(torch.exp, 5000, top=3)
    shares = fractional_variance(mu, 5000, total=math.e)
    # for large d the degrees are those of the Taylor series
    expected = torch.tensor([1, 1, 1 / 2, 1 / 6], dtype=torch.float64) / math.e
    torch.testing.assert_close(shares, expected, rtol=3e-3, atol=0)


# the paper's numbers (d = 7) ------------------------------------------------------------------------------------

PUBLISHED = {
    "relu ck": (relu_mlp(2, 2.0, 2.0, "nngp"), [0.8388, 0.1300, 0.0245, 0.0046, 0.0015, 0.0005]),
    "relu ntk": (relu_mlp(2, 2.0, 2.0, "ntk"), [0.6269, 0.2327, 0.0747, 0.0332, 0.0200, 0.0094]),
    "relu shallow ck": (relu_mlp(1, 2.0, 2.0, "nngp"), [0.7438]),
    "relu shallow ntk": (relu_mlp(1, 2.0, 2.0, "ntk"), [0.5865]),
    "erf 1": (erf_mlp(2, 1.0, 0.0, "nngp"), [0, 0.9181, 0, 0.0762, 0, 0.0057]),
    "erf 2": (erf_mlp(2, 2.0, 0.0, "nngp"), [0, 0.8457, 0, 0.1349, 0, 0.0189]),
    "erf 4": (erf_mlp(2, 4.0, 0.0, "nngp"), [0, 0.7654, 0, 0.1919, 0, 0.0415]),
}


@pytest.mark.parametrize(("case", "shares"), PUBLISHED.values(), ids=PUBLISHED.keys())
def test_published_fractional_variances(case, shares):
    found = fractional_variance(boolean_cube_spectrum(case.torch, 7), 7)[: len(shares)]
    np.testing.assert_allclose(found, shares, atol=5.1e-5)


def test_published_white_noise_of_a_deep_erf_network():
    mu = boolean_cube_spectrum(erf_mlp(32, 4.0, 0.0, "nngp").torch, 7)
    trace = float(sum(math.comb(7, k) * mu[k] for k in range(8)))
    np.testing.assert_allclose(mu[1::2] / trace, [0.01629, 0.01556, 0.01551, 0.01549], atol=5.1e-6)
    assert mu[0::2].eq(0).all()


def test_the_kernel_of_a_point_with_itself_is_the_published_one():
    one = torch.ones(1, dtype=torch.float64)
    for kind, trace in {"nngp": 8, "ntk": 18}.items():
        assert float(relu_mlp(2, 2.0, 2.0, kind).torch(one)) == pytest.approx(trace)


def test_eigenspaces_grow_like_powers():
    assert Cube(576).sizes(5)[5] == math.comb(576, 5)
    assert (
        sum(Cube(576).sizes(5))
        == sum(math.comb(576, k) for k in range(6))
        == pytest.approx(5.238e11, rel=1e-3)
    )
    for k in (1, 2, 3, 5):
        gaps = [
            [abs(space(d).sizes(k)[k] * math.factorial(k) / d**k - 1) for d in (100, 1000, 10000)]
            for space in (Cube, Sphere)
        ]
        for gap in gaps:
            assert gap[2] <= gap[1] <= gap[0]
            assert gap[2] < 2e-3


# fractional variance -------------------------------------------------------------------------------------------


def test_shares_of_a_batch_are_shares_of_each():
    mus = torch.stack([boolean_cube_spectrum(CASES[name].torch, 9) for name in ("relu ck", "exp")])
    together = fractional_variance(mus, 9)
    for mu, shares in zip(mus, together, strict=True):
        torch.testing.assert_close(fractional_variance(mu, 9), shares)
    totals = torch.tensor([8.0, math.e], dtype=torch.float64)
    part = fractional_variance(mus[:, :3], 9, total=totals)
    torch.testing.assert_close(part, together[:, :3], rtol=1e-6, atol=0)


def test_white_noise_is_shared_by_size():
    d = 1024
    shares = fractional_variance(torch.ones(d + 1, dtype=torch.float64), d)
    truth = [math.comb(d, k) / 2**d for k in range(d + 1)]
    np.testing.assert_allclose(shares, truth, rtol=1e-11)


def test_scaling_the_kernel_changes_no_share():
    mu = boolean_cube_spectrum(CASES["erf ntk"].torch, 11)
    torch.testing.assert_close(fractional_variance(1e-200 * mu, 11), fractional_variance(mu, 11))


# bad input ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [0, -3, 2.0, True, "7", None])
def test_bad_dimensions_are_refused(d):
    with pytest.raises(InputError, match="dimension"):
        boolean_cube_spectrum(torch.exp, d)


@pytest.mark.parametrize("top", [-1, 8, 2.0, True])
def test_bad_degrees_are_refused(top):
    with pytest.raises(InputError, match="degree"):
        boolean_cube_spectrum(torch.exp, 7, top=top)


@pytest.mark.parametrize(
    ("phi", "error", "words"),
    [
        (lambda t: t.sum(), InputError, "shape"),
        (lambda t: t[:, None] * t, InputError, "shape"),
        (lambda t: torch.log(t), NumericalError, "not finite"),
        (lambda t: 1 / (1 - t), NumericalError, "not finite"),
        (lambda t: -t, NumericalError, "not a positive semi-definite kernel"),
        (lambda t: t**2 - 0.3 * t**3, NumericalError, "degree [13]"),
        (lambda t: t - 0.5, NumericalError, "in degree 0"),
    ],
)
def test_bad_kernels_are_refused(phi, error, words):
    for kernel in (phi, real_only(phi)):
        with pytest.raises(error, match=words):
            boolean_cube_spectrum(kernel, 7)


def test_bad_shares_are_refused():
    good = torch.ones(8)
    for mu, words in [
        (-good, "smallest"),
        (good[:0], "number of eigenvalues"),
        (torch.ones(9), "number of eigenvalues"),
        (0 * good, "no variance"),
        (good * float("nan"), "eigenvalues"),
    ]:
        with pytest.raises(InputError, match=words):
            fractional_variance(mu, 7)
    with pytest.raises(InputError, match=r"total=phi\(1\)"):
        fractional_variance(good[:3], 7)


def test_too_many_points_are_refused():
    with pytest.raises(InputError, match="too many points"):
        cube_points(31)
