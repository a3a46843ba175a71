"""Statistics of many divisions at once, against the obvious version of each."""

import numpy as np
import pytest
from scipy import stats
from scipy.spatial.distance import cdist
from sklearn.linear_model import Ridge
from sklearn.metrics import roc_auc_score

from tangentkit.analysis.shift.pooled import PooledFeatures
from tangentkit.analysis.shift.statistics import (
    cross_validated_auc,
    divisions,
    folds_of,
    largest_ks,
    pair_sums,
    permutation_p_values,
)
from tangentkit.core.memory import Budget

SIZES = (17, 12)


@pytest.fixture
def points():
    return np.random.default_rng(0).normal(size=(sum(SIZES), 4))


@pytest.fixture
def folds():
    return folds_of(SIZES, seed=3)


@pytest.fixture
def Z(folds):
    return divisions(SIZES, folds, 30, seed=3)


def test_divisions_keep_the_numbers_of_every_fold(folds, Z):
    assert np.array_equal(Z[:, 0], np.repeat([True, False], SIZES))
    assert sorted(np.concatenate(folds)) == list(range(sum(SIZES)))
    for fold in folds:
        assert len(set(Z[fold].sum(0))) == 1
    assert len(np.unique(Z, axis=1).T) > 25


def unbiased(A, z):
    p, m = np.flatnonzero(z), np.flatnonzero(~z)
    mean = lambda a, b: np.mean([A[i, j] for i in a for j in b if i != j])  # noqa: E731
    return mean(p, p) + mean(m, m) - 2 * mean(p, m)


@pytest.mark.parametrize("memory", [10**9, 20_000])
def test_energy_and_mmd_are_means_over_pairs(points, Z, memory):
    pooled = PooledFeatures(points[:17], points[17:], seed=0)
    similar, near = pair_sums(pooled.strips(Budget(memory)), Z)
    D = cdist(points, points)
    K = np.exp(-(D**2) / (2 * pooled.width**2))
    assert pooled.width == pytest.approx(np.median(D[np.triu_indices(len(D), 1)]))
    np.testing.assert_allclose(similar.statistic(), [unbiased(K, z) for z in Z.T], atol=1e-12)
    np.testing.assert_allclose(near.statistic(), [unbiased(-D, z) for z in Z.T], atol=1e-12)


def test_the_witness_leaves_the_point_itself_out(points, Z):
    pooled = PooledFeatures(points[:17], points[17:], seed=0)
    similar, _ = pair_sums(pooled.strips(Budget(10**9)), Z)
    K = np.exp(-(cdist(points, points) ** 2) / (2 * pooled.width**2))
    mean = lambda i, group: np.mean([K[i, j] for j in group if j != i])  # noqa: E731
    expected = [mean(i, range(17)) - mean(i, range(17, 29)) for i in range(29)]
    np.testing.assert_allclose(similar.witness(), expected, atol=1e-12)


@pytest.mark.parametrize("ties", [False, True])
def test_ks_is_scipys_over_components(points, Z, ties):
    scores = np.round(points) if ties else points
    expected = [max(stats.ks_2samp(s[z], s[~z]).statistic for s in scores.T) for z in Z.T]
    np.testing.assert_allclose(largest_ks(scores, Z), expected, atol=1e-12)


def test_auc_is_scikit_learns_in_every_fold(points, Z, folds):
    found = cross_validated_auc(points, Z, folds)
    white = points / points.std(0)
    for f, fold in enumerate(folds):
        others = np.setdiff1d(np.arange(len(points)), fold)
        for t in (0, 7):
            machine = Ridge(alpha=1.0).fit(white[others], Z[others, t].astype(float))
            expected = roc_auc_score(Z[fold, t], machine.predict(white[fold]))
            assert found[f, t] == pytest.approx(expected, abs=1e-12)


def test_p_values_count_the_observed_division():
    values = np.array([[5.0, 1, 2, 3, 4], [5.0, 5 + 1e-15, 0, 0, 0]])
    each, together = permutation_p_values(values)
    assert each.tolist() == [0.2, 0.4]  # what differs by rounding is a tie
    assert together == 0.2


def test_the_p_value_of_all_is_exact_for_one_test_said_twice():
    """Bonferroni's would be twice as large."""
    values = np.random.default_rng(1).normal(size=(1, 200))
    each, together = permutation_p_values(np.concatenate([values, 3 * values]))
    assert together == each[0] == each[1]


def test_the_p_value_of_all_refers_the_smallest_to_those_of_every_division():
    values = np.random.default_rng(2).normal(size=(3, 60))
    values[1, 0] += 2
    p = [[np.mean(row >= row[t]) for t in range(60)] for row in values]
    smallest = [min(row[t] for row in p) for t in range(60)]
    each, together = permutation_p_values(values)
    assert each.tolist() == [row[0] for row in p]
    assert together == np.mean([s <= smallest[0] for s in smallest]) > min(each)
