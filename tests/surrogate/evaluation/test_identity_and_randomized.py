"""Class and sample identity against the slow version; the randomized-model check draws every layer anew."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from tangentkit.analysis.training_ways import redrawn
from tangentkit.core import InputError
from tangentkit.core.seeds import Key
from tangentkit.surrogate.evaluation import randomized_model_check, same_class, same_sample


def test_the_strongest_training_sample_has_the_predicted_class():
    scores, labels, predicted = torch.randn(40, 30), torch.arange(30) % 3, torch.arange(40) % 3
    found = same_class(scores, labels, predicted)
    hits = (labels[scores.argmax(1)] == predicted).double()
    assert found.each.tolist() == hits.tolist()
    assert found.value == pytest.approx(float(hits.mean()))
    assert found.chance == pytest.approx(1 / 3)
    assert found.interval.low < found.value < found.interval.high
    with pytest.raises(InputError, match="30 labels"):
        same_class(scores, labels[:29], predicted)


def test_a_copy_finds_its_original():
    x = torch.randn(30, 5)
    x = x / x.norm(dim=1, keepdim=True)
    chosen = torch.tensor([3, 17, 29])
    found = same_sample(x[chosen] @ x.T, chosen, torch.zeros(3, dtype=torch.long))
    assert found.value == 1
    assert found.chance == pytest.approx(1 / 30)
    with pytest.raises(InputError, match="0 to 29"):
        same_sample(x[chosen] @ x.T, [3, 17, 30], torch.zeros(3, dtype=torch.long))


def test_equally_strong_ones_share_the_hit():
    """Of two equal training samples, an original and its double, a copy may point to either."""
    scores = torch.tensor([[1.0, 1.0, 0.0]])
    assert same_sample(scores, [0], torch.zeros(1, dtype=torch.long)).value == 0.5
    assert same_class(0 * scores, torch.tensor([0, 1, 1]), torch.tensor([1])).value == pytest.approx(2 / 3)


def test_random_scores_are_at_chance_within_the_interval():
    labels, hits = torch.arange(300) % 4, 0
    for repeat in range(200):
        random = Key(repeat).numpy().normal(size=(60, 300))
        found = same_class(random, labels, torch.arange(60) % 4)
        hits += found.interval.low <= found.chance <= found.interval.high
    assert 0.90 <= hits / 200 <= 0.995


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 2))


def test_every_layer_is_drawn_from_its_own_stream():
    model = network()
    twin = redrawn(model, Key(0))
    assert not torch.equal(twin[0].weight, twin[2].weight)
    assert not torch.equal(twin[0].weight, model[0].weight)
    assert torch.equal(twin[0].weight, redrawn(model, Key(0))[0].weight)
    # A layer more changes no other.
    longer = nn.Sequential(model[0], model[1], model[2], nn.Tanh(), model[4], nn.Linear(2, 2))
    assert torch.equal(redrawn(longer, Key(0))[2].weight, twin[2].weight)


def test_scores_that_ignore_the_network_are_caught_and_those_that_follow_it_are_not():
    model, x, z = network(), torch.randn(200, 6), torch.randn(8, 6)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    classes = torch.zeros(8, dtype=torch.long)

    def of_inputs(_):
        return z @ x.T

    def of_outputs(other):
        with torch.no_grad():
            return other(z)[:, :1] @ other(x)[:, :1].T

    caught = randomized_model_check(of_inputs(model), of_inputs, model, classes)
    fine = randomized_model_check(of_outputs(model), of_outputs, model, classes, networks=20)
    assert caught.value == pytest.approx(1)
    assert fine.interval.high < 0.6
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert caught.better == "low"


def test_the_check_is_the_mean_of_scipys_correlations_over_networks():
    model, x, z = network(), torch.randn(50, 6), torch.randn(4, 6)
    classes = torch.zeros(4, dtype=torch.long)

    def scores(other):
        with torch.no_grad():
            return other(z) @ other(x).T

    found = randomized_model_check(scores(model), scores, model, classes, networks=2, seed=5)
    each = [
        stats.spearmanr(scores(model)[i], scores(redrawn(model, Key(5).fold("randomized", j)))[i])[0]
        for j in range(2)
        for i in range(4)
    ]
    assert found.value == pytest.approx(np.mean(each))
    with pytest.raises(InputError, match="two random networks"):
        randomized_model_check(scores(model), scores, model, classes, networks=1)
