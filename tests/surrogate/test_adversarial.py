"""Attacks on a network, and whether a surrogate follows: against closed forms of a linear network."""

import numpy as np
import pytest
import torch
from torch import nn

import tangentkit as tk
from surrogate.networks import backdoored
from tangentkit.core import InputError, ModelError, UnknownNameError


class Predicts:
    """A surrogate that is a function."""

    def __init__(self, function):
        self.function, self.seen = function, []

    def predict(self, x):
        self.seen.append(x)
        return self.function(x)


@pytest.fixture
def line():
    """A network of one logit w·x + b, and points of both classes."""
    model = nn.Linear(6, 1).double()
    x = torch.rand(300, 6).double()
    with torch.no_grad():
        model.bias.fill_(-(x @ model.weight[0]).mean())
    return model, x, (model(x)[:, 0] > 0).long()


@pytest.mark.parametrize("attack", ["fgsm", "pgd"])
def test_of_a_linear_network_the_accuracy_is_the_share_beyond_the_margin(line, attack):
    model, x, y = line
    epsilons = [0.0, 0.02, 0.1]
    found = tk.compare_under_attack(
        model,
        Predicts(lambda x: (model(x)[:, 0] > 0).long()),
        x,
        y,
        epsilons,
        attack=attack,
        bounds=None,
        steps=20,
    )
    with torch.no_grad():
        margins = model(x)[:, 0].abs() / model.weight.abs().sum()
    for epsilon, share in zip(epsilons, found.network, strict=True):
        # At most ε in every number moves a logit by at most ε |w|₁.
        assert share.hits == int((margins > epsilon).sum())
    assert [share.value for share in found.agreement] == [1, 1, 1]
    assert found.followed[-1].hits == found.followed[-1].of > 0


@pytest.mark.parametrize("attack", ["fgsm", "pgd"])
def test_inputs_stay_within_epsilon_and_the_bounds(line, attack):
    model, x, y = line
    surrogate = Predicts(lambda x: np.zeros(len(x)))
    tk.compare_under_attack(model, surrogate, x, y, [0.0, 0.3], attack=attack)
    natural, moved = surrogate.seen
    assert torch.equal(natural, x)
    assert (moved - x).abs().max() <= 0.3 + 1e-12
    assert moved.min() >= 0
    assert moved.max() <= 1


def test_one_that_keeps_its_answers_does_not_follow(line):
    model, x, y = line
    truth = Predicts(lambda _: y)
    found = tk.compare_under_attack(model, truth, x, y, [0.0, 0.05, 0.2])
    assert [share.value for share in found.surrogate] == [1, 1, 1]
    assert found.network[-1].value < found.network[0].value
    assert found.followed[-1].hits == 0
    assert found.agreement[-1] == found.network[-1]


def test_the_network_is_left_as_it_was_and_seeds_decide(line):
    model, x, y = line
    model.weight.grad = torch.ones_like(model.weight)
    first, second = Predicts(lambda x: np.zeros(len(x))), Predicts(lambda x: np.zeros(len(x)))
    for surrogate in (first, second):
        tk.compare_under_attack(model, surrogate, x, y, [0.1], seed=3, steps=2)
    assert torch.equal(first.seen[0], second.seen[0])
    assert torch.equal(model.weight.grad, torch.ones_like(model.weight))


def test_a_kernel_machine_of_a_network_and_its_table():
    model, data, _ = backdoored()
    machine = tk.KernelRidgeClassifier(tk.ConjugateKernel(model).normalized(), ridge=1e-2)
    machine.fit(data.inputs[:400], data.targets[:400])
    test = tk.data.load("fashion-mini", "test", limit=100)
    found = tk.compare_under_attack(model, machine, test.inputs, test.targets, [0.0, 0.05], steps=5)
    assert found.network[1].value < found.network[0].value - 0.2
    assert "followed %" in str(found.table())
    assert found.plot().get_xlabel() == "ε of pgd"
    assert len(found.to_dict()["agreement"]) == 2


def test_bad_attacks_and_inputs_are_refused(line):
    model, x, y = line
    surrogate = Predicts(lambda x: np.zeros(len(x)))
    with pytest.raises(UnknownNameError, match="'fgsm'"):
        tk.compare_under_attack(model, surrogate, x, y, attack="fgms")
    with pytest.raises(InputError, match="numbers from 0, ascending"):
        tk.compare_under_attack(model, surrogate, x, y, [0.1, 0.0])
    with pytest.raises(InputError, match="one tensor of floating-point numbers"):
        tk.compare_under_attack(model, surrogate, {"x": x}, y)
    with pytest.raises(InputError, match=r"expected 300 labels, got \(299,\)"):
        tk.compare_under_attack(model, surrogate, x, y[1:])
    with pytest.raises(InputError, match="bad predictions"):
        tk.compare_under_attack(model, Predicts(lambda x: np.zeros((len(x), 2))), x, y)
    with pytest.raises(InputError, match="at least 1"):
        tk.compare_under_attack(model, surrogate, x, y, steps=0)


def test_inputs_outside_of_the_bounds_are_refused(line):
    model, x, y = line
    surrogate = Predicts(lambda x: np.zeros(len(x)))
    outside = 3 * x - 1
    with pytest.raises(InputError, match=rf"from 0 to 1, got {float(outside.min()):.4g} to .*bounds="):
        tk.compare_under_attack(model, surrogate, outside, y)
    assert surrogate.seen == []
    tk.compare_under_attack(model, surrogate, outside, y, [0.1], bounds=(-1.0, 2.0), steps=1)


def test_a_surrogate_of_another_network_is_refused():
    torch.manual_seed(0)
    model, other = (nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)) for _ in range(2))
    x, y = torch.rand(20, 4), torch.arange(20) % 2
    surrogate = tk.Surrogate(model, tk.ConjugateKernel(model)).fit(x, y)
    tk.compare_under_attack(model, surrogate, x, y, [0.1], steps=1, progress=False)
    with pytest.raises(InputError, match=r"the surrogate is of another network.*0\.weight"):
        tk.compare_under_attack(other, surrogate, x, y, progress=False)


def test_a_network_in_training_mode_is_refused_and_keeps_its_statistics():
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2))
    before = model[1].running_mean.clone()
    x, y = torch.rand(20, 4), torch.arange(20) % 2
    with pytest.raises(ModelError, match=r"model\.eval"):
        tk.compare_under_attack(model, Predicts(lambda x: np.zeros(len(x))), x, y)
    assert torch.equal(model[1].running_mean, before)


@pytest.mark.parametrize(
    ("labels", "words"), [([7] * 300, "0 to 1"), (["a"] * 300, "classes.index"), ([0, 1], "300 labels")]
)
def test_labels_that_the_network_does_not_have_are_refused(line, labels, words):
    model, x, _ = line
    with pytest.raises(InputError, match=words):
        tk.compare_under_attack(model, Predicts(lambda x: np.zeros(len(x))), x, labels, bounds=None)


def test_one_epsilon_is_enough_and_words_are_no_predictions(line):
    model, x, y = line
    found = tk.compare_under_attack(model, Predicts(lambda x: np.zeros(len(x))), x, y, 0.1, bounds=None)
    assert found.epsilons == (0.1,)
    with pytest.raises(InputError, match="predicts no numbers"):
        tk.compare_under_attack(model, Predicts(lambda x: np.full(len(x), "cat")), x, y, 0.1, bounds=None)
