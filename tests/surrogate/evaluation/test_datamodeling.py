"""The linear datamodeling score: 1 for a planted linear model, 0 for random scores, and an interval that covers."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tangentkit.core import InputError
from tangentkit.core.seeds import Key
from tangentkit.surrogate.evaluation import (
    Retrained,
    linear_datamodeling_score,
    noise_ceiling,
    random_absences,
    random_subsets,
)
from tangentkit.surrogate.evaluation.datamodeling import weighted_spearman


def planted(scores, masks, noise=0.0, key=None):
    """Networks of two classes whose margin of class 1 is the sum of the scores of their subset."""
    margins = masks.double() @ scores.double().T
    if noise:
        margins = margins + noise * torch.from_numpy((key or Key(0)).numpy().normal(size=margins.shape))
    return Retrained(masks, torch.stack([torch.zeros_like(margins), margins], 2))


ONES = torch.ones(6, dtype=torch.long)


def test_a_planted_linear_model_scores_one_and_its_opposite_minus_one():
    scores = torch.randn(6, 40)
    networks = planted(scores, random_subsets(40, 30))
    found = linear_datamodeling_score(scores, networks, ONES)
    assert found.value == pytest.approx(1)
    assert found.interval.low == pytest.approx(1)
    assert linear_datamodeling_score(-scores, networks, ONES).value == pytest.approx(-1)
    # Of class 0 the margin is the negative.
    assert linear_datamodeling_score(scores, networks, ONES - 1).value == pytest.approx(-1)


def test_each_value_is_scipys_spearman_with_the_margin_of_the_true_class():
    scores, masks = torch.randn(6, 40), random_subsets(40, 25)
    networks = Retrained(masks, torch.randn(25, 6, 5))
    labels = torch.tensor([0, 1, 2, 3, 4, 0])
    found = linear_datamodeling_score(scores, networks, labels)
    for i, label in enumerate(labels):
        p = networks.logits[:, i].double().softmax(1)[:, label]
        sums = torch.stack([scores[i, mask].double().sum() for mask in masks])
        assert found.each[i] == pytest.approx(stats.spearmanr(sums, (p / (1 - p)).log())[0])
    assert found.value == pytest.approx(found.each.mean())


def test_margins_are_finite_where_probabilities_round_to_one():
    networks = Retrained(random_subsets(4, 3), torch.tensor([[[200.0, 0.0]]] * 3))
    assert networks.margins(torch.tensor([0])).tolist() == [[200.0]] * 3


@settings(max_examples=30, deadline=None)
@given(s=st.integers(3, 12), seed=st.integers(0, 1000))
def test_weights_count_points_several_times_as_scipy_would_see_them(s, seed):
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 5, s).astype(float), rng.normal(size=s)  # a has ties
    weights = rng.multinomial(s, np.full(s, 1 / s), size=4)
    for row, found in zip(weights, weighted_spearman(a, b, weights), strict=True):
        again, other = np.repeat(a, row), np.repeat(b, row)
        constant = np.ptp(again) == 0 or np.ptp(other) == 0
        assert found == pytest.approx(0 if constant else stats.spearmanr(again, other)[0], abs=1e-12)


@pytest.mark.parametrize(("rho", "common"), [(0.0, 0.7), (0.3, 0.7), (0.9, 0.0)])
def test_the_interval_covers_the_true_correlation_at_the_nominal_rate(rho, common):
    """Sums and margins are normal with correlation rho; test samples share a part of what networks differ in."""
    true = 6 / np.pi * np.arcsin(rho / 2)
    repeats, s, n, hits = 200, 32, 6, 0

    def shared(rng):
        own, of_all = rng.normal(size=(s, n)), rng.normal(size=(s, 1))
        return common * of_all + np.sqrt(1 - common**2) * own

    masks = torch.eye(s, dtype=torch.bool)  # so that sums of scores are the scores themselves
    for repeat in range(repeats):
        rng = Key(repeat).numpy()
        sums = shared(rng)
        margins = torch.from_numpy(rho * sums + np.sqrt(1 - rho**2) * shared(rng))
        networks = Retrained(masks, torch.stack([torch.zeros_like(margins), margins], 2))
        found = linear_datamodeling_score(torch.from_numpy(sums.T), networks, ONES, bootstrap=200)
        hits += found.interval.low <= true <= found.interval.high
    # Of 200 repeats at 95 %, the share is between these bounds but for one case in a thousand. Near a correlation of
    # 1 draws, which have ties, vary more than samples do: the interval is too wide there, never too narrow.
    assert 0.90 <= hits / repeats <= (1 if rho > 0.5 else 0.995)


def test_random_scores_are_zero_within_the_interval_at_the_nominal_rate():
    # Many more training samples than subsets: two random vectors of length m have a cosine of 1/√m, which is no noise
    # of the subsets.
    scores, masks = torch.randn(6, 2000), random_subsets(2000, 40)
    networks = planted(scores, masks, noise=10.0)
    repeats = 200
    hits = 0
    for repeat in range(repeats):
        random = Key(repeat).numpy().normal(size=(6, 2000))
        found = linear_datamodeling_score(random, networks, ONES, bootstrap=200).interval
        hits += found.low <= 0 <= found.high
    assert 0.90 <= hits / repeats <= 0.995


def test_methods_on_the_same_networks_are_compared_in_pairs():
    scores, masks = torch.randn(6, 40), random_subsets(40, 40)
    networks = planted(scores, masks, noise=2.0)
    near = scores + 0.1 * torch.randn(6, 40)
    a, b = (linear_datamodeling_score(one, networks, ONES) for one in (scores, near))
    gap = a.difference(b)
    assert gap.mean == pytest.approx(a.value - b.value)
    apart = (a.interval.high - a.interval.low) + (b.interval.high - b.interval.low)
    assert gap.high - gap.low < apart / 2
    assert a.difference(a).low == a.difference(a).high == 0
    with pytest.raises(InputError, match="different networks"):
        a.difference(linear_datamodeling_score(scores, planted(scores, masks[:20]), ONES))


def test_scores_that_know_every_mean_reach_the_root_of_what_two_trainings_share():
    n, scores, masks = 60, torch.randn(60, 400), random_subsets(400, 300)
    first, second = (planted(scores, masks, noise=10.0, key=Key(i)) for i in range(2))
    labels = torch.ones(n, dtype=torch.long)
    shared = noise_ceiling(first, second, labels, bootstrap=50)
    known = linear_datamodeling_score(scores, first, labels, bootstrap=50)
    # The signal has variance 400/4, the noise 100.
    assert shared.value == pytest.approx(6 / np.pi * np.arcsin(0.5 / 2), abs=0.02)
    assert known.value == pytest.approx(np.sqrt(shared.value), abs=0.02)
    with pytest.raises(InputError, match="same"):
        noise_ceiling(first, first, labels)
    with pytest.raises(InputError, match="different subsets"):
        noise_ceiling(first, planted(scores, random_subsets(400, 300, seed=1)), labels)


def test_leaving_k_out_ranks_as_the_negative_sum_of_what_is_left_out():
    scores, masks = torch.randn(6, 40), random_absences(40, 30, k=3)
    networks = planted(scores, masks, noise=1.0)
    found = linear_datamodeling_score(scores, networks, ONES)
    missing = -(~masks).double() @ scores.double().T
    margins = networks.margins(ONES)
    each = [stats.spearmanr(missing[:, i], margins[:, i])[0] for i in range(6)]
    assert found.each == pytest.approx(np.array(each))


def test_scores_without_a_difference_predict_nothing_and_are_counted():
    scores = torch.randn(6, 40)
    networks = planted(scores, random_subsets(40, 30))
    scores[0] = 0
    found = linear_datamodeling_score(scores, networks, ONES)
    assert found.undefined == 1
    assert found.each[0] == 0
    assert "count as 0" in found.note


def test_bad_questions_are_named():
    networks = planted(torch.randn(6, 40), random_subsets(40, 30))
    with pytest.raises(InputError, match="scores of 40 training samples"):
        linear_datamodeling_score(torch.randn(6, 39), networks, ONES)
    with pytest.raises(InputError, match=r"\(6, m\)"):
        linear_datamodeling_score(torch.randn(5, 40), networks, ONES)
    with pytest.raises(InputError, match="3 subsets"):
        linear_datamodeling_score(
            torch.randn(6, 40), planted(torch.randn(6, 40), random_subsets(40, 2)), ONES
        )
    with pytest.raises(InputError, match="6 classes"):
        networks.margins(ONES[:5])


def test_what_is_shown_are_the_numbers():
    scores = torch.randn(6, 40)
    found = linear_datamodeling_score(scores, planted(scores, random_subsets(40, 30), noise=3.0), ONES)
    plain = found.to_dict()
    assert plain["value"] == found.value == found.interval.mean
    assert plain["low"] < plain["value"] < plain["high"]
    assert f"{found.value:.3f}" in str(found.table())
    assert found.plot().get_xlabel() == "LDS of a sample"
    assert "LDS" in repr(found)
    assert found.points_interval.low <= found.value <= found.points_interval.high


def test_subsets_have_their_size_and_do_not_depend_on_how_many_there_are():
    few, many = random_subsets(101, 3, share=0.3, seed=4), random_subsets(101, 6, share=0.3, seed=4)
    assert torch.equal(few, many[:3])
    assert (many.sum(1) == 30).all()
    assert len({tuple(row.tolist()) for row in many}) == 6
    assert not torch.equal(few, random_subsets(101, 3, share=0.3, seed=5))
    # Every sample is as likely as any other.
    shares = random_subsets(20, 2000).double().mean(0)
    assert ((shares - 0.5).abs() < 5 * 0.5 / 2000**0.5).all()
    for share in (0.0, 1.0, 0.001):
        with pytest.raises(InputError, match="some and not all"):
            random_subsets(20, 3, share=share)
    with pytest.raises(InputError, match="1 to 19"):
        random_absences(20, 3, k=20)


def test_networks_that_all_say_the_same_are_refused_and_samples_on_which_they_do_are_counted():
    scores, masks = torch.randn(6, 40), random_subsets(40, 10)
    networks = planted(scores, masks)
    same = Retrained(masks, networks.logits[:1].expand(10, -1, -1).clone())
    with pytest.raises(InputError, match="say the same"):
        linear_datamodeling_score(scores, same, ONES)
    some = networks.logits.clone()
    some[:, 2] = some[:1, 2]
    assert linear_datamodeling_score(scores, Retrained(masks, some), ONES).undefined == 1
