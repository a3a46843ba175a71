"""What the spectra of a CNN say about three ways of training."""

from dataclasses import replace
from typing import Any

import numpy as np

from tangentkit.report import (
    Claim,
    Column,
    Dots,
    Figure,
    Histogram,
    Measured,
    Scatter,
    Series,
    StandIn,
    Table,
)
from tangentkit.report.table import Cell
from tangentkit.studies.trials.records import Records
from tangentkit.studies.trials.study import Result

PUBLISHED = {"GD": 79.0, "SGD": 84.0, "Adam": 86.4}
"""Way of training -> published test accuracy in percent."""


def report(records: Records, size: str) -> Result:
    """Claims, table and figures of the trainings that did not diverge, and how many did."""
    rows = Records([{**row, "rescaled": beyond_rescaled(row)} for row in records.where(diverged=False)])
    others = {row["data"] for row in rows} - {"cifar10"}
    ways = {way: rows.where(way=way) for way in PUBLISHED}
    return Result(
        answer=(
            "Test accuracies are "
            + ", ".join(f"{_over(own, 'accuracy'):.1f} % ({way})" for way, own in ways.items())
            + "; eigenvalues of the tangent kernel beyond its initial edge, its trace scaled back to the initial "
            "one: "
            + ", ".join(f"{_over(own, 'rescaled'):.0f} ({way})" for way, own in ways.items())
            + "; as they are: "
            + ", ".join(f"{_over(own, 'beyond'):.0f}" for own in ways.values())
            + f". Of {len(rows)} networks {len(_learned(rows))} have learned."
        ),
        claims=_claims(rows),
        tables={"spectra": _table(ways)},
        figures=_figures(ways),
        stand_ins=(
            *(
                StandIn(
                    "data", "CIFAR-10, two classes", f"{data}, its first two classes", "not on this machine"
                )
                for data in sorted(others)
            ),
            StandIn(
                "network and images",
                "a small CNN, not described",
                f"the CNN of the same report for two classes, {size}",
                "time of this scale",
            ),
            StandIn("learning rates, batch, end of training", "not stated", "see the settings", "a choice"),
        ),
        terms={
            "NTK": "neural tangent kernel, on the training images",
            "GD, SGD": "gradient descent on all images, and on mini-batches",
            "edge": "the second eigenvalue before training; the first is that of the mean of the kernel, and is far "
            "off",
            "Q-Q plot": "eigenvalues after training over those before, by rank; on the line nothing has changed",
            "Hill exponent": "of a power-law tail fitted to the largest tenth of the eigenvalues; the smaller, the "
            "heavier",
            "KTA": "kernel-target alignment yᵀKy / (‖K‖ ‖y‖²), at most 1",
        },
        notes=(_diverged(records), _silent(rows), *NOTES),
    )


SILENT = 1e-2
"""A second eigenvalue that has fallen below this share of what it was says that a layer is silent."""
HARDLY = 0.6
"""Cross-entropy; a network that knows nothing has log 2 = 0.69."""
NEEDS = f"to a training loss of {HARDLY:g} or less: more --width, or more --gd-epochs and --epochs"
NOTES = (
    "The publication says that the tail gets heavier from GD to SGD to Adam, and shows raw eigenvalues. A kernel "
    "that "
    "grows as a whole has more of these beyond the initial edge without a heavier tail. So the tail is judged by the "
    "count after the trained spectrum is scaled to the initial trace, and the raw count has a claim of its own. The "
    "table has both, the growth of the trace, and the Hill exponent, which does not depend on the scale.",
    "The three ways have much the same number of passes over the images, and so do not end at the same training loss "
    "(see the table): part of what the claims compare is how far each has come.",
    "Rates are not published. In a first run they were 3 (GD), 1 (SGD) and 0.01 (Adam), the largest of a few at "
    "which a network of another seed had learned. In that run one network of five with GD, one with SGD and two with "
    "Adam died (a layer fell silent, the kernel to rank one or two), one with GD went to and fro, and all of these "
    "stayed at about 50 %. The means were 63.3, 73.3 and 69.6 %, and 43, 202 and 159 eigenvalues beyond the edge; "
    "'heavier after SGD than after GD' held, the claim on the Hill exponent did not, and the others were not "
    "decided. The rates were then lowered, to 1, about a quarter of what the largest eigenvalue of the initial "
    "kernel allows, 0.5 and 0.003, and not changed again.",
    "Before any run, with the one network of another seed, the tail was decided to be judged by the raw count: over "
    "seven trainings it had 2 to 217 eigenvalues beyond the edge, while its Hill exponent rose from 1.56 to between "
    "1.57 and 1.79. After the first runs it was seen that the trace had grown by up to 235 with Adam and that "
    "270 of 300 eigenvalues and more were then beyond the edge: the rule became the count at the initial trace, and "
    "claims leave out networks that did not learn.",
)


def beyond_rescaled(row: Any) -> int:
    """Eigenvalues beyond the initial edge after the trained spectrum is scaled to the initial trace.

    Example:
        >>> beyond_rescaled({"spectra": [[9.0, 2.0, 1.0], [90.0, 20.0, 10.0]]})
        0
        >>> beyond_rescaled({"spectra": [[9.0, 2.0, 1.0], [6.0, 3.0, 3.0]]})
        2
    """
    before, after = np.asarray(row["spectra"], dtype=float)
    return int((after[1:] * (before.sum() / after.sum()) > before[1]).sum())


def _learned(rows: Records) -> Records:
    """The networks that claims are about."""
    return Records([row for row in rows if row["train_loss"] <= HARDLY])


