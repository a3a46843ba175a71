"""Kernels of later moments are those of the network as it is then."""

import pytest
import torch
from torch import nn

import tangentkit as tk
from tangentkit.analysis import Moment
from tangentkit.analysis.tracking import Probe
from tangentkit.analysis.tracking.moment import as_probe


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


def test_items_and_batches_with_labels_are_probes_with_targets():
    x, y = torch.randn(12, 4), torch.arange(12) % 2
    items = [{"inputs": row.tolist(), "labels": int(label)} for row, label in zip(x, y, strict=True)]
    for given in ({"inputs": x, "labels": y}, items):
        found = as_probe(given, samples=20, test=None, seed=0)
        assert list(found.x) == ["inputs"]
        torch.testing.assert_close(found.x["inputs"], x)
        assert torch.equal(found.y, y)
