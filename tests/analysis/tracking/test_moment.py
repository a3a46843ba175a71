"""Kernels of later moments know what earlier ones have learned, and are right all the same."""

import pytest
import torch
from torch import nn

import tangentkit as tk
from analysis.tracking.runs import problem
from tangentkit.analysis import Moment
from tangentkit.analysis.tracking import Probe
from tangentkit.empirical.trust import profiles


class _Switched(nn.Module):
    """A network whose path, and whose parameters that require grad, may change while it is trained."""

    def __init__(self):
        super().__init__()
        self.first, self.last, self.skips = nn.Linear(5, 5), nn.Linear(5, 2), False

    def forward(self, x):
        h = torch.tanh(self.first(x))
        return self.last(h * x + h if self.skips else h)


def test_the_structure_of_a_network_is_learned_once(monkeypatch):
    model, x, _ = problem()
    probe, learned, profile = Probe(x), [], profiles.profile
    monkeypatch.setattr(profiles, "profile", lambda *args: learned.append(1) or profile(*args))
    for step in range(3):
        with torch.no_grad():
            model[0].weight.mul_(1.5)
        K = Moment(step, model.eval(), probe).ntk
        assert len(learned) == 1
    assert torch.allclose(K, tk.TangentKernel(model)(x), rtol=1e-5)


@pytest.mark.parametrize("change", ["path", "frozen", "weights"])
def test_a_network_that_changes_has_its_own_kernel(change):
    model, x = _Switched().eval(), torch.randn(9, 5)
    probe = Probe(x)
    before = Moment(0, model, probe).ntk
    if change == "path":
        model.skips = True
    elif change == "frozen":
        model.first.requires_grad_(False)
    else:
        with torch.no_grad():
            model.first.weight.mul_(-3)
    J = tk.reference.jacobian(model, x)
    K = tk.reference.trace_kernel(J, J)
    assert not torch.allclose(before, K.to(x), rtol=1e-2)
    assert torch.allclose(Moment(1, model, probe).ntk, K.to(x), rtol=1e-4, atol=1e-5)
