"""Logistic regression on a grid of the plane: a network that is stopped early against the kernels that it carries.

A network with two outputs learns where a polynomial is positive, and stops at a training accuracy of 0.85. Kernel
logistic regressions with its tangent kernel (NTK) and its conjugate kernel (CK) are then fitted to the same points.
Both are kernels of the difference of the outputs, the log-odds of the class "positive", which is the first output.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor, nn

from tangentkit.core.errors import InputError
from tangentkit.core.seeds import Key
from tangentkit.data.dataset import Data
from tangentkit.data.synthetic import BOUNDARIES
from tangentkit.empirical import TangentKernel
from tangentkit.linearized import Training, train
from tangentkit.machines import KernelLogistic
from tangentkit.models import mlp
from tangentkit.studies.regression.function_regression import ACTIVATIONS
from tangentkit.studies.regression.logistic_regression_result import kinds
from tangentkit.studies.regression.logistic_regression_result import result as result
from tangentkit.studies.trials.data import cards, whole
from tangentkit.studies.trials.fields import check_known, check_rising
from tangentkit.studies.trials.trial import Trial, sweep

LOG_ODDS = torch.tensor([1.0, -1.0], dtype=torch.float64)
"""Of the first output, the class "positive", against the second."""


@dataclass(frozen=True)
class Config:
    """Settings of the logistic regressions."""

    boundaries: tuple[str, ...] = ("F1", "F2")
    """4x² - 3x + 5y - 1 and 2x³ - 0.6x² - 1.94x + y + 0.2: the class is their sign."""
    width: int = 128
    """Of each hidden layer."""
    narrow: int = 64
    """Of a second network."""
    depth: int = 2
    """Hidden layers."""
    epochs: int = 4000
    """Steps of Adam on all points, at most, until the network counts as trained."""
    accuracy: float = 0.85
    """Training accuracy at which the network counts as trained."""
    moments: tuple[int, ...] = (0, 10, 100, 500, 1000, 2000, 3000, 4000)
    """Epochs at which the kernels are taken, whether the network counts as trained or not."""
    learning_rate: float = 1e-5
    """Of Adam."""
    ridge: float = 1e-8
    """Weight of the norm in the kernel regressions, for the claims: as good as none."""
    other_ridge: float = 1e-3
    """A larger one, whose numbers stand beside."""
    newton_steps: int = 100
    """Of the kernel regressions, at most: without a ridge the optimum of separable data is at infinity."""
    seeds: tuple[int, ...] = tuple(range(100))
    """One network for each, with each boundary."""

    def __post_init__(self) -> None:
        check_known("boundaries", self.boundaries, BOUNDARIES)
        check_rising("moments", self.moments)
        if self.moments[-1] > self.epochs:
            raise InputError(
                "bad moments", expected=f"rising, up to the {self.epochs} epochs", got=self.moments
            )
        if self.accuracy > 1:
            raise InputError("bad accuracy", expected="a share, at most 1", got=self.accuracy)


SCALES = {
    "quick": Config(epochs=2000, moments=(0, 10, 100, 500, 1000, 2000), seeds=tuple(range(5))),
    "evening": Config(seeds=tuple(range(16))),
    "full": Config(),
}


def trials(config: Config) -> list[Trial]:
    """Tanh networks of two widths, and ReLU networks."""
    over = {"boundary": config.boundaries, "seed": config.seeds}
    same = ("depth", "epochs", "accuracy", "moments", "learning_rate", "newton_steps")
    fixed = {name: getattr(config, name) for name in same} | {"ridges": (config.ridge, config.other_ridge)}
    return [
        trial
        for activation, width in kinds(config)
        for trial in sweep(classify, over, activation=activation, width=width, **fixed)
    ]


def classify(
    *,
    boundary: str,
    activation: str,
    width: int,
    depth: int,
    epochs: int,
    accuracy: float,
    moments: Sequence[int],
    learning_rate: float,
    ridges: Sequence[float],
    newton_steps: int,
    seed: int,
) -> dict[str, Any]:
    """Trains one network, and gives what each method makes of the test points, when trained and at every moment."""
    points, test = (whole(f"grid-{boundary}", split) for split in ("train", "test"))
    key = Key(seed).fold("logistic-regression")
    sizes = (2, *[width] * depth, 2)
    network = mlp(sizes, activation=ACTIVATIONS[activation], seed=key.fold("weights")).double()
    course: list[dict[str, Any]] = []
    trained: dict[str, Any] = {}

    def look(model: nn.Module, row: Mapping[str, float]) -> None:
        is_moment = row["epoch"] in moments
        is_end = not trained and (row.get("train accuracy", 0) > accuracy or row["epoch"] == epochs)
        if is_moment or is_end:
            scores = {"epoch": int(row["epoch"]), **methods(model, points, test, ridges, newton_steps)}
            if is_moment:
                course.append(scores)
            if is_end:
                trained.update(scores)

    training = Training(epochs, learning_rate, optimizer="adam", batch=None, loss="cross-entropy")
    classes = 1 - points.targets  # the first output is the class "positive"
    train(network, points.inputs, classes, training, key=key.fold("training"), watcher=look)
    return {"trained": trained, "course": course, "data_cards": cards(points.name)}


def methods(
    model: nn.Module, points: Data, test: Data, ridges: Sequence[float], newton_steps: int
) -> dict[str, Any]:
    """Test cross-entropy and accuracy of the network; for each kernel, of one machine for each ridge."""
    kernels = {
        "NTK": TangentKernel(model, LOG_ODDS),
        "CK": TangentKernel(model, LOG_ODDS, params=lambda name, _: name.startswith(_last_layer(model))),
    }
    found: dict[str, Any] = {"NN": [measured(model(test.inputs).detach() @ LOG_ODDS, test)]}
    for name, kernel in kernels.items():
        K, k = kernel(points.inputs), kernel(test.inputs, points.inputs)
        found[name] = []
        for ridge in ridges:
            machine = KernelLogistic(ridge=ridge, max_iter=newton_steps)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # kept as "converged"
                machine.fit(K, points.targets)
            scores = measured(machine.decision_function(k), test)
            found[name].append({**scores, "converged": bool(machine.converged_)})
    return found


def measured(log_odds: Tensor, data: Data) -> dict[str, float]:
    """Cross-entropy, summed over the points, and accuracy of log-odds of class 1."""
    targets = data.targets.to(log_odds)
    loss = nn.functional.binary_cross_entropy_with_logits(log_odds, targets, reduction="sum")
    return {"loss": float(loss), "accuracy": float(((log_odds > 0) == (targets > 0)).double().mean())}


def _last_layer(model: nn.Module) -> str:
    return [name for name, module in model.named_modules() if isinstance(module, nn.Linear)][-1]
