"""Brittleness on networks of which one knows what they will say."""

import pytest
import torch

from tangentkit.core import InputError
from tangentkit.surrogate.evaluation import brittleness

M, N = 12, 3
X = torch.eye(N)
SUPPORT = torch.zeros(N, M)
for i in range(N):
    SUPPORT[i, 4 * i : 4 * i + 4] = torch.tensor([4.0, 3.0, 2.0, 1.0])


class Counting:
    """Predicts class 1 for sample i while at least two of its four training samples are there; class 0 otherwise."""

    def __init__(self):
        self.calls = []

    def __call__(self, numbers, seed):
        self.calls.append((frozenset(numbers.tolist()), seed))
        present = torch.tensor([sum(4 * i <= j < 4 * i + 4 for j in numbers.tolist()) for i in range(N)])
        margin = torch.where(present >= 2, 1.0, -1.0)
        return torch.stack([-margin, margin], 1)


PREDICTED = torch.ones(N, dtype=torch.long)


def test_predictions_change_when_what_they_rest_on_is_gone():
    found = brittleness(SUPPORT, PREDICTED, Counting(), X, numbers=(1, 2, 3))
    assert found.changed.tolist() == [[False, False, True]] * 3
    assert found.value == 1
    assert found.interval.low < 1 == found.interval.high
    useless = brittleness(-SUPPORT, PREDICTED, Counting(), X, numbers=(1, 2, 3))
    assert useless.value == 0


def test_a_misclassified_sample_has_not_changed_before_anything_is_left_out():
    """Labels say 0 everywhere; the network predicts 1, and still does so when it is trained on everything."""
    found = brittleness(SUPPORT, PREDICTED, Counting(), X, numbers=(0, 3))
    labels = torch.zeros(N, dtype=torch.long)
    assert (labels != PREDICTED).all()
    assert found.changed[:, 0].tolist() == [False] * 3
    assert found.changed[:, 1].tolist() == [True] * 3


def test_exactly_the_strongest_are_left_out_and_seeds_do_not_depend_on_the_method():
    one, other = Counting(), Counting()
    brittleness(SUPPORT, PREDICTED, one, X, numbers=(2,))
    brittleness(-SUPPORT, PREDICTED, other, X, numbers=(2,))
    assert [set(range(M)) - seen for seen, _ in one.calls] == [{0, 1}, {4, 5}, {8, 9}]
    assert [seed for _, seed in one.calls] == [seed for _, seed in other.calls]
    assert len({seed for _, seed in one.calls}) == 3


def test_numbers_are_checked_and_shown():
    for wrong in ((), (M,), (-1,), (1.5,)):
        with pytest.raises(InputError, match="0 to 11"):
            brittleness(SUPPORT, PREDICTED, Counting(), X, numbers=wrong)
    found = brittleness(SUPPORT, PREDICTED, Counting(), X, numbers=(3, 1))
    assert found.numbers == (1, 3)
    assert found.to_dict()["shares"] == [0, 1]
    assert found.to_dict()["chance"] is None
    assert "nan" not in repr(found)
    assert [row[0] for row in found.table().rows] == [1, 3]
    assert found.plot().get_xlabel() == "training samples left out"
