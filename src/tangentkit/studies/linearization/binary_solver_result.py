"""What the study of solvers says: its claims, tables and figures, read off the records."""

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tangentkit.report import Claim, Column, Figure, Lines, Measured, Series, StandIn, Table
from tangentkit.studies.linearization.images import in_words
from tangentkit.studies.trials.per_seed import missing_trials, whole_seeds
from tangentkit.studies.trials.published import claims_of_data, is_same
from tangentkit.studies.trials.records import Records
from tangentkit.studies.trials.study import Result

if TYPE_CHECKING:
    from tangentkit.studies.linearization.binary_solver import Config

PUBLISHED_WIDTHS = (1, 2, 5)
PUBLISHED = {
    "plain": {
        "solver": (97.8, 99.86, 99.89),
        "linearized": (99.61, 99.75, 99.81),
        "network": (99.89, 99.89, 99.88),
    },
    "shifted": {
        "solver": (86.05, 98.7, 99.17),
        "linearized": (95.48, 98.51, 98.97),
        "network": (99.72, 99.80, 99.82),
    },
}
"""Task -> model -> test accuracy in percent at ×1, ×2 and ×5 (Tables 1 and 2)."""
PUBLISHED_DATA = "MNIST"
MODELS = ("network", "linearized", "solver", "ridge")
SHORT = 0.5
"""Percentage points by which a model may be worse than one that it matches: 5 of 1,000 images."""
NEAR = math.log(2)
"""A peak is at the threshold where it is less than a factor of 2 away."""


def result(config: "Config", records: Records) -> Result:
    """Accuracies over width, and the solver's error over the number of samples."""
    data = records[0]["data"] if records else config.data[0]
    names = {shift: in_words(data, shift) for shift in (0, config.shift)}
    models, curve = records.having("train"), records.having("samples")
    claims = [
        claim for shift, name in names.items() for claim in _claims(config, models.where(shift=shift), name)
    ]
    claims += [_peak(config, curve.where(shift=shift), name) for shift, name in names.items()]
    return Result(
        answer=_answer(config, models, names),
        claims=tuple(
            replace(claim, larger="--train and --test")
            for claim in claims_of_data(claims, PUBLISHED_DATA, data)
        ),
        tables={"accuracy": _table(config, models, names), "interpolation": _curve_table(curve, names)},
        figures=_figures(config, models, curve, names),
        stand_ins=_stand_ins(config, data),
        terms={
            "solver": "the linearization solved in closed form: the weights of least norm that fit the targets best",
            "ridge": "the same with a penalty on the norm, chosen by leave-one-out errors on the training images",
            "AUC": "area under the ROC curve: how surely the digit gets a higher output than another",
            "rank": "singular values of the Jacobian that can be told from zero",
        },
        notes=(
            f"One image in ten is of class {config.digit}, the digit: an accuracy of 90 % is trivial, and an AUC of "
            "0.5.",
            "Widths are such that parameters over training images are as published (1.0, 4, 25). What counts is the "
            "rank of the Jacobian, which at the narrowest width is below the number of parameters.",
            "With 600 images of MNIST, four parameters to an image are not enough for the solver, as they are with "
            "the published 60,000: at ×0.2 it is below SGD, on shifted digits far below, where SGD says little more "
            "than that no image is the digit (90 %). Two tries of the solver at ×1, a hundred parameters to an "
            "image: 99.5 and 99.2 % on plain, 93.2 and 92.1 % on shifted digits.",
            "A seed in which the narrowest network has too small a rank for 600 images keeps the solver from fitting "
            "them all.",
            "Targets are 0 and 1 with the threshold 0.5; the publication does not say.",
        ),
    )


