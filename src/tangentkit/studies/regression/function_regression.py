"""Regression of smooth functions: a network against the kernels that it carries while it is trained.

From one network, at several moments of its training, three regressions are made on the same nodes: with its tangent
kernel (NTK), with its conjugate kernel (CK), and by least squares on the features of the conjugate kernel (CKJ),
which does not square their condition number.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor, nn

from tangentkit.core.errors import InputError
from tangentkit.core.seeds import Key
from tangentkit.data.dataset import Data
from tangentkit.data.synthetic import FUNCTIONS
from tangentkit.empirical import ConjugateKernel, TangentKernel
from tangentkit.linearized import Training, train
from tangentkit.machines import KernelRegression
from tangentkit.models import mlp
from tangentkit.report import Boxes, Claim, Column, Figure, Lines, Measured, Series, StandIn, Table
from tangentkit.studies.trials.data import cards, whole
from tangentkit.studies.trials.fields import check_known
from tangentkit.studies.trials.per_seed import mean_over_tasks
from tangentkit.studies.trials.records import Records
from tangentkit.studies.trials.study import Result
from tangentkit.studies.trials.trial import Trial, sweep

METHODS = ("NN", "NTK", "CK", "CKJ")
ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU}


@dataclass(frozen=True)
class Config:
    """Settings of the regression of functions."""

    functions: tuple[str, ...] = ("f1", "f2", "f3")
    """exp(sin(2πx)), exp(3x), cos(exp(3x)) on [-1, 1]."""
    width: int = 128
    """Of each hidden layer."""
    wide: int = 256
    """Of a second network, with more features than there are nodes."""
    depth: int = 3
    """Hidden layers."""
    epochs: int = 2400
    """Steps of Adam on all nodes."""
    moments: tuple[int, ...] = (0, 100, 200, 400, 800, 1200, 1600, 2000, 2400)
    """Epochs at which the kernels are taken; the last one is the end of training."""
    learning_rate: float = 1e-3
    """Of Adam."""
    cutoff: float = 1e-15
    """Eigenvalues (NTK, CK) or singular values (CKJ) up to this share of the largest count as zero."""
    seeds: tuple[int, ...] = tuple(range(100))
    """One network for each, with each function."""

    def __post_init__(self) -> None:
        check_known("functions", self.functions, FUNCTIONS)
        if sorted({0, self.epochs, *self.moments}) != list(self.moments):
            raise InputError(
                "bad moments", expected=f"increasing, from 0 to epochs = {self.epochs}", got=self.moments
            )


SCALES = {
    "quick": Config(
        width=64, wide=256, epochs=800, moments=(0, 50, 100, 200, 400, 800), seeds=tuple(range(5))
    ),
    "evening": Config(seeds=tuple(range(10))),
    "full": Config(),
}


def trials(config: Config) -> list[Trial]:
    """Tanh and ReLU networks of the usual width, and tanh networks of the larger one."""
    over = {"function": config.functions, "seed": config.seeds}
    fixed = {
        "depth": config.depth,
        "moments": config.moments,
        "learning_rate": config.learning_rate,
        "cutoff": config.cutoff,
    }
    return [
        trial
        for activation, width in _kinds(config)
        for trial in sweep(fit_function, over, activation=activation, width=width, **fixed)
    ]


def _kinds(config: Config) -> tuple[tuple[str, int], ...]:
    return ("tanh", config.width), ("relu", config.width), ("tanh", config.wide)


def fit_function(
    *,
    function: str,
    activation: str,
    width: int,
    depth: int,
    moments: Sequence[int],
    learning_rate: float,
    cutoff: float,
    seed: int,
) -> dict[str, Any]:
    """Trains one network, and gives the test error of each method at every moment."""
    nodes, test = (whole(f"function-{function}", split) for split in ("train", "test"))
    key = Key(seed).fold("function-regression")
    sizes = (1, *[width] * depth, 1)
    network = mlp(sizes, activation=ACTIVATIONS[activation], seed=key.fold("weights")).double()
    errors: dict[str, list[float]] = {method: [] for method in METHODS}

    def look(model: nn.Module, row: Mapping[str, float]) -> None:
        if row["epoch"] in moments:
            for method, prediction in predictions(model, nodes, test, cutoff).items():
                errors[method].append(distance(prediction, test))

    # Σ w (y - f)² is the mean of (√(nw) y - √(nw) f)².
    roots = (len(nodes) * _weights(nodes)).sqrt()
    train(
        network,
        (nodes.inputs, roots),
        roots * nodes.targets,
        Training(moments[-1], learning_rate, optimizer="adam", batch=None),
        key=key.fold("training"),
        watcher=look,
        forward=lambda model, batch: batch[1][:, None] * model(batch[0]),
    )
    return {"errors": errors, "data_cards": cards(nodes.name)}


def predictions(model: nn.Module, nodes: Data, test: Data, cutoff: float) -> dict[str, Tensor]:
    """What the network says at the test nodes, and what the regressions with its kernels say."""
    machines = {
        "NTK": KernelRegression(TangentKernel(model), solver="eigh", cutoff=cutoff),
        "CK": KernelRegression(ConjugateKernel(model, bias=True), solver="eigh", cutoff=cutoff),
        "CKJ": KernelRegression(ConjugateKernel(model, bias=True), solver="features", cutoff=cutoff),
    }
    fitted = {
        name: machine.fit(nodes.inputs, nodes.targets, nodes.weights) for name, machine in machines.items()
    }
    network = model(test.inputs).detach()[:, 0]
    return {"NN": network, **{name: machine.predict(test.inputs) for name, machine in fitted.items()}}


def _weights(data: Data) -> Tensor:
    assert data.weights is not None, "the nodes of a function have weights"
    return data.weights


def distance(prediction: Tensor, data: Data) -> float:
    """sqrt(Σ_i v_i (f(z_i) - y_i)²), v the weights of the trapezoid rule."""
    return float((_weights(data) * (prediction - data.targets).square()).sum().sqrt())


def result(config: Config, records: Records) -> Result:
    """How far the four methods are from the functions, in orders of magnitude."""
    tanh, relu, wide = (
        records.where(activation=activation, width=width) for activation, width in _kinds(config)
    )
    gain, gap = (
        float(np.mean(_per_seed(config, tanh, what))) for what in (_network_over_kernels, _ck_over_ckj)
    )
    return Result(
        answer=(
            f"With tanh, regression with either kernel of a trained network errs {10**gain:,.0f} times less than "
            f"the network, and least squares on the conjugate features {10**gap:,.0f} times less than the "
            "conjugate kernel (geometric means over functions and seeds). With ReLU the four are close."
        ),
        claims=_claims(config, tanh, relu, wide),
        tables={"errors": _table(config, {"tanh": tanh, "ReLU": relu, "tanh, wide": wide})},
        figures={
            **{f"evolution-{name}": _evolution(config, tanh, name, "tanh") for name in config.functions},
            "errors": _boxes(config, tanh, f"Errors of tanh networks of width {config.width}"),
            "errors-wide": _boxes(config, wide, f"Errors of tanh networks of width {config.wide}"),
            "errors-relu": _boxes(config, relu, f"Errors of ReLU networks of width {config.width}"),
            **{f"evolution-relu-{name}": _evolution(config, relu, name, "ReLU") for name in config.functions},
        },
        stand_ins=(
            StandIn(
                "size",
                "width 128, 2,400 epochs, 100 runs",
                f"width {config.width}, {config.epochs:,} epochs, {len(config.seeds)} runs",
                "time of this scale",
            ),
            StandIn("initialization", "not stated", "PyTorch's default", "the natural choice there"),
            StandIn(
                "cut-off of the pseudo-inverse", "not stated", f"{config.cutoff:g}", "rounding of float64"
            ),
        ),
        terms={
            "NN": "the trained network itself",
            "NTK": "regression with its neural tangent kernel, by the pseudo-inverse of the weighted kernel matrix",
            "CK": "the same with its conjugate kernel, 1 + z(x) · z(x') of its last hidden layer z",
            "CKJ": "weighted least squares on the features (z, 1) themselves, by a singular value decomposition",
            "error": "the L2 norm of the difference to the function on 601 nodes of [-1, 1], by the trapezoid rule",
        },
        notes=(
            "The publication prints no numbers: its claims are read off its figures. Where it says 'several orders "
            "of magnitude' we ask for two, where it says 'about equal' for less than one.",
            "Tried at the published size (width 128, 2,400 epochs, seeds 0 to 4), in orders of magnitude with "
            "standard errors: with tanh, NN over the worse kernel 2.59 ± 0.08, CK over CKJ 2.66 ± 0.14, the fall of "
            "NN in the second half over that of the kernels 0.04 ± 0.05 (they still fall with f3, and stay with f2); "
            "with ReLU, NN over CK 0.11 ± 0.12, NTK over CK 0.22 ± 0.10, and NTK over the largest of the others "
            "0.02 ± 0.15: it is the worst in three seeds of five.",
            "A pseudo-inverse that is formed as a matrix, as numpy.linalg.pinv does, loses digits: at the published "
            "size with tanh the error of NTK is then 90 times larger, and still 25 times below that of NN. Here the "
            "targets go through the eigenvectors one after the other.",
        ),
    )


Row = Mapping[str, Any]
Quantity = Callable[[Row], float]
"""The errors of one trained network at all moments -> a number in orders of magnitude."""
MakeClaim = Callable[..., Claim]
NN_OVER_KERNELS, CK_OVER_CKJ = "error of NN over the larger of NTK and CK", "error of CK over CKJ"


def _at(row: Row, method: str, moment: int = -1) -> float:
    return float(np.log10(row["errors"][method][moment]))


def _kernels(row: Row, moment: int = -1) -> float:
    return max(_at(row, "NTK", moment), _at(row, "CK", moment))


def _network_over_kernels(row: Row) -> float:
    return _at(row, "NN") - _kernels(row)


def _ck_over_ckj(row: Row) -> float:
    return _at(row, "CK") - _at(row, "CKJ")


def _per_seed(config: Config, records: Records, quantity: Quantity) -> tuple[float, ...]:
    return tuple(mean_over_tasks(records, quantity, tasks=len(config.functions)).values())


def _claims(config: Config, tanh: Records, relu: Records, wide: Records) -> tuple[Claim, ...]:
    """The statements of Figures 3 to 7."""

    def claim(
        statement: str, published: str, words: str, records: Records, quantity: Quantity, low=0.0, high=np.inf
    ) -> Claim:
        words = f"{words} (log10, mean over the functions)"
        values = _per_seed(config, records, quantity)
        return Claim(statement, words, values, low=low, high=high, published=published)

    return (*_tanh_claims(config, claim, tanh, wide), *_relu_claims(claim, relu))


def _tanh_claims(config: Config, claim: MakeClaim, tanh: Records, wide: Records) -> tuple[Claim, ...]:
    """Figures 3 to 5."""
    half = int(np.searchsorted(config.moments, config.epochs / 2))

    def lead(row: Row) -> float:
        others = [min(_at(row, name, i) for name in METHODS[:3]) for i in range(len(config.moments))]
        return min(other - _at(row, "CKJ", i) for i, other in enumerate(others))

    def left_to_gain(row: Row) -> float:
        return (_at(row, "NN", half) - _at(row, "NN")) - (_kernels(row, half) - _kernels(row))

    return (
        claim(
            "Both kernels of a trained tanh network err less than the network",
            "NN far above NTK and CK (Figure 3)",
            NN_OVER_KERNELS,
            tanh,
            _network_over_kernels,
        ),
        claim(
            "NTK and CK err alike",
            "about equal (Figure 3)",
            "error of NTK over CK",
            tanh,
            lambda row: _at(row, "NTK") - _at(row, "CK"),
            -1,
            1,
        ),
        claim(
            "Least squares on the conjugate features errs less than the conjugate kernel by several orders",
            "lower by several orders of magnitude (Figure 3)",
            CK_OVER_CKJ,
            tanh,
            _ck_over_ckj,
            2,
        ),
        claim(
            "The kernels reach their plateau before the network: halfway they have less left to gain",
            "kernels fall faster, then stay (Figure 4)",
            "fall of NN in the second half of training, over that of the worse kernel",
            tanh,
            left_to_gain,
        ),
        claim(
            "CKJ is the lowest at every moment of training",
            "lowest (Figure 4)",
            "least error of the others over CKJ, at the moment where it is least",
            tanh,
            lead,
        ),
        claim(
            "The same with more features than nodes: both kernels err less than the network",
            "same as for the smaller width (Figure 5)",
            NN_OVER_KERNELS,
            wide,
            _network_over_kernels,
        ),
        claim(
            "The same with more features than nodes: CKJ errs less than CK by several orders",
            "same as for the smaller width (Figure 5)",
            CK_OVER_CKJ,
            wide,
            _ck_over_ckj,
            2,
        ),
    )


def _relu_claims(claim: MakeClaim, relu: Records) -> tuple[Claim, ...]:
    """Figures 6 and 7."""
    return (
        claim(
            "With ReLU the separation vanishes: CKJ errs like CK",
            "the separation vanishes (Figures 6 and 7)",
            CK_OVER_CKJ,
            relu,
            _ck_over_ckj,
            -0.5,
            0.5,
        ),
        claim(
            "With ReLU the conjugate kernel errs slightly less than the network",
            "CK slightly better than NN (Figures 6 and 7)",
            "error of NN over CK",
            relu,
            lambda row: _at(row, "NN") - _at(row, "CK"),
            0,
            1,
        ),
        claim(
            "With ReLU the tangent kernel errs most",
            "NTK worst (Figures 6 and 7)",
            "error of NTK over the largest of the others",
            relu,
            lambda row: _at(row, "NTK") - max(_at(row, "NN"), _at(row, "CK"), _at(row, "CKJ")),
        ),
    )


def _table(config: Config, groups: Mapping[str, Records]) -> Table:
    rows = tuple(
        (kind, name, *(Measured.over([row["errors"][method][-1] for row in chosen]) for method in METHODS))
        for kind, records in groups.items()
        for name in config.functions
        if (chosen := records.where(function=name))
    )
    return Table(
        "Test errors at the end of training",
        ("network", "function", *(Column(method, ".1e") for method in METHODS)),
        rows,
        note="Mean and standard error over seeds. The publication shows these as figures without numbers.",
        ours=tuple(range(len(rows))),
    )


def _boxes(config: Config, records: Records, title: str) -> Boxes:
    return Boxes(
        title=title,
        caption=f"Test errors at the end of training of {len(config.seeds)} networks, for each function and method.",
        samples={
            f"{name} {method}": [row["errors"][method][-1] for row in chosen]
            for name in config.functions
            for method in METHODS
            if (chosen := records.where(function=name))
        },
        y_label="test error",
        y_scale="log",
        size=(6.0, 3.4),
    )


def _evolution(config: Config, records: Records, name: str, kind: str) -> Figure:
    rows = records.where(function=name)
    return Lines(
        title=f"Errors over training, {name}, {kind}",
        caption="Geometric mean over seeds of the test error at each moment of training.",
        series={
            method: Series(
                config.moments, np.exp(np.mean(np.log([row["errors"][method] for row in rows]), axis=0))
            )
            for method in METHODS
            if rows
        },
        x_label="epoch",
        y_label="test error",
        y_scale="log",
        legend="beside",
    )
