"""The modes of training in a fixed kernel: each decays by itself, and together they are the loss."""

import math

import pytest
import torch

from machines.dynamics.problem import F0, LOSSES, PROBLEM, C, K, N, Y, close
from tangentkit.machines.dynamics.descents import (
    GradientDescent,
    HeavyBall,
    MomentumFlow,
)
from tangentkit.machines.dynamics.dynamics import Dynamics


@pytest.mark.parametrize("loss", LOSSES)
def test_mode_curves_add_up_to_the_loss(loss):
    times = [0.0, 0.2, 1.0, 50.0]
    for kernel in (K, PROBLEM.K):
        training = Dynamics(kernel, Y, f0=F0, loss=loss)
        total = torch.stack([LOSSES[loss](f, Y) for f in training.predictions(times)])
        close(training.losses(times), total, atol=1e-12)
        close(training.mode_losses(times).sum(-1), total, atol=1e-12)
        assert (training.mode_losses(times).diff(dim=0) <= 0).all()


def test_modes_are_projections_of_the_error_and_decay_by_themselves():
    training, times = Dynamics(K, Y, f0=F0, loss="mean"), torch.tensor([0.0, 0.7], dtype=torch.float64)
    vectors = torch.linalg.eigh(K).eigenvectors.flip(1)
    modes = training.modes(times)
    assert modes.shape == (2, N, C)
    error = training.predictions(times) - Y
    close((vectors.T @ error).abs(), modes.abs(), atol=1e-12)
    rates = 2 / (N * C) * training.eigenvalues
    close(modes[1], modes[0] * torch.exp(-0.7 * rates)[:, None], atol=1e-12)
    assert Dynamics(PROBLEM.K, Y).modes(times).shape == (2, N * C)
    assert Dynamics(K, Y[:, 0]).modes(1.0).shape == (N,)


@pytest.mark.parametrize("fraction", [0.5, 0.01])
def test_after_the_time_to_fit_the_fraction_is_left(fraction):
    training = Dynamics(K, Y[:, 0], loss="mean")
    times = training.time_to_fit(fraction)
    left = torch.stack([training.modes(float(t))[i] for i, t in enumerate(times)]) / training.modes(0.0)
    close(left, torch.full((N,), fraction, dtype=torch.float64))
    ridged = Dynamics(K, Y[:, 0], ridge=0.7)
    learned = torch.stack([ridged.modes(float(t))[i] for i, t in enumerate(ridged.time_to_fit(fraction))])
    start, end = ridged.modes(0.0), ridged.modes(math.inf)
    close((learned - end) / (start - end), torch.full((N,), fraction, dtype=torch.float64))


@pytest.mark.parametrize("descent", [GradientDescent(0.01), HeavyBall(0.01, 0.5), MomentumFlow(3.0)], ids=str)
def test_times_to_fit_are_those_of_the_late_decay(descent):
    training = Dynamics(K, Y[:, 0], descent=descent)
    slowest = -1
    t = float(training.time_to_fit(math.exp(-1))[slowest])
    early, late = (float(training.modes(round(k * t))[slowest]) for k in (3, 4))
    assert math.log(early / late) == pytest.approx(round(4 * t) / t - round(3 * t) / t, rel=1e-3)
