"""Every module of the zoo: tied weights, attention, norms, embeddings, fallback parameters."""

import pytest
import torch

from cases import CASES, expected, gap, jacobians
from sketch.test_laws import expected_count
from tangentkit.core.batches import batch_size, take
from tangentkit.sketch import SketchedTangentKernel, arrangement
from tangentkit.sketch.methods.choice import choose

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*do not reach the output"),
    pytest.mark.filterwarnings("ignore:LSTM with projections"),
]


over_cases = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if i % 8 == 0 or "tied" in name else pytest.mark.slow)
        for i, name in enumerate(CASES)
    ],
)


class Selected:
    """The selected parameters of a kernel, in the order of the Jacobian."""

    def __init__(self, kernel):
        self.named_parameters = kernel.function.params.items


@over_cases
def test_count_does_not_depend_on_the_route(name):
    case, (x, y) = CASES[name], CASES[name].batches()
    dim = max(48, jacobians(name)[0].shape[1])
    kernel = SketchedTangentKernel(case.model(), dim, sketch="count", seed=3, **case.keywords)
    for batch, jacobian in zip((x, y), jacobians(name), strict=True):
        assert gap(kernel.features(batch), expected_count(jacobian, Selected(kernel), 3, dim)) <= 1e-10


@over_cases
def test_factors_give_the_kernel_to_within_the_error_of_a_sketch(name, monkeypatch):
    def by_factors(sketch, profile, r, dim):
        return choose("count", profile, r, dim) | dict.fromkeys(profile.factored, "tensor")

    # However small a weight is.
    monkeypatch.setattr(arrangement, "choose", by_factors)
    case, (x, y) = CASES[name], CASES[name].batches()
    dim = max(64, jacobians(name)[0].shape[1])
    kernel = SketchedTangentKernel(case.model(), dim, sketch="tensor", **case.keywords)
    truth = expected(name, "trace", symmetric=False)
    norms = [j.square().sum((1, 2)) for j in jacobians(name)]
    law = (torch.outer(*norms) + truth.square()).sum().div(dim).sqrt()
    errors = torch.stack([(kernel.reseeded(seed)(x, y) - truth).norm() for seed in range(4)])
    # Entries are few and some large: single sketches may err by more.
    assert errors.square().mean().sqrt() <= 2.5 * law


@over_cases
def test_samples_that_are_calibrated_with_are_exact_whatever_their_parameters(name):
    case, x = CASES[name], CASES[name].batches()[0]
    # Every sample once for the bases, and once for those that tell what they hold.
    twice = take(x, [i for i in range(batch_size(x)) for _ in range(2)])
    kernel = SketchedTangentKernel(case.model(), 64, sketch="hybrid", calibration=twice, **case.keywords)
    truth = expected(name, "trace", symmetric=True)
    # Bases may leave out what is negligible.
    assert (kernel(x) - truth).norm() <= 0.03 * truth.norm()
