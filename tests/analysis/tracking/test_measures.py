"""Measures of a moment: what labels and outputs they take, and what they refuse."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tangentkit.analysis import Tracker
from tangentkit.analysis.tracking.measures import loss_of
from tangentkit.core.errors import InputError

X = torch.randn(30, 5, generator=torch.Generator().manual_seed(0))
CLASSES = (X[:, 0] > 0).long()


def network(outputs=1):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, outputs))


def first(model, y, what=("loss",), **options):
    tracker = Tracker(what, probe=(X, y), **options)
    tracker.step(model)
    return tracker.records[0]


@pytest.mark.parametrize(
    ("y", "got"),
    [
        (torch.arange(30) + 3, "3 to 32"),
        (2 * CLASSES - 1, "-1 to 1"),
        (CLASSES + 1, "1 to 2"),
        (torch.arange(30) % 3, "0 to 2"),
    ],
    ids=["numbers", "signs", "from 1", "three"],
)
def test_one_logit_takes_classes_0_and_1_only(y, got):
    message = f"one logit tells two classes apart: expected classes 0 and 1, got {got}"
    with pytest.raises(InputError, match=message):
        first(network(), y)
    with pytest.raises(InputError, match=message):
        first(network(), CLASSES, test=(X, y))


@pytest.mark.parametrize("y", [CLASSES, CLASSES > 0, CLASSES[:, None]], ids=["long", "bool", "column"])
def test_the_loss_of_one_logit_is_the_binary_cross_entropy(y):
    model = network()
    with torch.no_grad():
        expected = F.binary_cross_entropy_with_logits(model(X)[:, 0], CLASSES.float())
    assert first(model, y).values["loss"] == pytest.approx(float(expected), rel=1e-5)
    assert loss_of(model(X), y) is loss_of(model(X)[:, 0], y)


@pytest.mark.parametrize("names", [(-1, 1), (1, 2), (7, 10**9)])
def test_the_alignment_with_classes_does_not_depend_on_their_numbers(names):
    y = torch.tensor(names)[CLASSES]
    expected = first(network(), CLASSES, ["kta"]).values
    assert first(network(), y, ["kta"]).values == expected


@pytest.mark.parametrize("outputs", [1, 3])
def test_of_outputs_that_are_no_numbers_the_error_is_missing_as_the_loss_is(outputs):
    model = network(outputs)
    with torch.no_grad():
        model[2].weight[0, 0] = torch.nan
    with pytest.warns(UserWarning, match="not finite"):
        record = first(model, CLASSES, test=(X, CLASSES))
    names = ["loss", "error", "test loss", "test error"]
    assert record.values == dict.fromkeys(names)
    assert list(record.missing) == names


@pytest.mark.parametrize("number", ["fast", None, torch.ones(2)], ids=["word", "none", "two"])
def test_numbers_given_to_a_step_that_are_none_are_refused_by_name(number):
    tracker = Tracker(["loss"], probe=(X, CLASSES))
    with pytest.raises(InputError, match="'rate' is no number"):
        tracker.step(network(), rate=number)
    assert not tracker.records


def test_words_as_labels_are_refused_with_the_way_to_number_them():
    with pytest.raises(InputError, match=r"targets are no numbers.*np\.unique"):
        Tracker(["loss"], probe=(X, ["cat", "dog"] * 15))
