"""Logistic regression on a grid of the plane: a network that is stopped early against the kernels that it carries.

A network with two outputs learns where a polynomial is positive, and stops at a training accuracy of 0.85. Kernel
logistic regressions with its tangent kernel (NTK) and its conjugate kernel (CK) are then fitted to the same points.
Both are kernels of the difference of the outputs, the log-odds of the class "positive", which is the first output.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
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
from tangentkit.report import Boxes, Claim, Column, Lines, Measured, Series, StandIn, Table
from tangentkit.studies.regression.function_regression import ACTIVATIONS
from tangentkit.studies.trials.data import cards, whole
from tangentkit.studies.trials.fields import check_known, check_rising
from tangentkit.studies.trials.per_seed import mean_over_tasks
from tangentkit.studies.trials.records import Records
from tangentkit.studies.trials.study import Result
from tangentkit.studies.trials.trial import Trial, sweep

METHODS = ("NN", "NTK", "CK")
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
        for activation, width in _kinds(config)
        for trial in sweep(classify, over, activation=activation, width=width, **fixed)
    ]


def _kinds(config: Config) -> tuple[tuple[str, int], ...]:
    return ("tanh", config.width), ("tanh", config.narrow), ("relu", config.width)


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


def result(config: Config, records: Records) -> Result:
    """Losses and accuracies of network and kernels."""
    tanh, narrow, relu = (
        records.where(activation=activation, width=width) for activation, width in _kinds(config)
    )
    ratio, better = (float(np.mean(_per_seed(config, tanh, what))) for what in (_gain, _accuracy_gain))
    unfinished = [
        not row["trained"][name][i]["converged"] for row in records for name in ("NTK", "CK") for i in (0, 1)
    ]
    groups = {"tanh": tanh, "tanh, narrow": narrow, "ReLU": relu}
    return Result(
        answer=(
            f"Kernel logistic regression with either kernel of a tanh network that was stopped early has "
            f"{10**ratio:.2g} times less test cross-entropy than the network and {100 * better:.1f} percentage "
            "points more accuracy."
        ),
        claims=tuple(replace(claim, larger="--width") for claim in _claims(config, tanh, narrow, relu)),
        tables={
            "losses": _table(config, groups, "loss", "Test cross-entropy of trained networks (sum)", ".1f"),
            "accuracies": _table(config, groups, "accuracy", "Test accuracy of trained networks", ".3f"),
        },
        figures={
            **{f"evolution-{name}": _evolution(config, tanh, name, "tanh") for name in config.boundaries},
            "losses": _boxes(config, groups),
            **{
                f"evolution-relu-{name}": _evolution(config, relu, name, "ReLU") for name in config.boundaries
            },
        },
        stand_ins=(
            StandIn(
                "size",
                "at most 4,000 epochs, 100 runs",
                f"at most {config.epochs:,} epochs, {len(config.seeds)} runs",
                "time of this scale",
            ),
            StandIn("initialization", "not stated", "PyTorch's default", "the natural choice there"),
            StandIn(
                "fit of the kernel regressions",
                "Newton's method, details not stated",
                f"damped Newton, ridge {config.ridge:g}, at most {config.newton_steps} steps",
                "the data are separable: without a ridge the optimum is at infinity",
            ),
        ),
        terms={
            "NN": "the trained network itself",
            "NTK": "kernel logistic regression with the neural tangent kernel of its log-odds",
            "CK": "the same with its conjugate kernel, 2 (1 + z(x) · z(x')) of its last hidden layer z",
            "cross-entropy": "summed over the 506 test points, in nats",
        },
        notes=(
            "The publication prints no numbers: its claims are read off its figures.",
            f"The claims are judged with ridge {config.ridge:g}; the tables have {config.other_ridge:g} beside it. "
            f"Of {len(unfinished)} kernel fits of trained networks {sum(unfinished)} ended at the limit of steps.",
            "Tried, in log10 of test cross-entropies with standard errors (seeds 0 to 4, at most 2,000 epochs). With "
            "ridge 1e-3, NTK is slightly better than CK with tanh, as published: CK over NTK 0.076 ± 0.005; NN over "
            "the worse kernel is 0.86 ± 0.02 with tanh and 1.02 ± 0.03 with ReLU.",
            "Without any ridge, fits of separable data go on for ever, and what comes out depends on the number of "
            "Newton steps. After 5, 10, 20 and 100 steps NN over the worse kernel is 0.95, 0.73, 0.34 and 0.26 with "
            "tanh, and -0.29, -0.54, -0.82 and -0.88 (± 0.2) with ReLU: there the lead of the kernels does vanish. "
            "The published statement on ReLU is one about fits that are not regularized.",
            "The gap between NTK and CK is small with tanh at any time (0.2 at most) and grows; with ReLU it falls, "
            "by 0.17 ± 0.05 with ridge 1e-8 and 0.11 ± 0.02 with 1e-3.",
        ),
    )


Row = Mapping[str, Any]
Quantity = Callable[[Row], float]
"""The scores of one network and its kernels -> a number."""


def _log(scores: Row, name: str) -> float:
    return float(np.log10(scores[name][0]["loss"]))


def _gain(row: Row) -> float:
    """log10 of the loss of the network over that of the worse kernel."""
    scores = row["trained"]
    return _log(scores, "NN") - max(_log(scores, "NTK"), _log(scores, "CK"))


def _accuracy_gain(row: Row) -> float:
    network, *kernels = (row["trained"][name][0]["accuracy"] for name in METHODS)
    return min(kernels) - network


def _ck_over_ntk(scores: Row) -> float:
    return _log(scores, "CK") - _log(scores, "NTK")


def _by_seed(config: Config, records: Records, quantity: Quantity) -> dict[int, float]:
    return mean_over_tasks(records, quantity, tasks=len(config.boundaries))


def _per_seed(config: Config, records: Records, quantity: Quantity) -> tuple[float, ...]:
    return tuple(_by_seed(config, records, quantity).values())


def _claims(config: Config, tanh: Records, narrow: Records, relu: Records) -> tuple[Claim, ...]:
    """The statements of Figures 8 to 11."""
    early = config.moments[1]
    gain = "log10 of the test cross-entropy of NN over the larger of NTK and CK"
    smooth, kinked = (_by_seed(config, group, _gain) for group in (tanh, relu))

    def claim(
        statement: str, quantity: str, published: str, values: Sequence[float], low=0.0, high=np.inf
    ) -> Claim:
        words = f"{quantity}, mean over the boundaries"
        return Claim(statement, words, tuple(values), low=low, high=high, published=published)

    def trained_over_early(row: Row) -> float:
        return _log(row["trained"], "NN") - max(_log(row["course"][1], name) for name in METHODS[1:])

    def shrinking(row: Row) -> float:
        return abs(_ck_over_ntk(row["course"][0])) - abs(_ck_over_ntk(row["course"][-1]))

    return (
        claim(
            "Both kernels have less test cross-entropy than the network",
            gain,
            "NN clearly worse (Figure 8)",
            _per_seed(config, tanh, _gain),
        ),
        claim(
            "Both kernels classify more test points right than the network",
            "accuracy of the worse kernel minus that of NN",
            "NN clearly worse (Figure 8)",
            _per_seed(config, tanh, _accuracy_gain),
        ),
        claim(
            "NTK is slightly better than CK",
            "log10 of the test cross-entropy of CK over NTK",
            "slightly better (Figure 8)",
            _per_seed(config, tanh, lambda row: _ck_over_ntk(row["trained"])),
            0,
            0.5,
        ),
        claim(
            f"The same at width {config.narrow}: both kernels have less test cross-entropy than the network",
            gain,
            "same as for the larger width (Figure 9)",
            _per_seed(config, narrow, _gain),
        ),
        claim(
            "With ReLU the gap between network and kernels vanishes",
            gain,
            "the gap vanishes (Figure 10)",
            _per_seed(config, relu, _gain),
            -0.3,
            0.3,
        ),
        claim(
            "With ReLU the gap is smaller than with tanh",
            f"{gain}, with tanh minus with ReLU",
            "the gap vanishes (Figure 10)",
            [smooth[seed] - kinked[seed] for seed in smooth if seed in kinked],
        ),
        claim(
            f"Kernels of a network after {early} epochs beat the trained network",
            f"log10 of the test cross-entropy of the trained NN over the larger of NTK and CK after {early} epochs",
            "kernels of a barely trained network already beat the final one (Figure 11)",
            _per_seed(config, tanh, trained_over_early),
        ),
        claim(
            "The gap between NTK and CK shrinks with training",
            "|log10 of the test cross-entropy of CK over NTK| before training minus at the last moment",
            "shrinks (Figure 11)",
            _per_seed(config, tanh, shrinking),
        ),
    )


def _table(config: Config, groups: Mapping[str, Records], value: str, title: str, form: str) -> Table:
    """A row for each kind of network and boundary, a column for NN and for each kernel and ridge."""
    ridges = enumerate((config.ridge, config.other_ridge))
    columns = [("NN", 0, "NN"), *((name, i, f"{name}, {r:g}") for i, r in ridges for name in METHODS[1:])]
    rows = tuple(
        (
            f"{kind}, {boundary}",
            *(Measured.over([row["trained"][name][i][value] for row in chosen]) for name, i, _ in columns),
        )
        for kind, records in groups.items()
        for boundary in config.boundaries
        if (chosen := records.where(boundary=boundary))
    )
    return Table(
        title,
        ("network and boundary", *(Column(heading, form) for *_, heading in columns)),
        rows,
        note="Mean and standard error over seeds; kernels with two ridges. The publication has no numbers.",
        ours=tuple(range(len(rows))),
    )


def _boxes(config: Config, groups: Mapping[str, Records]) -> Boxes:
    return Boxes(
        title="Test cross-entropy of trained networks and of their kernels",
        caption=f"Networks of {len(config.seeds)} seeds and both boundaries; kernels with ridge {config.ridge:g}.",
        samples={
            f"{kind}: {name}": [row["trained"][name][0]["loss"] for row in rows]
            for kind, rows in groups.items()
            for name in METHODS
            if rows
        },
        y_label="test cross-entropy (sum)",
        y_scale="log",
        size=(6.0, 3.6),
    )


def _evolution(config: Config, records: Records, boundary: str, kind: str) -> Lines:
    rows = records.where(boundary=boundary)
    return Lines(
        title=f"Test cross-entropy over training, {boundary}, {kind}",
        caption=(
            f"Geometric mean over seeds, kernels with ridge {config.ridge:g}. The network counts as trained at a "
            f"training accuracy of {config.accuracy:g}, which comes early."
        ),
        series={
            name: Series(
                config.moments,
                10 ** np.mean([[_log(scores, name) for scores in row["course"]] for row in rows], axis=0),
            )
            for name in METHODS
            if rows
        },
        x_label="epoch",
        y_label="test cross-entropy",
        y_scale="log",
        legend="beside",
    )
