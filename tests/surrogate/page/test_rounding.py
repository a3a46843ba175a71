"""A kernel in one byte a value: never off by more than it says, and its scores still sum to the logits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from tangentkit.surrogate.page.explanation import KernelView
from tangentkit.surrogate.page.rounded import LEVELS, SINGLE, rounded
from tangentkit.surrogate.page.strongest import strongest

VALUES = st.floats(-1e30, 1e30, allow_nan=False, width=64)
MATRICES = arrays(np.float64, array_shapes(min_dims=2, max_dims=2, max_side=12), elements=VALUES)


@given(MATRICES)
def test_no_value_is_off_by_more_than_the_bound_of_its_row(matrix):
    small = rounded([matrix])
    assert (np.abs(small.values() - matrix) <= small.bound[:, None]).all()


@given(MATRICES)
def test_the_bound_is_half_a_step_and_the_rounding_of_single_precision(matrix):
    small = rounded([matrix])
    largest = np.abs(matrix).max(axis=1)
    half = np.ptp(matrix / 2, axis=1) / (2 * LEVELS) * 2
    # Middle, step and bound are single-precision numbers themselves; the least such number is 1.4e-45.
    assert (small.bound <= half * (1 + 1e-6) + 4 * SINGLE * largest + 1e-40).all()


def test_a_constant_row_is_kept_as_it_is():
    assert rounded([np.full((1, 4), 0.75)]).values().tolist() == [[0.75] * 4]


def test_rows_have_steps_of_their_own(rng):
    """One huge row costs the others nothing."""
    rows = np.stack([rng.random(50), 1e9 * rng.random(50)])
    apart = np.concatenate([rounded([rows[:1]]).values(), rounded([rows[1:]]).values()])
    assert np.array_equal(rounded([rows]).values(), apart)


def test_scores_of_the_rounded_kernel_sum_to_the_logits_within_the_stated_bound(rng):
    kappa, weights, offset = rng.normal(size=(7, 40)), rng.normal(size=(40, 3)), rng.normal(size=3)
    small, single = rounded([kappa]), weights.astype(np.float32).astype(np.float64)
    scores = small.values()[:, :, None] * single + offset / 40
    bound = small.bound[:, None] * np.abs(weights).sum(axis=0)
    exact = KernelView("any", kappa, weights, offset).logits
    assert np.allclose(exact, kappa @ weights + offset)
    assert (np.abs(scores.sum(axis=1) - exact) <= bound).all()
    # The bound says something: it is far below what the scores add up to in size.
    assert (bound < 0.02 * np.abs(scores).sum(axis=1)).all()


@pytest.mark.parametrize("k", [1, 4, 99])
def test_the_strongest_are_those_of_all_scores_sorted(rng, k):
    n, m, c, labels = 6, 15, 3, np.arange(15) % 4
    kappa, weights, offset = rng.normal(size=(n, m)), rng.normal(size=(m, c)), rng.normal(size=c)
    found = strongest(KernelView("any", kappa, weights, offset), labels, 5, k)
    scores = np.einsum("ij,jc->icj", kappa, weights) + offset[:, None] / m
    for i in range(n):
        for o in range(c):
            order = np.argsort(scores[i, o])
            assert found.indices[i, o, 0].tolist() == order[::-1][:k].tolist()
            assert found.indices[i, o, 1].tolist() == order[:k].tolist()
            assert np.allclose(found.scores[i, o, 1], scores[i, o][order[:k]], rtol=1e-6)
            means = [scores[i, o][labels == label].mean() for label in range(4)]
            assert np.allclose(found.means[i, o], [*means, 0.0], rtol=1e-5, atol=1e-7)


def test_class_means_weighted_by_class_sizes_give_the_logits(rng):
    labels = rng.integers(0, 3, 30)
    view = KernelView("any", rng.normal(size=(5, 30)), rng.normal(size=(30, 2)), rng.normal(size=2))
    means = strongest(view, labels, 3, 1).means
    assert np.allclose(means @ np.bincount(labels, minlength=3), view.logits, atol=1e-5)
