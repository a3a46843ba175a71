"""Scores of one class each, whatever the attribution's outputs are."""

import numpy as np
import pytest
import torch
from torch import nn

import tangentkit as tk
from tangentkit.core import InputError
from tangentkit.core.errors import NumericalError
from tangentkit.surrogate import influence, representer_points, trak
from tangentkit.surrogate.evaluation.scores import scores_for, self_scores_of


def surrogate_of(classes):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, classes)).double()
    x, y = torch.randn(30, 4).double(), torch.arange(30) % classes
    return tk.Surrogate(model, tk.ConjugateKernel(model)).fit(x, y), x, y


@pytest.fixture(scope="module", params=[2, 3])
def fitted(request):
    return surrogate_of(request.param)


def test_scores_of_classes_are_those_of_the_outputs(fitted):
    surrogate, x, y = fitted
    a = surrogate.attribute(x[:5])
    classes = y[:5].flip(0)
    np.testing.assert_allclose(scores_for(a, classes), a.scores[torch.arange(5), classes], rtol=1e-12)


def test_what_speaks_for_one_of_two_classes_speaks_against_the_other():
    surrogate, x, _ = surrogate_of(2)
    a = representer_points(surrogate, x[:4])
    ones, zeros = torch.ones(4, dtype=torch.long), torch.zeros(4, dtype=torch.long)
    np.testing.assert_allclose(scores_for(a, ones), a.scores[:, 1])
    np.testing.assert_allclose(scores_for(a, zeros), -a.scores[:, 1])


def test_scores_of_a_margin_are_those_of_the_samples_own_class(fitted):
    surrogate, x, _ = fitted
    a = trak(surrogate, x[:4])
    for classes in (torch.zeros(4, dtype=torch.long), torch.ones(4, dtype=torch.long)):
        np.testing.assert_allclose(scores_for(a, classes), a.scores[:, 0])


@pytest.mark.parametrize("method", [influence, trak, representer_points])
def test_self_scores_are_the_diagonal(fitted, method):
    surrogate, x, y = fitted
    a = method(surrogate, x)
    np.testing.assert_allclose(self_scores_of(a, y), np.diagonal(scores_for(a, y)), rtol=1e-9, atol=1e-12)


def test_self_scores_of_a_surrogate_are_its_self_attribution(fitted):
    surrogate, x, y = fitted
    np.testing.assert_allclose(
        self_scores_of(surrogate.attribute(x), y), surrogate.self_attribution(), rtol=1e-9, atol=1e-12
    )


def test_bad_scores_are_named(fitted):
    surrogate, x, y = fitted
    with pytest.raises(InputError, match=r"\(4, m\)"):
        scores_for(surrogate.attribute(x[:5]), y[:4])
    with pytest.raises(InputError, match=r"\(4, m\)"):
        scores_for(torch.zeros(4), y[:4])
    with pytest.raises(NumericalError, match="finite"):
        scores_for(torch.full((4, 3), torch.inf), y[:4])
    with pytest.raises(InputError, match=r"\(30, 30\)"):
        self_scores_of(surrogate.attribute(x[:5]), y)
