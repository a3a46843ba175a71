"""Bounds between the errors of the tangent and the conjugate kernel, on the networks of the regression studies.

Theorems 4.1 to 5.2 of the publication bound the test error of either kernel by a constant times that of the other.
The networks of the studies function-regression and logistic-regression are trained again, from the same seeds, and
the constants, the assumptions and both sides of every inequality are computed.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor, nn

from tangentkit.core.seeds import Key
from tangentkit.data.dataset import Data
from tangentkit.data.synthetic import BOUNDARIES, FUNCTIONS
from tangentkit.empirical import ConjugateKernel, TangentKernel
from tangentkit.linearized import Stop, Training, train
from tangentkit.machines import KernelLogistic, KernelRegression
from tangentkit.models import mlp
from tangentkit.reference import jacobian
from tangentkit.studies.regression.function_regression import ACTIVATIONS, distance
from tangentkit.studies.regression.kernel_bounds_result import report
from tangentkit.studies.regression.logistic_regression import LOG_ODDS, measured
from tangentkit.studies.trials.data import cards, whole
from tangentkit.studies.trials.fields import check_known
from tangentkit.studies.trials.records import Records
from tangentkit.studies.trials.study import Result
from tangentkit.studies.trials.trial import Trial, sweep


@dataclass(frozen=True)
class Config:
    """Settings of the study of kernel bounds."""

    functions: tuple[str, ...] = ("f1", "f2", "f3")
    """exp(sin(2πx)), exp(3x), cos(exp(3x)) on [-1, 1]."""
    boundaries: tuple[str, ...] = ("F1", "F2")
    """4x² - 3x + 5y - 1 and 2x³ - 0.6x² - 1.94x + y + 0.2: the class is their sign."""
    width: int = 128
    """Of each hidden layer of the networks that learn functions."""
    depth: int = 3
    """Their hidden layers."""
    epochs: int = 2400
    """Steps of Adam on all nodes."""
    learning_rate: float = 1e-3
    """Of Adam."""
    cutoff: float = 1e-15
    """Eigenvalues (kernels) or singular values (features) up to this share of the largest count as zero."""
    class_width: int = 128
    """Of each of two hidden layers of the networks that learn classes."""
    class_epochs: int = 4000
    """Most steps of Adam of these; training ends before at a training accuracy of 0.85."""
    class_rate: float = 1e-5
    """Of their Adam."""
    ridges: tuple[float, ...] = (1e-8, 1e-3)
    """Weights of the norm in the kernel logistic regressions; the first is for the claims."""
    newton_steps: int = 100
    """Of the kernel logistic regressions, at most."""
    seeds: tuple[int, ...] = tuple(range(100))
    """One network for each, with each function and boundary."""

    def __post_init__(self) -> None:
        check_known("functions", self.functions, FUNCTIONS)
        check_known("boundaries", self.boundaries, BOUNDARIES)


SCALES = {
    "quick": Config(width=64, epochs=800, class_epochs=2000, seeds=tuple(range(5))),
    "evening": Config(seeds=tuple(range(10))),
    "full": Config(),
}


def trials(config: Config) -> list[Trial]:
    """Tanh and ReLU networks that learn functions, and such that learn classes."""
    activations = {"activation": tuple(ACTIVATIONS)}
    return [
        *sweep(
            bound_regression,
            {"function": config.functions, **activations, "seed": config.seeds},
            width=config.width,
            depth=config.depth,
            epochs=config.epochs,
            learning_rate=config.learning_rate,
            cutoff=config.cutoff,
        ),
        *sweep(
            bound_classes,
            {"boundary": config.boundaries, **activations, "seed": config.seeds},
            width=config.class_width,
            epochs=config.class_epochs,
            learning_rate=config.class_rate,
            ridges=config.ridges,
            newton_steps=config.newton_steps,
        ),
    ]


def result(config: Config, records: Records) -> Result:
    """Both sides of the inequalities, and the constants."""
    return report(records, config.functions, config.boundaries, config.ridges, config.seeds)


def bound_regression(
    *,
    function: str,
    activation: str,
    width: int,
    depth: int,
    epochs: int,
    learning_rate: float,
    cutoff: float,
    seed: int,
) -> dict[str, Any]:
    """Errors of both kernels of a trained network on nodes and test nodes, by two routes.

    They are the pseudo-inverse of the kernel matrix, and least squares on the features, which does not square their
    condition number.
    """
    nodes, test = (whole(f"function-{function}", split) for split in ("train", "test"))
    model = trained_on_function(nodes, activation, width, depth, epochs, learning_rate, seed)
    conjugate = ConjugateKernel(model, bias=True)
    every = (len(test) - 1) // (len(nodes) - 1)
    features = {"NTK": jacobian(model, test.inputs)[:, 0], "CK": conjugate.features(test.inputs)}
    found = {"kernel": {}, "features": {}}
    for name, kernel in (("NTK", TangentKernel(model)), ("CK", conjugate)):
        by_kernel = KernelRegression(kernel, solver="eigh", cutoff=cutoff)
        by_kernel.fit(nodes.inputs, nodes.targets, nodes.weights)
        found["kernel"][name] = by_kernel.predict(test.inputs)
        by_features = KernelRegression("features", solver="features", cutoff=cutoff)
        by_features.fit(features[name][::every], nodes.targets, nodes.weights)
        found["features"][name] = by_features.predict(features[name])
    routes = {route: compared(one["NTK"], one["CK"], nodes, test) for route, one in found.items()}
    return {"routes": routes, "data_cards": cards(nodes.name)}


def trained_on_function(
    nodes: Data, activation: str, width: int, depth: int, epochs: int, learning_rate: float, seed: int
) -> nn.Module:
    """The network that the study function-regression has trained with this seed."""
    assert nodes.weights is not None, "the nodes of a function have weights"
    key = Key(seed).fold("function-regression")
    sizes = (1, *[width] * depth, 1)
    model = mlp(sizes, activation=ACTIVATIONS[activation], seed=key.fold("weights")).double()
    # Σ w (y - f)² is the mean of (√(nw) y - √(nw) f)².
    roots = (len(nodes) * nodes.weights).sqrt()
    train(
        model,
        (nodes.inputs, roots),
        roots * nodes.targets,
        Training(epochs, learning_rate, optimizer="adam", batch=None),
        key=key.fold("training"),
        forward=lambda model, batch: batch[1][:, None] * model(batch[0]),
    )
    return model


def compared(ntk: Tensor, ck: Tensor, nodes: Data, test: Data) -> dict[str, float]:
    """‖f - f_NTK‖ and ‖f - f_CK‖ on the nodes (0) and on the test nodes (1), their difference, and monotone cells.

    The nodes are among the test nodes, `every` of them apart: what is known there is known at the nodes.
    """
    every = (len(test) - 1) // (len(nodes) - 1)
    found: dict[str, float] = {"tau": float(every)}
    for name, prediction in (("NTK", ntk), ("CK", ck)):
        found[f"{name}_0"] = distance(prediction[::every], nodes)
        found[f"{name}_1"] = distance(prediction, test)
        found[f"{name}_monotone"] = monotone_cells(prediction - test.targets, every)
    # The distance of f_NTK from f_CK, as that of targets f + (f_NTK - f_CK) from f.
    found["apart_0"] = distance(nodes.targets + (ntk - ck)[::every], nodes)
    return found


def monotone_cells(g: Tensor, every: int) -> float:
    """The share of cells between two nodes, `every` steps long, on which g rises or falls throughout.

    Example:
        >>> monotone_cells(torch.tensor([0.0, 1.0, 2.0, 1.0, 3.0]), 2)
        0.5
    """
    steps = g.diff().reshape(-1, every)
    return float(((steps >= 0).all(1) | (steps <= 0).all(1)).double().mean())


def bound_classes(
    *,
    boundary: str,
    activation: str,
    width: int,
    epochs: int,
    learning_rate: float,
    ridges: tuple[float, ...],
    newton_steps: int,
    seed: int,
) -> dict[str, Any]:
    """Losses of both kernels of a network on points and test points, and what the bounds are made of."""
    points, test = (whole(f"grid-{boundary}", split) for split in ("train", "test"))
    model = trained_on_classes(points, activation, width, epochs, learning_rate, seed)
    kernels = {
        "NTK": TangentKernel(model, LOG_ODDS),
        "CK": TangentKernel(model, LOG_ODDS, params=lambda name, _: name.startswith("fc3")),
    }
    found = []
    for ridge in ridges:
        row = {"tau": refinement(points, test), "mesh": mesh(points, test)}
        for name, kernel in kernels.items():
            K, k = kernel(points.inputs), kernel(test.inputs, points.inputs)
            machine = KernelLogistic(ridge=ridge, max_iter=newton_steps)
            with warnings.catch_warnings():
                warnings.simplefilter(
                    "ignore", ConvergenceWarning
                )  # the page says that fits end at the limit
                machine.fit(K, points.targets)
            odds = machine.decision_function(k)
            row[f"{name}_0"] = measured(machine.decision_function(K), points)["loss"]
            row[f"{name}_1"] = measured(odds, test)["loss"]
            row[f"{name}_lipschitz"] = steepness(odds, test)
        found.append(row)
    return {"ridged": found, "data_cards": cards(points.name)}


def trained_on_classes(
    points: Data, activation: str, width: int, epochs: int, learning_rate: float, seed: int
) -> nn.Module:
    """The network that the study logistic-regression has trained with this seed, when its accuracy is 0.85."""
    key = Key(seed).fold("logistic-regression")
    model = mlp((2, width, width, 2), activation=ACTIVATIONS[activation], seed=key.fold("weights")).double()
    training = Training(
        epochs,
        learning_rate,
        optimizer="adam",
        batch=None,
        loss="cross-entropy",
        stop=Stop(accuracy=0.85),
    )
    train(model, points.inputs, 1 - points.targets, training, key=key.fold("training"))
    return model


def refinement(points: Data, test: Data) -> float:
    """τ_1 τ_2: how many cells of the test grid there are for each cell of the training grid."""
    ratio = 1.0
    for axis in (0, 1):
        fine, coarse = (len(data.inputs[:, axis].unique()) - 1 for data in (test, points))
        ratio *= fine / coarse
    return ratio


def mesh(points: Data, test: Data) -> float:
    """h: the largest distance of a test point from the nearest training point."""
    return float(torch.cdist(test.inputs, points.inputs).min(1).values.max())


def steepness(values: Tensor, test: Data) -> float:
    """L: the largest slope of a function on the test grid, from the differences of neighbors along both axes."""
    axes = [test.inputs[:, i].unique() for i in (0, 1)]
    grid = values.reshape(len(axes[0]), len(axes[1]))
    across = grid.diff(dim=0)[:, :-1] / axes[0].diff()[:, None]
    along = grid.diff(dim=1)[:-1] / axes[1].diff()
    return float((across.square() + along.square()).sqrt().max())
