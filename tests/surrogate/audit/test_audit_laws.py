"""The laws of the audit: p-values are uniform where nothing is wrong, and rates of false flags are what they say."""

import numpy as np
import pytest
import torch
from scipy import special, stats

from tangentkit.core.memory import Budget
from tangentkit.surrogate.audit.kinds import false_shares_of_chances
from tangentkit.surrogate.audit.mislabels import fit_noise
from tangentkit.surrogate.audit.poison import grubbs, trigger_cluster, votes, which_is_mixed
from tangentkit.surrogate.audit.surroundings import closeness, remoteness, surroundings, widest_gap

BUDGET = Budget(2**28)


def poisson_distances(rng, n, k, m):
    """Distances to the k nearest points of n independent Poisson processes in m dimensions."""
    return np.cumsum(rng.exponential(size=(n, k)), axis=1) ** (1 / m)


@pytest.mark.parametrize("m", [1, 7, 40])
def test_one_gap_of_a_poisson_process_has_a_uniform_p_value_whatever_the_dimension(m):
    distances = poisson_distances(np.random.default_rng(m), 4000, 25, m)
    p, _ = widest_gap(distances, 1)
    assert stats.kstest(p, "uniform").pvalue > 1e-4


def test_of_several_gaps_the_p_value_is_not_too_small():
    p, _ = widest_gap(poisson_distances(np.random.default_rng(0), 20_000, 25, 5), 4)
    for level in (0.05, 0.01, 0.001):
        assert (p <= level).mean() <= level + 4 * np.sqrt(level / len(p))


def test_a_few_that_are_as_near_to_each_other_as_others_are_and_far_from_these_are_no_copies():
    distances = poisson_distances(np.random.default_rng(2), 400, 25, 6)
    distances[:40, 3:] *= 50
    assert (widest_gap(distances, 4)[0][:40] < 1e-4).all()
    assert closeness(distances, 4)[0][:40].min() > 1e-4


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_close_group_is_found_with_its_size(size):
    distances = poisson_distances(np.random.default_rng(1), 200, 25, 6)
    distances[:, :size] *= 1e-3
    p, found = closeness(distances, 4)
    assert (p < 1e-4).mean() > 0.95
    assert (found == size).mean() > 0.95


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng: rng.normal(size=2000),
        lambda rng: rng.gamma(4, size=2000),
        lambda rng: rng.gumbel(size=2000),
        lambda rng: -rng.gamma(4, size=2000),
        lambda rng: rng.random(2000),
    ],
    ids=["normal", "gamma", "gumbel", "left-skewed", "uniform"],
)
def test_clean_log_concave_values_are_flagged_no_more_often_than_the_level(draw):
    rng, repeats = np.random.default_rng(3), 200
    flags = [(stats.false_discovery_control(remoteness(draw(rng))) <= 0.05).any() for _ in range(repeats)]
    assert stats.binomtest(sum(flags), repeats, 0.05, alternative="greater").pvalue > 1e-3


def test_strangers_far_out_are_found_and_do_not_hide_each_other():
    rng = np.random.default_rng(4)
    values = np.concatenate([rng.normal(size=1900), 8 + rng.normal(size=60)])
    flagged = stats.false_discovery_control(remoteness(values)) <= 0.05
    assert flagged[1900:].mean() > 0.95
    assert flagged[:1900].sum() <= 6


def test_neighbors_are_those_of_the_slow_way_and_leave_the_sample_out():
    points = torch.nn.functional.normalize(torch.randn(60, 5), dim=1)
    points[7] = points[3]
    found = surroundings(points, budget=Budget(20_000))
    slow = torch.cdist(points.double(), points.double())
    slow.fill_diagonal_(torch.inf)
    expected = slow.sort(1).values[:, :25].clamp_min(1e-6)
    torch.testing.assert_close(torch.from_numpy(found.distances), expected, rtol=1e-5, atol=1e-6)
    assert not (found.indices == np.arange(60)[:, None]).any()
    assert found.indices[7, 0] == 3


def noisy_labels(rng, n, c, share, sharpness=6.0):
    log_p = special.log_softmax(sharpness * rng.normal(size=(n, c)), axis=1)
    y = (log_p + rng.gumbel(size=log_p.shape)).argmax(1)
    drawn = rng.random(n) < share
    new = np.where(drawn, rng.integers(c, size=n), y)
    return log_p, new, new != y


def test_without_noise_noise_is_seen_no_more_often_than_the_level():
    rng, repeats = np.random.default_rng(5), 60
    seen = [fit_noise(*noisy_labels(rng, 400, 5, 0.0)[:2]).p_value <= 0.05 for _ in range(repeats)]
    assert stats.binomtest(sum(seen), repeats, 0.05, alternative="greater").pvalue > 1e-3


