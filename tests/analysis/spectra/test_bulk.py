"""Bulk and spikes: the laws of Marchenko-Pastur, Tracy-Widom and of a spike of known overlap."""

import numpy as np
import pytest
import torch

import tangentkit as tk
from tangentkit.analysis import bulk_edge, bulk_variance, initial_bulk, marchenko_pastur, spikes
from tangentkit.analysis.spectra.bulk import TRACY_WIDOM, _median
from tangentkit.core.errors import InputError, NumericalError
from tangentkit.linalg import spectrum
from tangentkit.linalg.spectra.tails import gaussian_null

SHAPES = [(400, 100), (100, 400), (150, 150)]


@pytest.mark.parametrize(("n", "d"), SHAPES)
def test_eigenvalues_of_noise_lie_in_the_bulk(n, d):
    X = 3 * torch.randn(n, d, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    values = torch.linalg.svdvals(X).square() / n
    low, high = bulk_edge(n, d, variance=9.0)
    scale = marchenko_pastur(n, d, 9.0).scale
    assert abs(float(values[0]) - high) < 5 * scale
    assert float(values[-1]) > low - 5 * scale
    assert float(values[values.shape[0] // 2]) == pytest.approx(
        9 * _median(min(n, d) / max(n, d)) * max(n, d) / n, rel=0.05
    )
    assert bulk_variance(values.numpy(), n, d) == pytest.approx(9, rel=0.05)


def test_the_tracy_widom_law_has_its_known_moments_and_quantiles():
    assert TRACY_WIDOM.mean() == pytest.approx(-1.2065336, abs=1e-3)
    assert TRACY_WIDOM.var() == pytest.approx(1.6077810, abs=1e-2)
    np.testing.assert_allclose(TRACY_WIDOM.isf([0.1, 0.05, 0.01]), [0.4501, 0.9793, 2.0234], atol=0.02)


@pytest.mark.parametrize(("n", "d"), SHAPES)
def test_noise_has_spikes_at_the_nominal_rate(n, d):
    draws = gaussian_null(n, d, 200, 5) / n
    found = {"known": 0, "estimated": 0}
    for values in draws:
        found["known"] += marchenko_pastur(n, d).count(values) > 0
        found["estimated"] += marchenko_pastur(n, d, bulk_variance(values, n, d)).count(values) > 0
    # Five in a hundred, within three standard errors.
    assert 1 <= found["known"] <= 20
    assert 1 <= found["estimated"] <= 20


@pytest.mark.parametrize(("n", "d"), [*SHAPES, (30, 30), (1000, 40)])
def test_noise_beyond_the_edge_of_another_draw_has_spikes_at_the_nominal_rate(n, d):
    draws = gaussian_null(n, d, 400, 6) / n
    thresholds = np.array([initial_bulk(values).threshold() for values in draws])
    rate = np.mean([draws[:, 0] > np.roll(thresholds, shift) for shift in range(1, 200)])
    # All pairs of draws: what is uncertain is the mean over 400 edges, by less than one in a hundred.
    assert 0.03 < rate < 0.08


def test_p_values_of_an_edge_that_was_read_are_uniform():
    draws = gaussian_null(200, 80, 400, 7)
    p = np.array(
        [
            initial_bulk(edge).p_value(other[:1])[0]
            for edge, other in zip(draws[:200], draws[200:], strict=True)
        ]
    )
    for level in (0.1, 0.5, 0.9):
        assert abs((p < level).mean() - level) < 4 * (level * (1 - level) / 200) ** 0.5


@pytest.mark.parametrize("strength", [2.0, 5.0])
def test_a_planted_spike_is_found_where_and_as_aligned_as_theory_says(strength):
    n, d = 1200, 300
    ratio = d / n
    u = torch.zeros(d, dtype=torch.float64)
    u[0] = 1
    X = torch.randn(n, d, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    X[:, 0] *= (1 + strength) ** 0.5
    found = spikes(X.T @ X / n, marchenko_pastur(n, d))
    assert len(found) == 1
    place = (1 + strength) * (1 + ratio / strength)
    overlap = (1 - ratio / strength**2) / (1 + ratio / strength)
    assert found.values[0] == pytest.approx(place, rel=4 * (2 / n) ** 0.5)
    assert float((found.vectors[:, 0] @ u) ** 2) == pytest.approx(overlap, abs=0.03)
    assert found.distances[0] > 5
    assert found.p_values[0] < 1e-6
    assert found.table().rows[0][1] == found.values[0]


def test_a_spike_below_the_threshold_of_detection_is_not_seen():
    n, d = 400, 400  # a spike must exceed √(d/n) = 1
    X = torch.randn(n, d, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    X[:, 0] *= 1.5**0.5
    assert len(spikes(X.T @ X / n, marchenko_pastur(n, d))) == 0


def test_spikes_do_not_move_the_variance_of_the_bulk():
    n, d = 500, 100
    X = torch.randn(n, d, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    X[:, :5] *= 20
    values = (torch.linalg.svdvals(X).square() / n).numpy()
    assert bulk_variance(values, n, d) == pytest.approx(1, rel=0.05)
    assert float(X.var()) > 15
    found = spikes(X.T @ X / n, marchenko_pastur(n, d, bulk_variance(values, n, d)))
    assert len(found) == 5


def test_the_edge_of_an_initial_spectrum_is_near_that_of_theory():
    n, d = 1000, 300
    bulks = [initial_bulk(values / n) for values in gaussian_null(n, d, 30, 8)]
    theory = marchenko_pastur(n, d)
    assert np.mean([b.scale for b in bulks]) == pytest.approx(theory.scale, rel=0.1)
    assert np.mean([b.center for b in bulks]) == pytest.approx(theory.center, abs=theory.scale)


def test_spikes_beyond_an_initial_spectrum_with_one_of_its_own():
    X = torch.randn(60, 300, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    start = X @ X.T / 300 + torch.ones(60, 60)
    v = torch.randn(60, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    v = v / v.norm()
    bulk = initial_bulk(spectrum(start), skip=1)
    assert len(spikes(start, bulk)) == 1
    end = spikes(spectrum(start + 10 * torch.outer(v, v), 5, of="jacobian"), bulk)
    assert len(end) == 2
    assert float(abs(end.vectors[:, 1] @ v)) > 0.9


def test_bad_input_is_refused():
    for bad in ((0, 5), (5, 0), (5, 5, -1.0), (5, 5, float("nan"))):
        with pytest.raises(InputError, match="no bulk"):
            tk.bulk_edge(*bad)
    with pytest.raises(InputError, match="top=4"):
        spikes(spectrum(torch.eye(100), 2), marchenko_pastur(100, 10, 0.01))
    with pytest.raises(InputError, match="too few values"):
        initial_bulk([1.0, 2.0, 3.0])
    with pytest.raises(NumericalError, match="no edge"):
        initial_bulk(torch.ones(20))
    with pytest.raises(NumericalError, match="not"):
        initial_bulk([1.0, float("nan"), 2.0, 3.0])
    with pytest.raises(NumericalError, match="median"):
        bulk_variance(np.array([1.0, 0.0, 0.0]), 5, 3)


def test_the_dashed_line_of_the_figure_is_the_threshold_that_spikes_are_counted_by():
    bulk = marchenko_pastur(300, 100)
    between = (bulk.high + bulk.threshold()) / 2
    found = spikes(torch.diag(torch.tensor([9.0, between, 1.0, 0.5], dtype=torch.float64)), bulk)
    figure = found.figure()
    assert (len(found), figure.level) == (1, bulk.threshold())
    assert sum(found.spectrum > figure.level) == len(found)
    assert "1 of 4 values stand above the dashed line" in figure.caption


@pytest.mark.parametrize("level", [0, 1, 2, -0.1, float("nan")])
def test_levels_that_are_no_probabilities_are_refused(level):
    with pytest.raises(InputError, match="bad level: expected a probability"):
        spikes(torch.eye(4), marchenko_pastur(40, 4), level=level)
