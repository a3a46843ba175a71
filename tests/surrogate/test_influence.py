"""Influence, TRAK's scores and representer points equal their formulas on whole matrices."""

import pytest
import torch
from torch import nn
from torch.nn.functional import one_hot

import tangentkit as tk
from tangentkit.core import InputError
from tangentkit.surrogate import influence, representer_points, trak


@pytest.fixture(scope="module", params=["exact", "features", "many features"])
def fitted(request):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, 3)).double()
    x, z, y = torch.randn(30, 4).double(), torch.randn(7, 4).double(), torch.arange(30) % 3
    kernel = {
        "exact": lambda: tk.TangentKernel(model),
        "features": lambda: tk.SketchedTangentKernel(model, dim=16),
        "many features": lambda: tk.SketchedTangentKernel(model, dim=64),
    }[request.param]()
    return tk.Surrogate(model, kernel).fit(x, y), model, kernel, x, y, z


def test_influence_is_the_damped_inverse_kernel_times_what_the_label_lacks(fitted):
    surrogate, model, kernel, x, y, z = fitted
    K, k = kernel(x).double(), kernel(z, x).double()
    damped = torch.linalg.solve(K + 0.1 * K.diagonal().mean() * torch.eye(30), k.T).T
    residual = one_hot(y, 3) - model(x).detach().softmax(1)
    expected = damped[:, None, :] * residual.T
    torch.testing.assert_close(influence(surrogate, z, damping=0.1).scores, expected, rtol=1e-6, atol=1e-8)
    given = influence(surrogate, z, damping=0.1, cross=k)
    torch.testing.assert_close(given.scores, expected, rtol=1e-6, atol=1e-8)


def test_trak_is_the_inverse_of_features_times_one_minus_the_probability(fitted):
    surrogate, model, kernel, x, y, z = fitted
    K, k = kernel(x).double(), kernel(z, x).double()
    damped = torch.linalg.solve(K + 1e-3 * K.diagonal().mean() * torch.eye(30), k.T).T
    p = model(x).detach().softmax(1)[torch.arange(30), y]
    found = trak(surrogate, z, damping=1e-3).scores
    assert found.shape == (7, 1, 30)
    torch.testing.assert_close(found[:, 0], damped * (1 - p), rtol=1e-5, atol=1e-8)


def test_representer_points_add_up_to_the_logits_of_kernel_logistic_regression(fitted):
    surrogate, _, kernel, x, y, z = fitted
    K = kernel(x).double()
    machine = tk.KernelLogistic(ridge=float(0.1 * K.diagonal().mean())).fit(K, y)
    expected = machine.decision_function(kernel(z, x).double())
    a = representer_points(surrogate, z, ridge=0.1)
    # Logits of a softmax are known up to a constant.
    centered = [v - v.mean(1, keepdim=True) for v in (a.scores.sum(2), expected)]
    torch.testing.assert_close(*centered, rtol=1e-4, atol=1e-5)


def test_two_classes_have_one_logit_and_scores_for_both_sides_of_it():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).double()
    x, y = torch.randn(20, 4).double(), torch.arange(20) % 2
    surrogate = tk.Surrogate(model, tk.TangentKernel(model)).fit(x, y)
    K = tk.TangentKernel(model)(x)
    machine = tk.KernelLogistic(ridge=float(0.1 * K.diagonal().mean())).fit(K, y)
    z = machine.decision_function(K[:3])
    a = representer_points(surrogate, x[:3], ridge=0.1)
    torch.testing.assert_close(a.logits, torch.stack([-z, z], 1), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(a.scores.sum(2), a.logits, rtol=1e-12, atol=1e-12)


def test_damping_must_be_above_zero(fitted):
    surrogate, *_, z = fitted
    for method in (influence, trak):
        with pytest.raises(InputError, match="damping"):
            method(surrogate, z, damping=0.0)
    with pytest.raises(InputError, match="ridge"):
        representer_points(surrogate, z, ridge=-1.0)