@pytest.mark.parametrize("share", [0.01, 0.05, 0.2])
def test_flags_are_false_at_the_level_where_the_probe_is_right_up_to_a_temperature(share):
    rng = np.random.default_rng(6)
    false = flags = wrong_found = wrongs = 0
    for _ in range(10):
        log_p, y, wrong = noisy_labels(rng, 3000, 10, share)
        noise = fit_noise(log_p * 1.7, y)  # overconfident
        assert noise.temperature == pytest.approx(1.7, rel=0.15)
        assert noise.share == pytest.approx(share, abs=0.4 * share + 0.004)
        flagged = false_shares_of_chances(noise.right) <= 0.05
        false, flags = false + (flagged & ~wrong).sum(), flags + flagged.sum()
        wrong_found, wrongs = wrong_found + (flagged & wrong).sum(), wrongs + wrong.sum()
    assert stats.binomtest(int(false), int(flags), 0.05, alternative="greater").pvalue > 1e-3
    assert wrong_found > 0.4 * wrongs


def test_labels_of_one_class_that_another_got_are_found_at_the_level():
    rng = np.random.default_rng(12)
    false = flags = found = wrongs = 0
    for _ in range(10):
        log_p, y, _ = noisy_labels(rng, 1000, 10, 0.0)
        wrong = (y == 3) & (rng.random(1000) < 0.2)
        noise = fit_noise(log_p, np.where(wrong, 7, y))
        assert [pair[:2] for pair in noise.pairs] == [(3, 7)]
        assert noise.pairs[0][2] == pytest.approx(wrong.sum() / (y == 3).sum(), abs=0.12)
        flagged = (false_shares_of_chances(noise.right) <= 0.05) & (noise.p_value <= 0.05)
        false, flags = false + (flagged & ~wrong).sum(), flags + flagged.sum()
        found, wrongs = found + (flagged & wrong).sum(), wrongs + wrong.sum()
    assert stats.binomtest(int(false), int(flags), 0.05, alternative="greater").pvalue > 1e-3
    assert found > 0.4 * wrongs


def test_grubbs_is_at_its_level_and_finds_the_one_that_is_unlike():
    rng, repeats = np.random.default_rng(7), 2000
    flags = sum(grubbs(rng.normal(size=10))[0] <= 0.05 for _ in range(repeats))
    assert stats.binomtest(flags, repeats, 0.05, alternative="greater").pvalue > 1e-3
    assert flags > 0.03 * repeats  # Bonferroni's bound is near to exact


def clusters(rng, share):
    """Ten classes of one Gaussian each; of class 4 a share is elsewhere, and looks like samples of all classes."""
    labels = np.repeat(np.arange(10), 150)
    features = rng.normal(size=(1500, 12)) + 6 * rng.normal(size=(10, 12))[labels]
    trigger = (labels == 4) & (rng.random(1500) < share)
    looks = np.where(trigger, rng.integers(10, size=1500), labels)
    inputs = rng.normal(size=(1500, 12)) + 2 * rng.normal(size=(10, 12))[looks]
    features[trigger] = rng.normal(size=(trigger.sum(), 12)) * 0.3 + 9
    return features, labels, trigger, inputs


@pytest.mark.parametrize("share", [0.2, 0.5, 0.7])
def test_a_trigger_cluster_is_told_from_the_rest_of_its_class_be_it_the_larger_or_the_smaller(share):
    features, labels, trigger, inputs = clusters(np.random.default_rng(8), share)
    found = trigger_cluster(features, labels, seed=0, inputs=inputs)
    assert found.label == 4
    assert found.p_value < 1e-3
    assert found.doubt <= 0.05
    assert ((found.clean < 0.5) == trigger).mean() > 0.99


def test_clusters_that_look_alike_are_told_apart_no_more_often_than_the_level():
    rng, repeats = np.random.default_rng(11), 60
    labels = np.repeat(np.arange(6), 40)
    seen = []
    for seed in range(repeats):
        points = rng.normal(size=(240, 5)) + rng.normal(size=(6, 5))[labels]
        seen.append(which_is_mixed(points, labels, 2, rng.random(40) < 0.4, seed=seed)[1] <= 0.05)
    assert stats.binomtest(sum(seen), repeats, 0.05, alternative="greater").pvalue > 1e-3


def test_without_a_trigger_a_class_is_suspected_no_more_often_than_the_level():
    rng, repeats = np.random.default_rng(9), 6
    seen = [trigger_cluster(*clusters(rng, 0.0)[:2], seed=0).p_value <= 0.05 for _ in range(repeats)]
    assert stats.binomtest(sum(seen), repeats, 0.05, alternative="greater").pvalue > 1e-3


def test_two_classes_cannot_be_unlike_each_other():
    features, labels, *_ = clusters(np.random.default_rng(0), 0.2)
    assert trigger_cluster(features, labels % 2, seed=0) is None


def test_votes_of_known_poison_have_the_hypergeometric_law():
    rng = np.random.default_rng(10)
    known = np.arange(1000) < 200
    near = np.array([rng.permutation(1000)[:5] for _ in range(1000)])
    found = votes(near, known)
    assert np.array_equal(found.counts, known[near].sum(1))
    for v in range(1, 6):
        expected = sum(stats.hypergeom.pmf(j, 999, 200, 5) for j in range(v, 6))
        assert found.p_values[found.counts == v] == pytest.approx(expected)
    near[:200] = rng.integers(200, size=(200, 5))
    near[950:, :] = rng.integers(200, size=(50, 5))
    ratios = votes(near, known).log_ratios
    assert ratios[950:].min() > 4
    assert np.median(ratios[200:950]) < 0