def _claims(config: "Config", rows: Records, name: str) -> list[Claim]:
    narrow, *wider = config.widths
    ahead = Records([{**row, "ahead": row["test_solver"] - row["test_linearized"]} for row in rows])
    at_narrow = ahead.where(width=narrow)
    return [
        Claim(
            f"The solver fits every training image ({name})",
            "least training accuracy over the widths, in percent",
            tuple(min(one.column("train_solver")) for one in whole_seeds(rows, tasks=len(config.widths))),
            low=99.99,
            published="100 % at every width",
            needs=missing_trials(rows, config.seeds, width=config.widths),
        ),
        Claim(
            f"Where parameters are about as many as images, the solver overfits ({name})",
            f"test accuracy of the solver minus that of SGD at ×{narrow:g}, in percentage points",
            tuple(at_narrow.column("ahead")),
            high=0.0,
            published="97.8 against 99.61 % on plain, 86.05 against 95.48 % on shifted digits",
        ),
        *(
            Claim(
                f"A wider linearization is solved as well as SGD trains it, or better (×{width:g}, {name})",
                f"test accuracy of the solver minus that of SGD at ×{width:g}, in percentage points",
                tuple(ahead.where(width=width).column("ahead")),
                low=-SHORT,
                published="0.1 to 0.2 points better at ×2 and ×5",
            )
            for width in wider
        ),
        Claim(
            f"A ridge repairs the narrow solver ({name})",
            f"test accuracy of the ridge minus that of SGD at ×{narrow:g}, in percentage points",
            tuple(row["test_ridge"] - row["test_linearized"] for row in at_narrow),
            low=-SHORT,
            published="expected in the text: regularization would give the result of SGD",
        ),
        Claim(
            f"The linearization by SGD gains from width ({name})",
            f"its test accuracy at ×{wider[-1]:g} minus that at ×{narrow:g}, in percentage points",
            tuple(rows.paired("test_linearized", "width", wider[-1], narrow)),
            low=0.0,
            published="99.61 to 99.81 % on plain, 95.48 to 98.97 % on shifted digits, from ×1 to ×5",
        ),
    ]


def _peak(config: "Config", curve: Records, name: str) -> Claim:
    """Where the solver is worst: at as many samples as the rank of the Jacobian with the most samples."""
    values = []
    for one in whole_seeds(curve, tasks=len(config.curve)):
        worst = max(one, key=lambda row: row["error_solver"])
        values.append(math.log(worst["samples"] / max(one.column("rank"))))
    return Claim(
        f"The solver is worst where samples are as many as the Jacobian's rank ({name})",
        "ln of the samples at the largest test error over the rank",
        tuple(values),
        low=-NEAR,
        high=NEAR,
        published='"overfitting" at ×1, with 60,941 parameters and 60,000 images',
        needs=missing_trials(curve, config.seeds, samples=config.curve),
    )


def _answer(config: "Config", rows: Records, names: dict[int, str]) -> str:
    def accuracies(shift: int, width: float) -> str:
        some = rows.where(shift=shift, width=width)
        return ", ".join(f"{model} {some.mean(f'test_{model}'):.1f}" for model in MODELS)

    narrow, wide = config.widths[0], config.widths[-1]
    parts = " ".join(
        f"{name}: {accuracies(shift, narrow)} at ×{narrow:g}; {accuracies(shift, wide)} at ×{wide:g}."
        for shift, name in names.items()
    )
    return f"Test accuracy in percent with {config.train:,} training images. {parts}"


def _table(config: "Config", rows: Records, names: dict[int, str]) -> Table:
    lines: list[tuple[Any, ...]] = []
    ours = []
    for (shift, name), task in zip(names.items(), PUBLISHED, strict=True):
        data = in_words(PUBLISHED_DATA, shift)
        data = name if is_same(data, name) else data
        for i, width in enumerate(PUBLISHED_WIDTHS):
            numbers = [PUBLISHED[task][model][i] if model in PUBLISHED[task] else None for model in MODELS]
            lines.append(("published", data, f"×{width}", *numbers, *[None] * (len(MODELS) + 2)))
        for width, some in rows.where(shift=shift).by("width").items():
            ours.append(len(lines))
            columns = [f"{kind}_{model}" for kind in ("test", "auc") for model in MODELS]
            numbers = [
                Measured.over(some.column(column))
                for column in (*columns, "train_linearized", "train_solver")
            ]
            lines.append(("here", name, f"×{width:g}", *numbers))
    return Table(
        "Accuracy in percent and AUC (mean and standard error over seeds)",
        (
            "who",
            "data",
            "width",
            *(Column(f"test, {model}", ".2f") for model in MODELS),
            *(Column(f"AUC, {model}", ".3f") for model in MODELS),
            Column("train, linearized", ".2f"),
            Column("train, solver", ".2f"),
        ),
        tuple(lines),
        note=f"Published: 60,000 training images of MNIST, one run; here {config.train:,} and narrower networks.",
        ours=tuple(ours),
    )


