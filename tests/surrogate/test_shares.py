"""A share has the exact binomial interval, which holds the truth at least as often as it says."""

import math

import numpy as np
import pytest
from scipy import stats

from tangentkit.core import InputError
from tangentkit.surrogate import Share
from tangentkit.surrogate.shares import precision_and_recall


@pytest.mark.parametrize(("hits", "of"), [(0, 7), (3, 7), (7, 7), (499, 500)])
def test_the_interval_is_that_of_clopper_and_pearson(hits, of):
    low, high = Share(hits, of).interval
    assert low == pytest.approx(stats.beta.ppf(0.025, hits, of - hits + 1) if hits else 0)
    assert high == pytest.approx(stats.beta.ppf(0.975, hits + 1, of - hits) if hits < of else 1)


@pytest.mark.parametrize("truth", [0.02, 0.5, 0.9])
def test_intervals_hold_the_truth_at_least_as_often_as_they_say(truth):
    n = 40
    chance = stats.binom.pmf(np.arange(n + 1), n, truth)
    held = [low <= truth <= high for low, high in (Share(k, n).interval for k in range(n + 1))]
    assert chance @ np.array(held) >= 0.95


def test_a_share_of_nothing_is_not_a_number_and_may_be_anything():
    assert math.isnan(Share(0, 0).value)
    assert Share(0, 0).interval == (0, 1)
    assert Share(0, 0).to_dict()["value"] is None
    for hits, of in ((1, 0), (-1, 3), (4, 3)):
        with pytest.raises(InputError, match="bad share"):
            Share(hits, of)


def test_precision_and_recall_count_the_same_hits():
    flagged, true = np.array([1, 1, 1, 0, 0], bool), np.array([1, 0, 0, 1, 0], bool)
    assert precision_and_recall(flagged, true) == (Share(1, 3), Share(1, 2))
