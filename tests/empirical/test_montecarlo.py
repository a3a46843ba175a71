"""The mean over initializations, and the trace by random signs."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch import nn

from cases import probed
from tangentkit.core import InputError
from tangentkit.core.errors import BudgetError
from tangentkit.core.seeds import Key
from tangentkit.empirical import ConjugateKernel, MonteCarloKernel, TangentKernel
from tangentkit.empirical.outputs import random_signs
from tangentkit.models import lenet

X, Y = torch.linspace(-1, 1, 24).reshape(6, 4).double(), torch.linspace(0, 1, 12).reshape(3, 4).double()


def network(outputs=2):
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, outputs)).double()


def collected(samples, act, **options):
    """The kernels that a Monte Carlo kernel averages."""
    made = []

    def watched(model):
        made.append(TangentKernel(model))
        return made[-1]

    kernel = MonteCarloKernel(network, samples, kernel=watched, **options)
    return act(kernel), made


def test_mean_and_standard_error_entry_by_entry():
    (mean, error), kernels = collected(7, lambda k: k.with_error(X, Y))
    values = torch.stack([k(X, Y) for k in kernels])
    assert len(kernels) == 7
    torch.testing.assert_close(mean, values.mean(0), rtol=1e-12, atol=0)
    torch.testing.assert_close(error, values.std(0) / 7**0.5, rtol=1e-10, atol=0)
    assert (error > 0).all()


def test_initializations_differ():
    _, kernels = collected(4, lambda k: k(X))
    assert len({float(k(X)[0, 0]) for k in kernels}) == 4


def test_reproducible_by_seed():
    first, again, other = (MonteCarloKernel(network, 3, seed=seed)(X) for seed in (5, 5, 6))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    torch.manual_seed(99)
    assert torch.equal(MonteCarloKernel(network, 3, seed=5)(X), first)


def test_more_samples_keep_the_first_ones():
    two, three = MonteCarloKernel(network, 2)(X), MonteCarloKernel(network, 3)(X)
    _, kernels = collected(3, lambda k: k(X))
    torch.testing.assert_close(3 * three - 2 * two, kernels[2](X))


def test_the_global_generator_is_left_alone():
    before = torch.get_rng_state()
    MonteCarloKernel(network, 2)(X)
    assert torch.equal(torch.get_rng_state(), before)


def test_symmetric_call_diagonal_and_other_kernels():
    kernel = MonteCarloKernel(network, 3)
    torch.testing.assert_close(kernel(X), kernel(X, X))
    torch.testing.assert_close(kernel.diag(X), kernel(X).diagonal())
    conjugate = MonteCarloKernel(network, 3, kernel=ConjugateKernel)
    assert conjugate(X, Y).shape == (6, 3)
    full = MonteCarloKernel(network, 2, kernel=lambda m: TangentKernel(m, "full"))
    assert full(X).shape == (6, 2, 6, 2)


def test_one_sample_is_one_kernel():
    value, kernels = collected(1, lambda k: k(X))
    assert torch.equal(value, kernels[0](X))


# -- probes ------------------------------------------------------------------------------------------------------


def test_the_mean_of_probes_is_the_trace():
    """150 seeds of 3 probes: the mean is within 4 standard errors of the trace at all but few entries."""
    exact = TangentKernel(network(12))
    truth = exact(X, Y)
    estimates = torch.stack([probed(exact, 3, seed)(X, Y) for seed in range(150)])
    error = estimates.std(0) / 150**0.5
    distance = (estimates.mean(0) - truth).abs()
    assert (error > 0).any()
    assert (distance <= 4 * error + 1e-12).all()


def test_probes_are_reproducible_positive_and_symmetric():
    model = network(12)
    first, again = (TangentKernel(model, probes=4, seed=3)(X) for _ in range(2))
    assert torch.equal(first, again)
    assert not torch.equal(first, TangentKernel(model, probes=4, seed=4)(X))
    assert torch.equal(first, first.T)
    assert torch.linalg.eigvalsh(first)[0] >= -1e-12 * first.abs().max()
    torch.testing.assert_close(TangentKernel(model, probes=4, seed=3).diag(X), first.diagonal())
    torch.testing.assert_close(sum(TangentKernel(model, probes=4, seed=3).by_parameter(X).values()), first)


def test_more_probes_err_less():
    exact = TangentKernel(network(300))
    truth = exact(X)
    gaps = [
        torch.stack([(probed(exact, s, seed)(X) - truth).norm() for seed in range(30)]).mean()
        for s in (2, 32)
    ]
    # A factor 16 in probes is a factor 4 in error.
    assert 2 < gaps[0] / gaps[1] < 8


@pytest.mark.parametrize("outputs", [1, 2, 5])
def test_as_many_probes_as_outputs_are_the_trace_itself(outputs):
    model = network(outputs)
    found, error = TangentKernel(model, probes=max(2, outputs)).with_error(X)
    torch.testing.assert_close(found, TangentKernel(model)(X))
    assert not error.any()


@given(c=st.integers(3, 6), seed=st.integers(0, 10**6), data=st.data())
def test_no_two_directions_are_equal_or_opposite(c, seed, data):
    probes = data.draw(st.integers(2, c - 1))
    v = random_signs(probes, c, seed=seed, like=torch.ones(1)).vectors.sign()
    assert v.shape == (probes, c)
    assert (v @ v.T).fill_diagonal_(0).abs().max() < c


@pytest.mark.parametrize(("outputs", "probes"), [(3, 2), (4, 3), (12, 2), (12, 11)])
def test_the_standard_error_of_few_probes_is_as_large_as_the_errors(outputs, probes):
    """400 seeds: the mean squared error is the mean variance that is told, and none is told to be exact."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, outputs)).double()
    truth, x = TangentKernel(model)(X), X
    found = [TangentKernel(model, probes=probes, seed=seed).with_error(x) for seed in range(400)]
    errors = torch.stack([k - truth for k, _ in found])
    told = torch.stack([e for _, e in found])
    assert (told.flatten(1).max(1).values > 0).all()
    assert 0.8 < (told.square().mean() / errors.square().mean()).item() < 1.25
    assert (errors.mean(0).abs() <= 4 * errors.std(0) / 20 + 1e-12).all()


