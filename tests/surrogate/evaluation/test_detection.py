"""AUROC, its identity with the detection curve and its interval; average precision of marked groups."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from tangentkit.core import InputError
from tangentkit.core.seeds import Key
from tangentkit.surrogate.evaluation import group_detection, mislabel_auroc
from tangentkit.surrogate.evaluation.detection import chance_of_precision


@settings(max_examples=40, deadline=None)
@given(m=st.integers(4, 40), seed=st.integers(0, 1000), ties=st.booleans())
def test_auroc_is_sklearns_and_follows_from_the_area_under_the_detection_curve(m, seed, ties):
    rng = np.random.default_rng(seed)
    wrong = rng.permutation(m) < rng.integers(1, m)
    scores = rng.integers(0, 4, m).astype(float) if ties else rng.normal(size=m)
    found = mislabel_auroc(scores, wrong)
    assert found.value == pytest.approx(roc_auc_score(wrong, scores))
    p = wrong.mean()
    assert found.value == pytest.approx((found.area - p / 2) / (1 - p))
    assert 0 <= found.interval.low <= found.value <= found.interval.high <= 1


def test_the_detection_curve_is_what_a_person_finds_who_looks_at_the_largest_first():
    found = mislabel_auroc([0.9, 0.1, 0.8, 0.2], [True, False, False, True])
    shares, finds = found.curve
    assert shares.tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert finds.tolist() == [0, 0.5, 0.5, 1, 1]


@pytest.mark.parametrize(
    ("shift", "spread", "wrong"), [(0.0, 1.0, 40), (1.0, 1.0, 40), (1.0, 3.0, 40), (4.5, 1.0, 20)]
)
def test_the_interval_covers_the_true_auroc_at_the_nominal_rate(shift, spread, wrong):
    from scipy.stats import norm

    true, repeats, hits = norm.cdf(shift / np.sqrt(1 + spread**2)), 400, 0
    mask = np.arange(160) < wrong
    for repeat in range(repeats):
        rng = Key(repeat).numpy()
        scores = rng.normal(size=160) * np.where(mask, spread, 1) + shift * mask
        found = mislabel_auroc(scores, mask).interval
        hits += found.low <= true <= found.high
    # Within four standard errors of 95 %; at the very top, where AUROC = 1 in some repeats, it is wider.
    assert hits / repeats >= 0.95 - 4 * np.sqrt(0.05 * 0.95 / repeats)
    assert shift > 4 or hits / repeats <= 0.95 + 4 * np.sqrt(0.05 * 0.95 / repeats)


def test_perfect_detection_still_has_an_interval_that_narrows_with_samples():
    few, many = (mislabel_auroc(np.arange(2 * n), np.arange(2 * n) >= n) for n in (5, 50))
    assert few.value == many.value == 1
    assert few.interval.low < many.interval.low < 1 == many.interval.high
    opposite = mislabel_auroc(-np.arange(10), np.arange(10) >= 5)
    assert opposite.value == 0
    assert opposite.interval.high == pytest.approx(1 - few.interval.low)


def test_wrong_labels_that_cannot_be_told_apart_are_named():
    with pytest.raises(InputError, match="some wrong labels"):
        mislabel_auroc([1.0, 2.0], [False, False])
    for scores, wrong in (([1.0], [True, False]), ([1.0, np.nan], [True, False]), ([1.0, 2.0], [1, 0])):
        with pytest.raises(InputError, match="do not match"):
            mislabel_auroc(scores, wrong)


def test_average_precision_of_a_group_is_the_mean_over_samples():
    scores, marked = torch.randn(5, 30), torch.arange(30) < 6
    found = group_detection(scores, marked, torch.zeros(5, dtype=torch.long))
    each = [average_precision_score(marked, row) for row in scores]
    assert found.each.tolist() == pytest.approx(each)
    assert found.value == pytest.approx(np.mean(each))
    perfect = group_detection(marked.double().expand(5, 30), marked, torch.zeros(5, dtype=torch.long))
    assert perfect.value == 1


@pytest.mark.parametrize(("k", "m"), [(1, 5), (2, 6), (3, 7), (6, 6)])
def test_chance_is_the_mean_over_all_orders(k, m):
    """Every choice of the marked places, for scores in a fixed order."""
    found = [
        average_precision_score(np.isin(np.arange(m), places), -np.arange(m))
        for places in itertools.combinations(range(m), k)
    ]
    assert chance_of_precision(k, m) == pytest.approx(np.mean(found))


def test_bad_marks_are_named():
    for marked in (torch.zeros(30, dtype=torch.bool), torch.ones(30, dtype=torch.bool), torch.zeros(30)):
        with pytest.raises(InputError, match="30 booleans"):
            group_detection(torch.randn(5, 30), marked, torch.zeros(5, dtype=torch.long))


def test_what_is_shown_are_the_numbers():
    found = mislabel_auroc(np.arange(10.0), np.arange(10) % 2 == 1)
    assert found.to_dict()["area"] == found.area
    assert found.plot().get_ylabel() == "share of wrong labels found"
    assert "5 wrong labels among 10" in str(found.table())
