"""Forensics: the votes of the nearest training samples, counted the slow way, and on a network with a backdoor."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn
from torch.utils.data import TensorDataset

import tangentkit as tk
from surrogate.networks import backdoored
from tangentkit.core import InputError


def reference_votes(K, poisoned, k):
    """Row by row: sort, take the first k, count."""
    return [sum(poisoned[j] for j in sorted(range(len(row)), key=lambda j: -row[j])[:k]) for row in K]


@pytest.fixture
def case():
    kernel = tk.TangentKernel(nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)).double())
    train, test = torch.randn(30, 3).double(), torch.randn(12, 3).double()
    return kernel.normalized(), train, torch.rand(30) < 0.5, test, torch.rand(12) < 0.5


@pytest.mark.parametrize(("neighbours", "votes"), [(5, 3), (1, 1), (7, 2)])
def test_votes_flags_and_shares_are_those_of_the_rule(case, neighbours, votes):
    kernel, train, poisoned, test, truth = case
    found = tk.forensics(kernel, train, poisoned, (test, truth), neighbours, votes)
    expected = reference_votes(kernel(test, train).tolist(), poisoned.tolist(), neighbours)
    assert found.votes.tolist() == expected
    flagged = np.array(expected) >= votes
    assert np.array_equal(found.flagged, flagged)
    right = (flagged & truth.numpy()).sum()
    assert (found.precision.hits, found.precision.of) == (right, flagged.sum())
    assert (found.recall.hits, found.recall.of) == (right, truth.sum())
    assert found.false_alarms.hits == (flagged & ~truth.numpy()).sum()


def test_a_kernel_an_operator_and_data_sets_agree(case):
    kernel, train, poisoned, test, truth = case
    by_kernel = tk.forensics(kernel, train, poisoned, (test, truth))
    by_operator = tk.forensics(tk.gram(kernel, test, train), None, poisoned, truth)
    sets = [TensorDataset(x, torch.zeros(len(x))) for x in (train, test)]
    by_sets = tk.forensics(kernel, sets[0], poisoned.tolist(), (sets[1], truth.numpy()))
    assert by_kernel.to_dict() == by_operator.to_dict() == by_sets.to_dict()


def test_votes_by_chance_have_the_recall_of_a_hypergeometric_law():
    # Where neighbors know nothing of poison, votes are draws without replacement.
    generator = torch.Generator().manual_seed(5)
    K = torch.rand(4000, 500, generator=generator, dtype=torch.float64)
    poisoned = torch.rand(500, generator=generator) < 0.3
    found = tk.forensics(tk.linalg.as_operator(K), None, poisoned, torch.ones(4000, dtype=torch.bool))
    expected = stats.hypergeom.sf(2, 500, int(poisoned.sum()), 5)
    assert abs(found.recall.value - expected) < 4 * np.sqrt(expected * (1 - expected) / 4000)


@pytest.mark.parametrize("make", [tk.ConjugateKernel, lambda m: tk.SketchedTangentKernel(m, 512)])
def test_poison_is_traced_to_the_poison_of_the_training(make):
    model, dirty, mask = backdoored()
    clean = tk.data.load("fashion-mini", "test", limit=150)
    x = torch.cat([clean.inputs, tk.data.poison_all(clean).inputs])
    truth = torch.arange(len(x)) >= len(clean)
    found = tk.forensics(make(model).normalized(), dirty.inputs, mask, (x, truth))
    assert found.precision.interval[0] > 0.9
    assert found.recall.interval[0] > 0.75
    table = str(found.table())
    assert "precision" in table
    assert "3 or more of the 5 nearest" in table
    assert found.plot().get_xlabel() == "poisoned neighbors"


def test_bad_labels_and_votes_are_refused(case):
    kernel, train, poisoned, test, truth = case
    with pytest.raises(InputError, match=r"expected shape \(30,\), got \(29,\)"):
        tk.forensics(kernel, train, poisoned[:-1], (test, truth))
    with pytest.raises(InputError, match=r"'truth' does not match: expected shape \(12,\)"):
        tk.forensics(kernel, train, poisoned, (test, truth[:3]))
    with pytest.raises(InputError, match="expected 30 truth values, got int64"):
        tk.forensics(kernel, train, poisoned.long(), (test, truth))
    with pytest.raises(InputError, match=r"a pair \(samples, truth\)"):
        tk.forensics(kernel, train, poisoned, test)
    for votes in (0, 6, 1.5, True):
        with pytest.raises(InputError, match="bad votes: expected from 1 to neighbours = 5"):
            tk.forensics(kernel, train, poisoned, (test, truth), 5, votes)
