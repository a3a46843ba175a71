"""Networks of half precision give what their copies in float32 do, to within the rounding of half precision."""

import copy

import pytest
import torch
from torch import nn

import tangentkit as tk
from analysis.tracking.runs import MEASURES
from tangentkit.analysis import Tracker


@pytest.fixture(params=[torch.bfloat16, torch.float16], ids=str)
def networks(request):
    """A network of half precision, its copy in float32, and samples."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 2)).to(request.param)
    return model, copy.deepcopy(model).float(), torch.randn(40, 5).to(request.param)


def test_a_tracker_follows_them(networks):
    half, full, x = networks
    y = torch.arange(40) % 2
    tracks = []
    for model, probe in ((half, x), (full, x.float())):
        tracker = Tracker(MEASURES, probe=(probe, y), test=(probe, y))
        tracker.step(model)
        with torch.no_grad():
            model[0].weight.mul_(2)  # a power of two: not rounded in either
        tracker.step(model)
        tracks.append(tracker.to_dict()["values"])
    assert tracks[0] == tracks[1]
    assert half[0].weight.dtype == x.dtype


@pytest.mark.parametrize("kind", [tk.TangentKernel, tk.ConjugateKernel])
def test_kernels_have_eigenfunctions_and_compare_samples(networks, kind):
    half, full, x = networks
    ours, exact = (tk.eigenfunctions(kind(model), x.to(model[0].weight.dtype), 3) for model in (half, full))
    torch.testing.assert_close(ours.values, exact.values, rtol=0.05, atol=0.0)
    torch.testing.assert_close(ours(x), ours.vectors, rtol=0.1, atol=0.02)
    shifted = tk.compare_distributions(x[:20], x[20:] + 2, kind(half))
    assert shifted.p_value < 0.05
