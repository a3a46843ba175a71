"""Kendall's tau against all pairs, and the map between surrogate and network against its own inverse."""

from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from tangentkit.core.errors import InputError, UnknownNameError
from tangentkit.surrogate.faithfulness import (
    Faithfulness,
    accuracy_difference,
    kendall_tau,
    measure_faithfulness,
)
from tangentkit.surrogate.invertible_map import InvertibleMap, fit_invertible_map, interior, log_odds

grades = st.integers(-3, 3)
points = st.lists(st.tuples(grades, grades), min_size=2, max_size=30)
maps = st.builds(InvertibleMap, st.floats(-3, 3), st.floats(0.1, 10), st.floats(0.2, 2))


def tau_by_all_pairs(a, b):
    signs = [np.sign(a[i] - a[j]) * np.sign(b[i] - b[j]) for i, j in combinations(range(len(a)), 2)]
    concordant, discordant = signs.count(1), signs.count(-1)
    return (concordant - discordant) / (concordant + discordant) if concordant + discordant else np.nan


@settings(deadline=None)
@given(points)
def test_tau_equals_the_count_over_all_pairs_with_many_ties(points):
    a, b = map(list, zip(*points, strict=True))
    np.testing.assert_array_equal(kendall_tau(a, b), tau_by_all_pairs(a, b))


def test_tau_of_many_distinct_points_is_scipys():
    rng = np.random.default_rng(0)
    a = rng.normal(size=5000)
    b = a + rng.normal(size=5000)
    assert kendall_tau(a, b) == pytest.approx(stats.kendalltau(a, b)[0], abs=1e-12)


@settings(deadline=None)
@given(points)
def test_tau_sees_ranks_only_and_is_odd_and_symmetric(points):
    a, b = (np.array(v, dtype=float) for v in zip(*points, strict=True))
    tau = kendall_tau(a, b)
    np.testing.assert_array_equal(kendall_tau(np.exp(a), 3 * b - 7), tau)
    np.testing.assert_array_equal(kendall_tau(b, a), tau)
    np.testing.assert_array_equal(kendall_tau(-a, b), -tau)


def test_tau_takes_tensors_and_refuses_what_has_no_pairs():
    assert kendall_tau(torch.arange(4), torch.arange(4.0)) == 1.0
    assert np.isnan(kendall_tau([1, 1, 1], [1, 2, 3]))
    for a, b in [([1], [1]), ([1, 2], [1, 2, 3]), ([1, np.nan], [1, 2]), ([], []), ([[1, 2]], [[1, 2]])]:
        with pytest.raises(InputError):
            kendall_tau(a, b)


@settings(deadline=None)
@given(st.lists(st.tuples(grades, grades, grades), min_size=1, max_size=20))
def test_accuracy_difference_is_counted_and_odd(rows):
    surrogate, network, targets = zip(*rows, strict=True)
    right = sum(s == y for s, _, y in rows) - sum(n == y for _, n, y in rows)
    difference = accuracy_difference(surrogate, network, targets)
    assert difference == pytest.approx(100 * right / len(rows), abs=1e-10)
    assert accuracy_difference(network, surrogate, targets) == pytest.approx(-difference, abs=1e-10)
    assert accuracy_difference(network, network, targets) == 0


@settings(deadline=None)
@given(maps, st.lists(st.floats(-6, 6), min_size=1, max_size=10))
def test_inverse_undoes_forward(curve, u):
    z = curve.shift + curve.scale * np.array(u)
    q = curve.forward(z)
    assert interior(q).all()
    # Where q rounds towards 1 its distance from 1 is known to one rounding error only.
    lost = np.finfo(float).eps * curve.scale / (1 - q)
    np.testing.assert_allclose(curve.inverse(q), z, rtol=1e-9, atol=1e-9 + 10 * lost.max())
    np.testing.assert_allclose(curve.forward_log_odds(z), log_odds(q), rtol=1e-6, atol=1e-6)


@settings(deadline=None)
@given(maps)
def test_the_map_is_increasing_and_keeps_tau(curve):
    rng = np.random.default_rng(0)
    z = curve.shift + curve.scale * rng.uniform(-5, 5, size=40)
    other = rng.normal(size=40)
    assert (np.diff(curve.forward(np.sort(z))) > 0).all()
    assert kendall_tau(curve.forward(z), other) == kendall_tau(z, other)


