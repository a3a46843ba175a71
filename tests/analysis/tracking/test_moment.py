"""Kernels of later moments are those of the network as it is then."""

import pytest
import torch
from torch import nn

import tangentkit as tk
from tangentkit.analysis import Moment
from tangentkit.analysis.tracking import Probe


class _Switched(nn.Module):
    """A network whose path, and whose parameters that require grad, may change while it is trained."""

    def __init__(self):
        super().__init__()
        self.first, self.last, self.skips = nn.Linear(5, 5), nn.Linear(5, 2), False

    def forward(self, x):
        h = torch.tanh(self.first(x))
        return self.last(h * x + h if self.skips else h)


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
