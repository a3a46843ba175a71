"""One digit against the rest by one output: the network, its linearization by SGD, and the same linear model solved.

The linear model f(w0, x) + J(w0, x) u has a solution of least norm, u = Jᵀ (J Jᵀ)⁺ (y - f(w0, X)), which fits
the labels where SGD does not get. Where the number of samples is near the rank of J it overfits.
"""

import copy
import math
from dataclasses import dataclass
from typing import Any

import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from tangentkit import KernelRegression, TangentKernel, spectrum
from tangentkit.core.errors import InputError, NumericalError
from tangentkit.core.seeds import Key
from tangentkit.data.dataset import Data
from tangentkit.linearized import Training
from tangentkit.models import lenet
from tangentkit.studies.linearization.binary_solver_result import result as result
from tangentkit.studies.linearization.images import drawn_images
from tangentkit.studies.trials.data import cards, first_here
from tangentkit.studies.trials.fields import check_rising
from tangentkit.studies.trials.pairs import train_pair
from tangentkit.studies.trials.trial import Trial, sweep

THRESHOLD = 0.5
"""Outputs above are the digit, whose target is 1; that of the others is 0."""


@dataclass(frozen=True)
class Config:
    """Settings of the study of solvers."""

    data: tuple[str, ...] = ("mnist", "fashion-mini")
    """The images, in order of preference."""
    digit: int = 0
    """The class that is told from the others."""
    train: int = 600
    """Training images m. Published: 60,000, as many as LeNet×1 has parameters."""
    test: int = 1000
    """Test images."""
    widths: tuple[float, ...] = (0.1, 0.2, 0.5)
    """The k of LeNet×k, rising: about 1.3, 4 and 25 times as many parameters as training images, as published."""
    shift: int = 7
    """How far shifted images are moved, in pixels, at least 1."""
    epochs: int = 40
    """Passes of SGD over the training images."""
    learning_rate: float = 0.05
    """Of SGD, for both models."""
    ridges: tuple[float, ...] = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
    """Ridges to choose from by leave-one-out errors, as shares of the mean of the kernel's diagonal."""
    curve: tuple[int, ...] = (75, 150, 300, 600, 1200)
    """Training images of the interpolation curve of the narrowest network, rising."""
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    """Each has its own images, initialization and mini-batches."""

    def __post_init__(self) -> None:
        check_rising("widths", self.widths)
        check_rising("curve", self.curve)
        if not 0 <= self.digit <= 9:
            raise InputError("bad digit", expected="from 0 to 9", got=self.digit)


SCALES = {
    "quick": Config(),
    "evening": Config(
        train=1200, test=2000, widths=(0.19, 0.4, 0.8), epochs=60, curve=(150, 300, 600, 1200, 2400)
    ),
    "full": Config(
        train=60_000,
        test=10_000,
        widths=(1.0, 2.0, 5.0),
        epochs=200,
        learning_rate=0.01,
        curve=(7500, 15_000, 30_000, 60_000),
    ),
}


def trials(config: Config) -> list[Trial]:
    """The models of every width, and the solver over the number of samples; each for every seed."""
    fixed = {
        "data": first_here(config.data),
        "digit": config.digit,
        "test": config.test,
        "ridges": config.ridges,
    }
    shifts = (0, config.shift)
    return [
        *sweep(
            interpolate,
            {"samples": config.curve, "shift": shifts, "seed": config.seeds},
            width=config.widths[0],
            **fixed,
        ),
        *sweep(
            compare,
            {"width": config.widths, "shift": shifts, "seed": config.seeds},
            train=config.train,
            epochs=config.epochs,
            learning_rate=config.learning_rate,
            **fixed,
        ),
    ]


def compare(
    *,
    data: str,
    digit: int,
    shift: int,
    width: float,
    seed: int,
    train: int,
    test: int,
    epochs: int,
    learning_rate: float,
    ridges: tuple[float, ...],
) -> dict[str, Any]:
    """The four models of one network, each with its accuracies and its area under the curve.

    Raises:
        NumericalError: training of the network or of its linearization diverged.
    """
    task = _task(data, digit, shift, width, seed, train, test)
    settings = Training(epochs, learning_rate, momentum=0.9, weight_decay=5e-5, batch=32)
    pair = train_pair(
        task.network, task.x[0], task.y[0], settings, key=Key(seed).fold("binary-solver", "batches")
    )
    diverged = [name for name, value in pair.last("train loss").items() if math.isnan(value)]
    if diverged:
        raise NumericalError(f"{' and '.join(diverged)} diverged", hint="a smaller --learning-rate")
    with torch.no_grad():
        outputs = {
            "network": [pair.network(x).flatten() for x in task.x],
            "linearized": [pair.linearized(x).flatten() for x in task.x],
        }
    solved = solve(task, ridges)
    return {**solved.facts, **_scores(outputs | solved.outputs, task.y), "data_cards": cards(data)}