def _curve_table(curve: Records, names: dict[int, str]) -> Table:
    columns = ("rank", "train_solver", "test_solver", "test_ridge", "error_solver", "error_ridge")
    return Table(
        "The narrowest network over the number of training images (mean and standard error over seeds)",
        (
            "data",
            "images",
            "parameters",
            Column("rank", ".0f"),
            *(Column(name, ".1f") for name in ("train, solver", "test, solver", "test, ridge")),
            *(Column(f"test error, {name}", ".3f") for name in ("solver", "ridge")),
        ),
        tuple(
            (
                names.get(shift, str(shift)),
                samples,
                some[0]["parameters"],
                *(Measured.over(some.column(column)) for column in columns),
            )
            for shift, shifted in curve.by("shift").items()
            for samples, some in shifted.by("samples").items()
        ),
        note="The test error is the mean squared error; always saying the share of the digit has 0.09.",
    )


def _figures(config: "Config", rows: Records, curve: Records, names: dict[int, str]) -> dict[str, Figure]:
    def over_width(kind: str, label: str, shift: int) -> Lines:
        some = rows.where(shift=shift)
        return Lines(
            title=f"{label} over width: {names[shift]}",
            caption=f"{label} of the four models over the width factor; bands are standard errors.",
            series={model: Series(*some.curve("width", f"{kind}_{model}")) for model in MODELS},
            x_label="width factor k",
            y_label=label,
            x_scale="log",
            legend="beside",
            size=(6.4, 3.2),
        )

    figures: dict[str, Figure] = {
        "interpolation": Lines(
            title="The interpolation threshold",
            caption=f"Mean squared test error of the solver and of the ridge at ×{config.widths[0]:g} over the "
            "number of training images: without a ridge more images are worse, up to the rank of the Jacobian.",
            series={
                f"{'shifted' if shift else 'plain'}, {model}": Series(
                    *some.curve("samples", f"error_{model}")
                )
                for shift, some in curve.by("shift").items()
                for model in ("solver", "ridge")
            },
            x_label="training images",
            y_label="test error",
            x_scale="log",
            y_scale="log",
            legend="beside",
            size=(6.4, 3.2),
        )
    }
    for shift in names:
        task = "shifted" if shift else "plain"
        figures[f"accuracy-{task}"] = over_width("test", "test accuracy (%)", shift)
        figures[f"auc-{task}"] = over_width("auc", "AUC on test images", shift)
    return figures


def _stand_ins(config: "Config", data: str) -> tuple[StandIn, ...]:
    widths = ", ".join(f"×{width:g}" for width in config.widths)
    return (
        StandIn(
            "data",
            "MNIST, 0 against the rest",
            f"{data}, class {config.digit} against the rest",
            "" if is_same(PUBLISHED_DATA, data) else "MNIST is not on this machine",
        ),
        StandIn(
            "size", "60,000 training and 10,000 test images", f"{config.train:,} and {config.test:,}", "time"
        ),
        StandIn(
            "network", "LeNet×1, ×2, ×5 (SGD up to ×60)", f"LeNet {widths}", "as many parameters to an image"
        ),
        StandIn(
            "training",
            "200 epochs, learning rate 0.01",
            f"{config.epochs} epochs, learning rate {config.learning_rate:g}",
            "fewer steps",
        ),
        StandIn(
            "solver",
            "scipy lstsq of J",
            "eigenvectors of J Jᵀ in float64",
            "the same solution in less memory",
        ),
    )
