"""What the logistic regressions say: losses and accuracies of networks and of the kernels that they carry."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tangentkit.report import Boxes, Claim, Column, Lines, Measured, Series, StandIn, Table
from tangentkit.studies.trials.per_seed import mean_over_tasks
from tangentkit.studies.trials.records import Records
from tangentkit.studies.trials.study import Result

if TYPE_CHECKING:
    from tangentkit.studies.regression.logistic_regression import Config

METHODS = ("NN", "NTK", "CK")
GAIN = "log10 of the test cross-entropy of NN over the larger of NTK and CK"


def kinds(config: "Config") -> tuple[tuple[str, int], ...]:
    """Activation and width of the networks: tanh, a narrower one, and ReLU."""
    return ("tanh", config.width), ("tanh", config.narrow), ("relu", config.width)


def result(config: "Config", records: Records) -> Result:
    """Losses and accuracies of network and kernels."""
    tanh, narrow, relu = (
        records.where(activation=activation, width=width) for activation, width in kinds(config)
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
        claims=tuple(_claims(config, tanh, narrow, relu)),
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
        notes=_notes(config, sum(unfinished), len(unfinished)),
    )


def _notes(config: "Config", unfinished: int, fits: int) -> tuple[str, ...]:
    return (
        "The publication prints no numbers: its claims are read off its figures.",
        f"The claims are judged with ridge {config.ridge:g}; the tables have {config.other_ridge:g} beside it. "
        f"Of {fits} kernel fits of trained networks {unfinished} ended at the limit of steps.",
        "Tried, in log10 of test cross-entropies with standard errors (seeds 0 to 4, at most 2,000 epochs). With "
        "ridge 1e-3, NTK is slightly better than CK with tanh, as published: CK over NTK 0.076 ± 0.005; NN over "
        "the worse kernel is 0.86 ± 0.02 with tanh and 1.02 ± 0.03 with ReLU.",
        "Without any ridge, fits of separable data go on for ever, and what comes out depends on the number of "
        "Newton steps. After 5, 10, 20 and 100 steps NN over the worse kernel is 0.95, 0.73, 0.34 and 0.26 with "
        "tanh, and -0.29, -0.54, -0.82 and -0.88 (± 0.2) with ReLU: there the lead of the kernels does vanish. "
        "The published statement on ReLU is one about fits that are not regularized.",
        "The gap between NTK and CK is small with tanh at any time (0.2 at most) and grows; with ReLU it falls, "
        "by 0.17 ± 0.05 with ridge 1e-8 and 0.11 ± 0.02 with 1e-3.",
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


def _by_seed(config: "Config", records: Records, quantity: Quantity) -> dict[int, float]:
    return mean_over_tasks(records, quantity, tasks=len(config.boundaries))


def _per_seed(config: "Config", records: Records, quantity: Quantity) -> tuple[float, ...]:
    return tuple(_by_seed(config, records, quantity).values())


def _claims(config: "Config", tanh: Records, narrow: Records, relu: Records) -> Iterator[Claim]:
    """The statements of Figures 8 to 11."""
    yield from _about_trained_networks(config, tanh, narrow)
    yield from _about_relu(config, tanh, relu)
    yield from _about_the_course(config, tanh)


def _claim(
    statement: str,
    quantity: str,
    published: str,
    values: Sequence[float],
    low: float = 0.0,
    high: float = np.inf,
) -> Claim:
    words = f"{quantity}, mean over the boundaries"
    return Claim(statement, words, tuple(values), low=low, high=high, published=published, larger="--width")


def _about_trained_networks(config: "Config", tanh: Records, narrow: Records) -> Iterator[Claim]:
    yield _claim(
        "Both kernels have less test cross-entropy than the network",
        GAIN,
        "NN clearly worse (Figure 8)",
        _per_seed(config, tanh, _gain),
    )
    yield _claim(
        "Both kernels classify more test points right than the network",
        "accuracy of the worse kernel minus that of NN",
        "NN clearly worse (Figure 8)",
        _per_seed(config, tanh, _accuracy_gain),
    )
    yield _claim(
        "NTK is slightly better than CK",
        "log10 of the test cross-entropy of CK over NTK",
        "slightly better (Figure 8)",
        _per_seed(config, tanh, lambda row: _ck_over_ntk(row["trained"])),
        0,
        0.5,
    )
    yield _claim(
        f"The same at width {config.narrow}: both kernels have less test cross-entropy than the network",
        GAIN,
        "same as for the larger width (Figure 9)",
        _per_seed(config, narrow, _gain),
    )


def _about_relu(config: "Config", tanh: Records, relu: Records) -> Iterator[Claim]:
    smooth, kinked = (_by_seed(config, group, _gain) for group in (tanh, relu))
    yield _claim(
        "With ReLU the gap between network and kernels vanishes",
        GAIN,
        "the gap vanishes (Figure 10)",
        tuple(kinked.values()),
        -0.3,
        0.3,
    )
    yield _claim(
        "With ReLU the gap is smaller than with tanh",
        f"{GAIN}, with tanh minus with ReLU",
        "the gap vanishes (Figure 10)",
        [smooth[seed] - kinked[seed] for seed in smooth if seed in kinked],
    )


def _about_the_course(config: "Config", tanh: Records) -> Iterator[Claim]:
    early = config.moments[1]

    def trained_over_early(row: Row) -> float:
        return _log(row["trained"], "NN") - max(_log(row["course"][1], name) for name in METHODS[1:])

    def shrinking(row: Row) -> float:
        return abs(_ck_over_ntk(row["course"][0])) - abs(_ck_over_ntk(row["course"][-1]))

    yield _claim(
        f"Kernels of a network after {early} epochs beat the trained network",
        f"log10 of the test cross-entropy of the trained NN over the larger of NTK and CK after {early} epochs",
        "kernels of a barely trained network already beat the final one (Figure 11)",
        _per_seed(config, tanh, trained_over_early),
    )
    yield _claim(
        "The gap between NTK and CK shrinks with training",
        "|log10 of the test cross-entropy of CK over NTK| before training minus at the last moment",
        "shrinks (Figure 11)",
        _per_seed(config, tanh, shrinking),
    )


def _table(config: "Config", groups: Mapping[str, Records], value: str, title: str, form: str) -> Table:
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


def _boxes(config: "Config", groups: Mapping[str, Records]) -> Boxes:
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


def _evolution(config: "Config", records: Records, boundary: str, kind: str) -> Lines:
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