def interpolate(
    *,
    data: str,
    digit: int,
    shift: int,
    width: float,
    seed: int,
    samples: int,
    test: int,
    ridges: tuple[float, ...],
) -> dict[str, Any]:
    """The solver and the ridge with some number of samples; fewer are a part of more."""
    task = _task(data, digit, shift, width, seed, samples, test)
    solved = solve(task, ridges)
    errors = {
        f"error_{name}": float((both[1] - task.y[1]).square().mean()) for name, both in solved.outputs.items()
    }
    return {**solved.facts, **errors, **_scores(solved.outputs, task.y), "data_cards": cards(data)}


@dataclass(frozen=True, eq=False)
class _Task:
    """A network at its initialization, and training and test samples with targets 0 and 1."""

    network: nn.Module
    x: tuple[Tensor, Tensor]
    y: tuple[Tensor, Tensor]


def _task(data: str, digit: int, shift: int, width: float, seed: int, train: int, test: int) -> _Task:
    key = Key(seed).fold("binary-solver", shift)
    sets = drawn_images(data, train, test, shift, key.fold("images"))
    channels, size = sets[0].inputs.shape[1:3]
    network = lenet(width, channels=channels, size=size, outputs=1, seed=key.fold("network"))
    return _Task(
        network, (sets[0].inputs, sets[1].inputs), (_targets(sets[0], digit), _targets(sets[1], digit))
    )


def _targets(data: Data, digit: int) -> Tensor:
    return (data.targets == digit).float()


@dataclass(frozen=True, eq=False)
class _Solved:
    """Outputs on training and test samples of the solution of least norm and of the ridge, and facts about J."""

    outputs: dict[str, list[Tensor]]
    facts: dict[str, Any]


def solve(task: _Task, ridges: tuple[float, ...]) -> _Solved:
    """The linear model solved in float64: of least norm, and with the ridge of the least leave-one-out error.

    Eigenvalues of J Jᵀ within rounding count as zero. On the scale of singular values that is about 1e-8 of the
    largest, near the 1e-7 of a least-squares solver in float32.
    """
    network = copy.deepcopy(task.network).double()
    x, x_test = (one.double() for one in task.x)
    kernel = TangentKernel(network)
    K, across = kernel(x), kernel(x_test, x)
    with torch.no_grad():
        f0, f0_test = network(x).flatten(), network(x_test).flatten()
    solver = KernelRegression(solver="eigh").fit(K, task.y[0].double(), f0=f0)
    mean = float(K.diagonal().mean())
    path = solver.ridge_path(ridge * mean for ridge in ridges)
    chosen = min(path, key=lambda machine: float(machine.leave_one_out().square().mean()))
    found = spectrum(K)
    return _Solved(
        {
            name: [machine.predict(K, f0=f0).float(), machine.predict(across, f0=f0_test).float()]
            for name, machine in (("solver", solver), ("ridge", chosen))
        },
        {
            "parameters": sum(p.numel() for p in network.parameters()),
            "rank": int((found.values > found.noise).sum()),
            "chosen_ridge": chosen.ridge / mean,
        },
    )


def _scores(outputs: dict[str, list[Tensor]], targets: tuple[Tensor, Tensor]) -> dict[str, float]:
    """Accuracy in percent on training and test samples, and the area under the curve on test samples."""
    scores = {}
    for name, both in outputs.items():
        for split, values, y in zip(("train", "test"), both, targets, strict=True):
            right = (values > THRESHOLD) == (y > THRESHOLD)
            scores[f"{split}_{name}"] = 100 * float(right.double().mean())
        scores[f"auc_{name}"] = float(roc_auc_score(targets[1].numpy(), both[1].numpy()))
    return scores
