"""The infinite ensemble, against neural-tangents, Gaussian process algebra, sampling and wide networks."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from tangentkit.core.errors import InputError, NumericalError
from tangentkit.linalg import DenseOperator
from tangentkit.machines.dynamics.descents import GradientDescent
from tangentkit.machines.dynamics.dynamics import Dynamics, gradient_flow, max_learning_rate
from tangentkit.machines.dynamics.ensemble import InfiniteEnsemble, KernelBlocks

ORACLE = json.loads((Path(__file__).parent / "predictions.json").read_text())
W_STD, B_STD = 1.5, 0.1


def doubles(numbers):
    return torch.tensor(numbers, dtype=torch.float64)


X, Z, Y = (doubles(ORACLE[name]) for name in ("x_train", "x_test", "y_train"))


def close(found, expected, **tolerance):
    torch.testing.assert_close(found, expected, **({"rtol": 0, "atol": 1e-8} | tolerance))


def first_layer(x, z):
    return W_STD**2 * x @ z.T / x.shape[1] + B_STD**2


def nngp(x, z=None):
    """𝒦 of one hidden layer with erf: W² (2/π) arcsin(2 k / √((1 + 2 k_xx) (1 + 2 k_zz))) + b²."""
    z = x if z is None else z
    size = (1 + 2 * first_layer(x, x).diagonal())[:, None] * (1 + 2 * first_layer(z, z).diagonal())
    return W_STD**2 * 2 / math.pi * torch.asin(2 * first_layer(x, z) / size.sqrt()) + B_STD**2


def ntk(x, z=None):
    """Θ = 𝒦 + W² k E[erf'(u) erf'(v)], the expectation being (4/π) / √((1 + 2 k_xx) (1 + 2 k_zz) - 4 k²)."""
    z = x if z is None else z
    k = first_layer(x, z)
    size = (1 + 2 * first_layer(x, x).diagonal())[:, None] * (1 + 2 * first_layer(z, z).diagonal())
    return nngp(x, z) + W_STD**2 * k * 4 / math.pi / (size - 4 * k.square()).sqrt()


def time_of(case):
    return math.inf if case["t"] is None else case["t"]


@pytest.mark.parametrize("case", ORACLE["ensemble"], ids=lambda c: f"{c['kernel']}-{c['t']}-{c['diag_reg']}")
def test_mean_and_covariance_agree_with_neural_tangents(case):
    ensemble = InfiniteEnsemble.of(
        nngp,
        X,
        Y,
        Z,
        ntk=ntk if case["kernel"] == "ntk" else None,
        loss="half_mean",
        diag_reg=case["diag_reg"],
    )
    close(ensemble.mean(time_of(case)), doubles(case["mean"]))
    close(ensemble.covariance(time_of(case)), doubles(case["cov"]))
    close(ensemble.variance(time_of(case)), doubles(case["cov"]).diagonal())


@pytest.mark.parametrize("case", ORACLE["mse"], ids=lambda c: f"t{c['t']}")
def test_gradient_flow_from_given_outputs_agrees_with_neural_tangents(case):
    t, start = 0.7 * case["t"], {"f0": doubles(case["f0_train"])}
    close(gradient_flow(ntk(X), Y, t, **start, loss="half_mean"), doubles(case["train"]))
    found = gradient_flow(
        ntk(X), Y, t, **start, K_test=ntk(Z, X), f0_test=doubles(case["f0_test"]), loss="half_mean"
    )
    close(found, doubles(case["test"]))


@pytest.mark.parametrize("case", ORACLE["max_learning_rate"], ids=str)
def test_the_largest_learning_rate_agrees_with_neural_tangents(case):
    found = max_learning_rate(ntk(X), loss="half_mean", momentum=case["momentum"], outputs=case["outputs"])
    assert found == pytest.approx(case["value"], rel=1e-10)


def test_before_training_it_is_the_prior():
    ensemble = InfiniteEnsemble.of(nngp, X, Y, Z, ntk=ntk)
    assert torch.equal(ensemble.mean(0.0), torch.zeros(2, 2).double())
    close(ensemble.covariance(0.0), nngp(Z), atol=1e-14)


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_without_an_ntk_the_end_is_the_posterior_of_the_gaussian_process(noise):
    ensemble = InfiniteEnsemble.of(nngp, X, Y, Z, diag_reg=noise)
    K = nngp(X) + noise * nngp(X).diagonal().mean() * torch.eye(3).double()
    close(ensemble.mean(), nngp(Z, X) @ torch.linalg.solve(K, Y), atol=1e-12)
    posterior = nngp(Z) - nngp(Z, X) @ torch.linalg.solve(K, nngp(X, Z))
    close(ensemble.covariance(), posterior, atol=1e-12)


@pytest.mark.parametrize("kernel", [ntk, None], ids=["ntk", "nngp"])
@pytest.mark.parametrize("diag_reg", [0.0, 0.1])
@pytest.mark.parametrize("t", [0.0, 0.5, math.inf])
def test_training_points_are_points_like_others(kernel, diag_reg, t):
    here = InfiniteEnsemble.of(nngp, X, Y, ntk=kernel, diag_reg=diag_reg)
    there = InfiniteEnsemble.of(nngp, X, Y, X, ntk=kernel, diag_reg=diag_reg)
    for name in ("mean", "covariance", "variance"):
        close(getattr(here, name)(t), getattr(there, name)(t), atol=1e-12)


def test_training_fits_every_network_so_that_no_spread_is_left_at_the_training_points():
    ensemble = InfiniteEnsemble.of(nngp, X, Y, ntk=ntk)
    close(ensemble.mean(), Y, atol=1e-13)
    close(ensemble.covariance(), torch.zeros(3, 3).double(), atol=1e-13)


def test_many_times_come_first():
    ensemble, times = InfiniteEnsemble.of(nngp, X, Y[:, 0], Z, ntk=ntk), [[0.0, 0.5], [2.0, math.inf]]
    assert ensemble.mean(times).shape == (2, 2, 2)
    assert ensemble.covariance(times).shape == (2, 2, 2, 2)
    for i, row in enumerate(times):
        for j, t in enumerate(row):
            close(ensemble.mean(times)[i, j], ensemble.mean(t), atol=1e-14)
            close(ensemble.covariance(times)[i, j], ensemble.covariance(t), atol=1e-14)
            close(ensemble.variance(times)[i, j], ensemble.covariance(t).diagonal(), atol=1e-14)


def test_samples_of_the_prior_that_are_trained_have_its_mean_and_covariance():
    joint, t, samples = nngp(torch.cat([X, Z])), 1.3, 20_000
    noise = torch.randn(samples, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    start = noise @ torch.linalg.cholesky(joint).T
    # Each sample is a column of its own: scalar kernels train columns side by side.
    training = Dynamics(ntk(X), Y[:, :1].expand(3, samples), f0=start[:, :3].T, loss="half_sample_mean")
    trained = training.predictions(t, ntk(Z, X), f0_test=start[:, 3:].T).T
    ensemble = InfiniteEnsemble.of(nngp, X, Y[:, 0], Z, ntk=ntk, loss="half_sample_mean")
    mean, covariance = ensemble.mean(t), ensemble.covariance(t)
    spread = covariance.diagonal().sqrt()
    assert ((trained.mean(0) - mean).abs() < 5 * spread / math.sqrt(samples)).all()
    # The error of a covariance of n normal samples is at most √2 σ_i σ_j / √n.
    allowed = 5 * math.sqrt(2 / samples) * torch.outer(spread, spread)
    assert ((trained.T.cov() - covariance).abs() < allowed).all()


def test_wide_networks_are_the_ensemble():
    networks, width, steps = 200, 512, 30
    generator = torch.Generator().manual_seed(0)
    shapes = [(width, 5), (width, 1), (1, width), (1, 1)]
    W1, b1, W2, b2 = parameters = [
        torch.randn(networks, *shape, generator=generator).requires_grad_() for shape in shapes
    ]

    def outputs(x):
        hidden = torch.erf(W_STD / math.sqrt(5) * W1 @ x.T.float() + B_STD * b1)
        return (W_STD / math.sqrt(width) * W2 @ hidden + B_STD * b2)[:, 0]

    descent = GradientDescent(0.5 * max_learning_rate(ntk(X)))
    optimizer = torch.optim.SGD(parameters, lr=descent.lr)
    for _ in range(steps):
        optimizer.zero_grad()
        ((outputs(X) - Y[:, 0].float()).square().sum() / 2).backward()
        optimizer.step()
    trained = outputs(Z).detach().double()
    ensemble = InfiniteEnsemble.of(nngp, X, Y[:, 0], Z, ntk=ntk, descent=descent)
    mean, covariance = ensemble.mean(steps), ensemble.covariance(steps)
    spread = covariance.diagonal().sqrt()
    # Chance, and a share for the finite width.
    assert ((trained.mean(0) - mean).abs() < 4 * spread / math.sqrt(networks) + 0.02 * spread).all()
    allowed = (4 * math.sqrt(2 / networks) + 0.05) * torch.outer(spread, spread)
    assert ((trained.T.cov() - covariance).abs() < allowed).all()


def test_arrays_operators_and_float32_are_welcome():
    expected = InfiniteEnsemble.of(nngp, X, Y, Z, ntk=ntk)
    arrays = InfiniteEnsemble(
        KernelBlocks(nngp(X).numpy(), nngp(Z, X).numpy(), nngp(Z).numpy()),
        Y.numpy(),
        ntk=KernelBlocks(DenseOperator(ntk(X)), DenseOperator(ntk(Z, X))),
    )
    close(arrays.covariance(1.0), expected.covariance(1.0), atol=1e-14)
    single = InfiniteEnsemble.of(lambda *x: nngp(*x).float(), X, Y, Z, ntk=lambda *x: ntk(*x).float())
    for name in ("mean", "covariance", "variance"):
        found = getattr(single, name)(1.0)
        assert found.dtype == torch.float32
        close(found.double(), getattr(expected, name)(1.0), atol=1e-6)


def test_the_diagonal_is_enough_for_variances():
    blocks = KernelBlocks(nngp(X), nngp(Z, X), nngp(Z).diagonal())
    ensemble = InfiniteEnsemble(blocks, Y)
    close(ensemble.variance(1.0), InfiniteEnsemble.of(nngp, X, Y, Z).variance(1.0), atol=1e-14)
    with pytest.raises(InputError, match=r"got its diagonal.*variance\(t\) needs the diagonal only"):
        ensemble.covariance(1.0)


BLOCKS, NTK = KernelBlocks.of(nngp, X, Z), KernelBlocks.of(ntk, X, Z, test=False)


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: InfiniteEnsemble(BLOCKS, Y[:2]), InputError, "targets do not fit the kernel"),
        (lambda: InfiniteEnsemble(BLOCKS, Y, ntk=KernelBlocks(ntk(X))), InputError, "the other has none"),
        (lambda: InfiniteEnsemble(BLOCKS, Y, ntk=(ntk(X), ntk(X))), InputError, r"shape \(2, 3\), got \(3, 3\)"),
        (lambda: InfiniteEnsemble(KernelBlocks(nngp(X), nngp(X, Z)), Y), InputError, "bad block 'cross'"),
        (lambda: InfiniteEnsemble(BLOCKS._replace(test=nngp(X)), Y), InputError, "bad block 'test'"),
        (lambda: InfiniteEnsemble(BLOCKS._replace(train=nngp(Z)), Y, ntk=NTK), InputError, "bad block 'train'"),
        (lambda: InfiniteEnsemble(BLOCKS, Y, diag_reg=-0.1), InputError, "bad diag_reg"),
        (lambda: InfiniteEnsemble(BLOCKS, Y, loss="mse"), KeyError, "unknown loss 'mse'"),  # pyright: ignore
        (lambda: InfiniteEnsemble(BLOCKS[:2], Y).variance(), InputError, "kernel of the test points is missing"),
        (lambda: InfiniteEnsemble(BLOCKS._replace(train=X[:, :3]), Y), NumericalError, "not symmetric"),
        (lambda: InfiniteEnsemble(BLOCKS._replace(test=X[:2, :2]), Y), NumericalError, "not symmetric"),
        (lambda: InfiniteEnsemble(BLOCKS._replace(cross=nngp(Z, X) * np.nan), Y), NumericalError, "non-finite"),
        (lambda: InfiniteEnsemble(BLOCKS, Y, descent=GradientDescent(9.0)), NumericalError, "training diverges"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_in_words(make, error, match):
    with pytest.raises(error, match=match):
        make()