def test_the_map_stays_finite_far_out():
    curve = InvertibleMap(shift=0.0, scale=0.5, power=1.7)
    z = np.array([-300.0, -50.0, 15.0, 19.9, 20.1, 50.0, 1e6])
    assert np.isfinite(curve.forward_log_odds(z)).all()
    # 1 - q is exp(-z/K)/ν out there, whatever the route.
    np.testing.assert_allclose(curve.forward_log_odds(z[3:]), z[3:] / 0.5 + np.log(1.7), rtol=1e-14)
    np.testing.assert_array_equal(curve.forward([-1e6, 1e6]), [0.0, 1.0])


@pytest.mark.parametrize("truth", [InvertibleMap(0.5, 1.5, 0.8), InvertibleMap(-4.0, 6.0, 1.6)])
def test_the_fit_finds_the_map_that_made_the_data(truth):
    z = truth.shift + truth.scale * np.linspace(-6, 6, 200)
    found = fit_invertible_map(z, truth.forward(z))
    np.testing.assert_allclose(
        [found.shift, found.scale, found.power], [truth.shift, truth.scale, truth.power], rtol=1e-3, atol=1e-3
    )
    assert found.r2(z, truth.forward(z)) > 1 - 1e-6


def test_no_nelder_mead_search_finds_a_better_fit():
    rng = np.random.default_rng(0)
    z = 3 * rng.normal(size=300)
    q = InvertibleMap(1.0, 2.0, 1.2).forward(z + rng.normal(size=300))

    def error(parameters):
        return np.square(InvertibleMap(*parameters).inverse(q) - z).mean()

    bounds = [(None, None), (1e-6, None), (0.2, 2)]
    start = [0, z.std(), 1.1]
    published = optimize.minimize(error, start, method="Nelder-Mead", bounds=bounds)
    found = fit_invertible_map(z, q)
    assert error([found.shift, found.scale, found.power]) <= published.fun * (1 + 1e-12)
    assert 0 < found.r2(z, q) < 1


def test_a_surrogate_that_contradicts_the_network_still_gets_an_increasing_map():
    z = np.linspace(-2, 2, 20)
    found = fit_invertible_map(z, InvertibleMap(0.0, 1.0, 1.0).forward(-z))
    assert found.scale > 0
    assert found.r2(z, InvertibleMap(0.0, 1.0, 1.0).forward(-z)) < 0


def test_the_fit_refuses_points_without_log_odds():
    with pytest.raises(InputError, match="0 < q < 1"):
        fit_invertible_map([1.0, 2.0, 3.0], [0.5, 1.0, 0.2])
    with pytest.raises(InputError, match="nothing to fit"):
        fit_invertible_map([1.0, 1.0, 1.0], [0.5, 0.1, 0.2])


def _logits(n=300, c=4, noise=0.5, seed=0):
    rng = torch.Generator().manual_seed(seed)
    network = 2 * torch.randn(n, c, generator=rng, dtype=torch.float64)
    surrogate = network + noise * torch.randn(n, c, generator=rng, dtype=torch.float64)
    labels = (network + torch.randn(n, c, generator=rng)).argmax(1)
    return network, surrogate, labels


def test_faithfulness_is_put_together_of_its_definitions():
    network, surrogate, labels = _logits()
    found = measure_faithfulness(network, surrogate, labels, bootstrap=2)
    at = torch.arange(300), labels
    p, q = network.softmax(1)[at].numpy(), surrogate.softmax(1)[at].numpy()
    assert found.kendall_tau.value == pytest.approx(kendall_tau(p, q))
    guesses = surrogate.argmax(1), network.argmax(1)
    assert found.accuracy_difference.value == pytest.approx(accuracy_difference(*guesses, labels))
    assert found.agreement.value == pytest.approx(100 * float((guesses[0] == guesses[1]).double().mean()))
    z = log_odds(q)
    assert found.r2.value == pytest.approx(fit_invertible_map(z, p).r2(z, p))
    assert found.to_dict()["r2"]["value"] == found.r2.value
    assert "Kendall" in str(found)