def _diverged(records: Records) -> str:
    """Which trainings came to nothing."""
    lost = [f"{row['way']} with seed {row['seed']}" for row in records.where(diverged=True)]
    return (
        f"Of {len(records)} trainings {len(lost)} diverged: {', '.join(lost)}. They have no spectrum and are in no "
        "mean."
        if lost
        else f"Of {len(records)} trainings none diverged."
    )


def _silent(rows: Records) -> str:
    """Which networks died, so that their kernel has one direction left, and which have hardly learned."""

    def named(chosen: list[Any]) -> str:
        return ", ".join(f"{row['way']} with seed {row['seed']}" for row in chosen) or "none"

    dead = [row for row in rows if row["spectra"][1][1] < SILENT * row["spectra"][0][1]]
    slow = [row for row in rows if row["train_loss"] > HARDLY and all(row is not one for one in dead)]
    return (
        f"Networks that died in training: {named(dead)}. Others that hardly learned (training loss above "
        f"{HARDLY:g}): {named(slow)}. The means of the table have them, the claims do not. Narrow networks are in "
        f"danger, since the last two "
        "convolutions have w channels."
    )


def _over(rows: Records, name: str) -> Measured:
    return Measured.over(rows.column(name))


def _claims(rows: Records) -> tuple[Claim, ...]:
    learned = _learned(rows)
    order = (("SGD", "GD"), ("Adam", "SGD"))
    kinds = (
        (
            "accuracy",
            "The network generalizes better after {} than after {}",
            "test accuracy in percentage points, {} minus {}",
            lambda one, other: f"{PUBLISHED[one]:g} % against {PUBLISHED[other]:g} %",
        ),
        (
            "rescaled",
            "The tail of the NTK is heavier after {} than after {}",
            "eigenvalues beyond the initial edge at the initial trace, {} minus {}",
            lambda *_: "heavier from GD to SGD to Adam",
        ),
        (
            "beyond",
            "More eigenvalues pass the initial edge after {} than after {}",
            "eigenvalues beyond the initial edge, {} minus {}",
            lambda *_: "raw eigenvalues are shown, whose tail is heavier from GD to SGD to Adam",
        ),
    )
    return (
        *(
            _of_learned(
                Claim(
                    statement.format(one, other),
                    f"{quantity.format(one, other)}, seeds with which both have learned",
                    tuple(learned.paired(name, "way", one, other)),
                    low=0.0,
                    published=published(one, other),
                )
            )
            for name, statement, quantity, published in kinds
            for one, other in order
        ),
        _of_learned(
            Claim(
                "After Adam the largest tenth of the eigenvalues fits a heavier power law than before",
                "Hill exponent before minus after, networks that have learned",
                tuple(row["hill"][0] - row["hill"][1] for row in learned.where(way="Adam")),
                low=0.0,
                published="a heavy tail after Adam; no exponent is given",
            )
        ),
    )


def _of_learned(claim: Claim) -> Claim:
    """The claim, not decided where too few networks have learned."""
    few = len(claim.values) < 2
    return replace(claim, needs=f"networks that learn, {NEEDS}") if few else claim


def _table(ways: dict[str, Records]) -> Table:
    lines: list[tuple[Cell, ...]] = []
    ours = []
    for way, own in ways.items():
        lines.append((f"published: {way}", PUBLISHED[way], *[None] * 8))
        if own:
            ours.append(len(lines))
            lines.append(
                (
                    f"this run: {way}",
                    *(
                        _over(own, name)
                        for name in ("accuracy", "train_loss", "rescaled", "beyond", "growth", "ks")
                    ),
                    *(Measured.over([row["hill"][when] for row in own]) for when in (0, 1)),
                    Measured.over([row["kta"][1] - row["kta"][0] for row in own]),
                )
            )
    return Table(
        "Accuracy and spectra of the NTK (published Figure 22)",
        (
            "training",
            Column("test accuracy, %", ".1f"),
            Column("training loss", ".3f"),
            Column("beyond the edge at the initial trace", ".1f"),
            Column("beyond the edge", ".1f"),
            Column("trace / initial", ".1f"),
            Column("KS distance", ".2f"),
            Column("Hill before", ".2f"),
            Column("Hill after", ".2f"),
            Column("gain of KTA", "+z.3f"),
        ),
        tuple(lines),
        note="± is the standard error over seeds. KS: the largest difference of the distribution functions of the "
        "eigenvalues before and after.",
        ours=tuple(ours),
    )


def _figures(ways: dict[str, Records]) -> dict[str, Figure]:
    first = {way: np.log10(np.asarray(own[0]["spectra"], dtype=float)) for way, own in ways.items() if own}
    figures: dict[str, Figure] = {}
    if first:
        figures["qq"] = Scatter(
            title="Q-Q plot: the tangent kernel before and after training",
            caption="Eigenvalues by rank, first seed; on the dashed line nothing has changed, above it the "
            "eigenvalue has grown.",
            series={way: Series(before, after) for way, (before, after) in first.items()},
            diagonal=True,
            x_label="log10 of the eigenvalue before",
            y_label="log10 of the eigenvalue after",
        )
        figures["beyond"] = Dots(
            title="How many eigenvalues leave the initial edge",
            caption="Trained spectra are scaled to the initial trace. Each seed, their mean and its 95 % interval.",
            values={way: own.column("rescaled") for way, own in ways.items() if own},
            x_label="eigenvalues beyond the edge at the initial trace",
        )
    for way, (before, after) in first.items():
        figures[f"spectrum-{way}"] = Histogram(
            title=f"{way}: eigenvalues of the NTK",
            caption="Before and after training, first seed (published Figure 22).",
            samples={"initial": before, "trained": after},
            x_label="log10 of the eigenvalue",
            y_label="density",
        )
    return figures