@pytest.mark.parametrize("seed", [-1, 1.5, "a"])
def test_seeds_are_checked(seed):
    with pytest.raises(ValueError, match="bad seed"):
        MonteCarloKernel(network, 2, seed=seed)(X)
    with pytest.raises(ValueError, match="bad seed"):
        TangentKernel(network(3), probes=2, seed=seed)(X)
    assert Key(0).seed == 0


def test_the_standard_error_of_probes_covers_the_trace():
    torch.manual_seed(1)
    model, x = (
        nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 100)).double(),
        torch.randn(5, 4).double(),
    )
    exact = TangentKernel(model)(x)
    kernel = TangentKernel(model, probes=40, seed=3)
    mean, error = kernel.with_error(x)
    torch.testing.assert_close(mean, kernel(x))
    # Of 15 different entries, one in twenty lies beyond two errors: more than half within one is sure.
    assert ((mean - exact).abs() <= 4 * error).all()
    assert ((mean - exact).abs() <= error).double().mean() > 0.3


def test_one_probe_has_no_standard_error():
    with pytest.raises(InputError, match="expected probes=2 or more, got probes=1"):
        TangentKernel(nn.Linear(4, 3), probes=1).with_error(torch.randn(2, 4))


def test_the_memory_of_a_worker_reaches_every_sample():
    kernel = MonteCarloKernel(network, 3, seed=1)
    bounded = kernel.within(50)
    assert bounded.identity() == kernel.identity()
    with pytest.raises(BudgetError, match="does not fit the memory budget"):
        bounded(X)
    assert torch.equal(kernel.within(2**28)(X), kernel(X))


def test_models_of_the_same_weights_have_no_mean():
    """Their standard error would be 0, however wrong the mean."""
    model, settled = network(), lambda: lenet(scale=0.25, outputs=2)
    images = torch.zeros(2, 1, 28, 28)
    for make, x, got in (
        (lambda: model, X, "the same module"),
        (settled, images, "modules of equal weights"),
    ):
        with pytest.raises(InputError, match=f"the same weights twice.*got {got}.*default_generator"):
            MonteCarloKernel(make, 2)(x)
    drawn = MonteCarloKernel(lambda: lenet(scale=0.25, outputs=2, seed=torch.default_generator), 2)
    assert drawn.with_error(images)[1].max() > 0