def test_the_network_itself_is_perfectly_faithful():
    network, _, labels = _logits()
    found = measure_faithfulness(network, network, labels, bootstrap=20)
    values = [found.kendall_tau, found.accuracy_difference, found.agreement, found.calibration_difference]
    assert [(m.value, m.error) for m in values] == [(1.0, 0.0), (0.0, 0.0), (100.0, 0.0), (0.0, 0.0)]
    assert found.r2.value == pytest.approx(1.0, abs=1e-6)


def test_bootstrap_errors_are_those_of_fresh_points():
    repeats = [measure_faithfulness(*_logits(seed=seed), bootstrap=40) for seed in range(40)]
    for name in ("kendall_tau", "accuracy_difference", "agreement"):
        values = np.array([getattr(f, name).value for f in repeats])
        told = np.mean([getattr(f, name).error for f in repeats])
        assert told == pytest.approx(values.std(ddof=1), rel=0.35)
    scatter = Faithfulness.over(repeats).kendall_tau
    assert scatter.error == pytest.approx(np.std([f.kendall_tau.value for f in repeats], ddof=1) / 40**0.5)


def test_saturated_points_have_a_rank_or_are_removed():
    network = torch.tensor([[60.0, 0, 0], [50.0, 0, 0], [1.0, 0, 0], [0.5, 0, 0]], dtype=torch.float64)
    surrogate = torch.tensor([[50.0, 0, 0], [60.0, 0, 0], [1.0, 0, 0], [0.5, 0, 0]], dtype=torch.float64)
    labels = torch.zeros(4, dtype=torch.long)
    ranked = measure_faithfulness(network, surrogate, labels, bootstrap=2)
    removed = measure_faithfulness(network, surrogate, labels, bootstrap=2, saturated="remove")
    assert ranked.saturated == removed.saturated == 2
    assert ranked.kendall_tau.value == pytest.approx(4 / 6)
    assert removed.kendall_tau.value == 1.0


def test_ties_are_left_out_or_stay_in_the_denominator():
    network = torch.tensor([[1.0, 0], [1.0, 0], [2.0, 0], [3.0, 0]]).double()
    surrogate = torch.tensor([[1.0, 0], [2.0, 0], [3.0, 0], [4.0, 0]]).double()
    labels = torch.zeros(4, dtype=torch.long)
    drop, b = (measure_faithfulness(network, surrogate, labels, bootstrap=2, ties=t) for t in ("drop", "b"))
    assert drop.kendall_tau.value == 1.0
    assert b.kendall_tau.value == pytest.approx(5 / np.sqrt(5 * 6))


def test_overconfidence_is_a_positive_calibration_difference():
    network, _, labels = _logits(3000)
    network = 0.9 * network
    assert measure_faithfulness(network, 5 * network, labels, bootstrap=2).calibration_difference.value > 3


def test_unknown_options_and_shapes_are_named():
    network, surrogate, labels = _logits(10)
    for option in ({"tau": "median"}, {"saturated": "keep"}, {"ties": "a"}):
        with pytest.raises(UnknownNameError):
            measure_faithfulness(network, surrogate, labels, **option)
    with pytest.raises(InputError, match=r"\(10, 3\)"):
        measure_faithfulness(network, surrogate[:, :3], labels)
    with pytest.raises(InputError, match="at least 2"):
        measure_faithfulness(network[:1], surrogate[:1], labels[:1])
    with pytest.raises(InputError, match="two networks"):
        Faithfulness.over([measure_faithfulness(network, surrogate, labels, bootstrap=2)])


def test_where_no_increasing_map_fits_there_is_no_r2_and_the_table_says_so():
    network = torch.randn(40, 2, dtype=torch.float64)
    found = measure_faithfulness(network, -network, torch.zeros(40, dtype=torch.long))
    assert np.isnan(found.r2.value)
    assert found.curve is None
    assert found.to_dict()["r2"]["value"] is None
    assert "no increasing map" in str(found.table()).replace("\n", " ")
    assert "R² of the invertible map" in str(found)


@pytest.mark.parametrize("draws", [-3, 1.5, True])
def test_a_number_of_draws_that_is_none_is_refused(draws):
    with pytest.raises(InputError, match="bootstrap=0"):
        measure_faithfulness(torch.eye(2), torch.eye(2), torch.tensor([0, 1]), bootstrap=draws)
