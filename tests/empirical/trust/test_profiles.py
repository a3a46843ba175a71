"""Profiles that a kernel takes over from another one of the same layers."""

import pytest
import torch
from torch import nn

import tangentkit as tk
from tangentkit.core.errors import InputError
from tangentkit.empirical.trust import profiles


class Switched(nn.Module):
    """A tanh or a product, by the sign of a weight: another graph at other weights."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x):
        h = self.first(x)
        return self.second(h.tanh() if float(self.first.bias[0].detach()) > 0 else h * h)


class Gated(nn.Module):
    """A layer that says nothing of negative samples."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 4, bias=False), nn.Linear(4, 2)
        self.first.weight.data.abs_()

    def forward(self, x):
        return self.second(self.first(x).relu())


@pytest.mark.parametrize("make", [tk.models.lenet, lambda: Switched().eval()], ids=["LeNet", "switched"])
def test_after_steps_of_training_the_kernel_is_that_of_a_fresh_one(make):
    model = make().double()
    x = torch.rand(5, *((3,) if isinstance(model, Switched) else (1, 28, 28)), dtype=torch.float64)
    if isinstance(model, Switched):
        model.first.bias.data.fill_(1.0)
    before = tk.TangentKernel(model)
    at_first = before(x)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        if isinstance(model, Switched):
            model.first.bias.fill_(-1.0)
    fresh = tk.TangentKernel(model)(x)
    torch.testing.assert_close(tk.TangentKernel(model).take_profiles(before)(x), fresh)
    assert not torch.allclose(at_first, fresh)
    torch.testing.assert_close(before(x), at_first)


def test_nothing_is_learned_twice(monkeypatch):
    model, x = tk.models.mlp((3, 4, 2)), torch.randn(5, 3)
    before = tk.TangentKernel(model)
    before(x)
    monkeypatch.setattr(profiles, "profile", lambda *_: pytest.fail("a profile was made again"))
    tk.TangentKernel(model).take_profiles(before)(x)


def test_a_batch_that_disproves_a_profile_leaves_that_of_the_kernel_it_was_taken_from_alone():
    model, x = Switched().eval().double(), torch.rand(5, 3, dtype=torch.float64)
    model.first.bias.data.fill_(1.0)
    before = tk.TangentKernel(model)
    before(x)
    known = before._profiles.of(x)
    model.first.bias.data.fill_(-1.0)
    after = tk.TangentKernel(model).take_profiles(before)
    after(torch.cat([x, x]))
    assert after._profiles.of(x).structure.generic
    assert before._profiles.of(x) is known
    assert not known.structure.generic


def test_a_larger_batch_and_a_proven_rule_revise_the_profile_of_one_kernel_only():
    model, x = Gated().double(), torch.rand(5, 3, dtype=torch.float64)
    before = tk.TangentKernel(model)
    before(-x)
    known = before._profiles.of(x)
    assert known.structure.unproven
    after = tk.TangentKernel(model).take_profiles(before)
    after(torch.rand(10, 3, dtype=torch.float64))
    revised = after._profiles.of(x)
    assert (before._profiles.of(x), known.independent) == (known, 5)
    assert (revised.structure.unproven, revised.independent) == (frozenset(), 10)


def test_profiles_of_another_model_are_refused():
    here, there = (tk.TangentKernel(tk.models.mlp((3, width, 2))) for width in (4, 5))
    with pytest.raises(
        InputError, match=r"profiles of another model: expected .*weight \(4, 3\), got \(5, 3\)"
    ):
        here.take_profiles(there)
