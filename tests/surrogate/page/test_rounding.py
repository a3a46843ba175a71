"""A kernel in one byte a value: never off by more than it says, and its scores still sum to the logits."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from tangentkit.surrogate.page.explanation import KernelView
from tangentkit.surrogate.page.rounded import LEVELS, SINGLE, rounded

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
