"""Neural collapse: zero on simplex frames, the authors' formulas on anything else, clear errors."""

import numpy as np
import pytest
import torch

import tangentkit as tk
from tangentkit.core import InputError, NumericalError


def simplex(classes, d, scale=3.0):
    frame = torch.eye(classes, dtype=torch.float64) - 1 / classes
    rotation = torch.linalg.qr(torch.randn(d, classes, dtype=torch.float64)).Q
    return scale * frame @ rotation.T + torch.randn(d, dtype=torch.float64)


def by_the_authors_code(h, y, W):
    """The published script in numpy: dense covariances, the pseudo-inverse of rank C - 1."""
    C = y.max() + 1
    means = np.stack([h[y == c].mean(0) for c in range(C)])
    M = (means - means.mean(0)).T
    within = sum((h[y == c] - means[c]).T @ (h[y == c] - means[c]) for c in range(C)) / len(h)
    U, S, Vh = np.linalg.svd(M @ M.T / C)
    nc1 = np.trace(within @ U[:, : C - 1] @ np.diag(1 / S[: C - 1]) @ Vh[: C - 1])
    norms = np.linalg.norm(M, axis=0)
    cosines = [
        abs(M[:, a] @ M[:, b] / norms[a] / norms[b] + 1 / (C - 1))
        for a in range(C)
        for b in range(C)
        if a != b
    ]
    nc3 = np.sum((W.T / np.linalg.norm(W) - M / np.linalg.norm(M)) ** 2)
    distance = np.linalg.norm(h[:, None] - means[None], axis=2)
    nc4 = np.mean(distance.argmin(1) != (h @ W.T).argmax(1))
    return nc1, norms.std() / norms.mean(), np.mean(cosines), nc3, nc4


@pytest.mark.parametrize(("classes", "d"), [(2, 5), (4, 30), (10, 10)])
def test_a_simplex_frame_is_fully_collapsed(classes, d):
    means = simplex(classes, d)
    y = torch.arange(classes).repeat(6)
    found = tk.neural_collapse(means[y], y, weight=5 * (means - means.mean(0)), bias=torch.zeros(classes))
    assert max(found.nc1, found.nc2, found.nc3) < 1e-12
    assert found.rank == classes - 1
    assert tk.neural_collapse(means[y], y, predictions=y).nc4 == 0


@pytest.mark.parametrize("d", [3, 8, 200])
def test_numbers_are_those_of_the_authors_code(d):
    h, y, W = torch.randn(90, d, dtype=torch.float64), torch.arange(90) % 4, torch.randn(4, d).double()
    h += 2 * torch.randn(4, d, dtype=torch.float64)[y]
    found = tk.neural_collapse(h, y, W)
    expected = by_the_authors_code(h.numpy(), y.numpy(), W.numpy())
    got = found.nc1, found.nc2_norms, found.nc2_angles, found.nc3, found.nc4
    np.testing.assert_allclose(got, expected, rtol=1e-9)
    assert found.nc2 == max(found.nc2_norms, found.nc2_angles)


def test_without_a_network_nc3_and_nc4_are_missing_and_shown_so():
    found = tk.neural_collapse(torch.randn(30, 5), torch.arange(30) % 3)
    assert found.nc3 is None
    assert found.nc4 is None
    assert [row[2] for row in found.table().texts()][-2:] == ["–", "–"]
    assert found.to_dict()["nc4"] is None


def test_words_are_labels_and_unknown_predictions_disagree():
    h, y = torch.randn(20, 3).bfloat16(), np.array(["cat", "dog"] * 10)
    h[::2] += 50  # the nearest center is the label's
    said = np.where(np.arange(20) < 5, "bird", "cat")
    dogs_called_cats = sum(i % 2 for i in range(5, 20))
    assert tk.neural_collapse(h, y, predictions=said).nc4 == (5 + dogs_called_cats) / 20


def test_the_bias_moves_the_networks_classes():
    h, y, W = torch.randn(60, 4), torch.arange(60) % 2, torch.randn(2, 4)
    always_one = tk.neural_collapse(h, y, W, bias=torch.tensor([0.0, 1e6]))
    nearest_zero = tk.neural_collapse(h, y, predictions=torch.ones(60, dtype=torch.long)).nc4
    assert always_one.nc4 == nearest_zero


@pytest.mark.parametrize(
    ("error", "match", "change"),
    [
        (InputError, "one class", {"labels": torch.zeros(12)}),
        (InputError, "labels name no classes", {"labels": torch.arange(12) % 3 + 0.5}),
        (InputError, "expected 12 labels", {"labels": torch.arange(10) % 2}),
        (InputError, "too few samples", {"labels": torch.arange(12)}),
        (InputError, r"expected \(3, 4\)", {"weight": torch.ones(5, 4)}),
        (InputError, "bad bias", {"weight": torch.randn(3, 4), "bias": torch.ones(2)}),
        (InputError, "bad predictions", {"predictions": torch.ones(3)}),
        (InputError, r"h.flatten\(1\)", {"features": torch.ones(12, 2, 2)}),
        (NumericalError, "zero", {"weight": torch.zeros(3, 4)}),
        (NumericalError, "same center for all", {"features": torch.full((12, 4), 0.1)}),
        (NumericalError, r"samples \[0, 1", {"features": torch.full((12, 4), torch.nan)}),
        (NumericalError, "for class 1", {"features": (torch.arange(12) % 3).float()[:, None]}),
    ],
)
def test_what_has_no_answer_is_refused(error, match, change):
    given = {"features": torch.randn(12, 4), "labels": torch.arange(12) % 3} | change
    with pytest.raises(error, match=match):
        tk.neural_collapse(**given)
