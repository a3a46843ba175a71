"""How large errors of a sketch are in all: a compromise of a law and of the gap between two halves."""

import pytest
import torch
from torch import nn

import tangentkit as tk
from tangentkit.sketch.error.sketched import likely_scale


@pytest.mark.parametrize("terms", [1.0, 2.0, 10.0, 100.0])
def test_the_scale_is_the_most_probable_one(terms):
    scales = torch.linspace(-8, 8, 32001, dtype=torch.float64).exp()
    for ratio in (1e-3, 0.3, 0.9, 1.0, 1.2, 3.0, 300.0):
        logs = -terms / 2 * (scales.log() + ratio / scales) - scales.log().abs()
        found = likely_scale(torch.tensor(ratio).double(), torch.tensor(terms).double())
        torch.testing.assert_close(found, scales[logs.argmax()], rtol=1e-3, atol=0)


def test_errors_cover_where_one_eigenvalue_dominates():
    """Then the gap of two halves is one square, which is near to zero too often."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3)).double()
    x = torch.randn(7, 4).double() + 2
    exact = tk.TangentKernel(model)(x)
    assert torch.linalg.eigvalsh(exact)[-1] > 0.8 * exact.trace()
    errors = []
    for seed in range(60):
        kernel, error = tk.SketchedTangentKernel(model, 256, seed=seed).with_error(x)
        errors.append((kernel - exact) / error)
    z = torch.stack(errors)
    assert 0.7 < z.square().mean().sqrt() < 1.3
    assert (z.abs() > 3).double().mean() < 0.03
