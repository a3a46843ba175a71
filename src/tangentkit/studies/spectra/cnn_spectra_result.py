"""What the spectra of a CNN say about three ways of training."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tangentkit.report import (
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
from tangentkit.studies.spectra.cnn_spectra_claims import (
    LEARNED,
    ORDER,
    PUBLISHED,
    PUBLISHED_DATA,
    learned,
    spectra_claims,
    tail_claims,
    with_tails,
)
from tangentkit.studies.trials.published import claims_of_data, is_same
from tangentkit.studies.trials.records import Records
from tangentkit.studies.trials.study import Result


def report(records: Records, size: str, loss: float) -> Result:
    """Claims, tables and figures of the trainings that did not diverge, and how many did."""
    rows, limit = with_tails(records.where(diverged=False)), LEARNED * loss
    data = records[0]["data"] if records else "cifar10"
    ways = {way: rows.where(way=way) for way in PUBLISHED}
    return Result(
        answer=_answer(ways, rows, limit),
        claims=claims_of_data(spectra_claims(rows, limit), PUBLISHED_DATA, data),
        tables={"spectra": _table(ways), "tails": _tails_table(rows, limit)},
        figures=_figures(ways),
        stand_ins=(
            *(() if is_same(PUBLISHED_DATA, data) else (_other_data(data),)),
            StandIn(
                "network and images",
                "a small CNN, not described",
                f"the CNN of the same report for two classes, {size}",
                "time of this scale",
            ),
            StandIn("learning rates, batch, end of training", "not stated", "see the settings", "a choice"),
        ),
        terms=TERMS,
        notes=(_diverged(records), _silent(rows, limit), *_training(ways, loss), *NOTES),
    )


def _other_data(data: str) -> StandIn:
    return StandIn("data", "CIFAR-10, two classes", f"{data}, its first two classes", "not on this machine")


TERMS = {
    "NTK": "neural tangent kernel, on the training images",
    "GD, SGD": "gradient descent on all images, and on mini-batches",
    "edge": "the second eigenvalue before training; the first is that of the mean of the kernel, and is far "
    "off",
    "Q-Q plot": "eigenvalues after training over those before, by rank; on the line nothing has changed",
    "Hill exponent": "of a power-law tail fitted to the largest tenth of the eigenvalues; the smaller, the "
    "heavier",
    "KTA": "kernel-target alignment yᵀKy / (‖K‖ ‖y‖²), at most 1",
    "pass": "over all images: one step of GD, and a step for each batch of the others",
}
SILENT = 1e-2
"""A second eigenvalue that has fallen below this share of what it was says that a layer is silent."""
NOTES = (
    "The publication says that the tail gets heavier from GD to SGD to Adam, and shows raw eigenvalues. A kernel "
    "that grows as a whole has more of these beyond the initial edge without a heavier tail, so that the raw count "
    "has a claim of its own. The tail is judged by three measures that do not depend on the scale of the kernel: the "
    "count after the trained spectrum is scaled to the initial trace, the same with the traces of all eigenvalues "
    "but the first, and the Hill exponent. The claim is decided where all three have the same verdict. The last "
    "claim is about a power law alone, and is decided where it has the same verdict without the first eigenvalue.",
    "First, networks with a training loss of up to 0.6 counted as learned, and the tail was judged by the count at "
    "the initial trace alone. At the scale evening four of the five GD networks did, with 0.49 to 0.57, and the "
    "verdicts were: better after SGD than after GD, holds by 11.9 points (9.2 to 14.6); heavier after SGD than after "
    "GD, holds by 29.2 eigenvalues (1.5 to 57.0); heavier after Adam than after SGD, does not hold, -11.4 (-18.8 to "
    "-4.0); more eigenvalues pass after SGD than after GD, holds by 383 (230 to 536). That the network generalizes "
    "better after Adam than after SGD hangs on one network there: without seed 2, whose SGD ended at 0.091, it would "
    "not be decided, with 2.1 points (-0.1 to 4.2).",
    "Tried, GD of seed 0 at the scale evening with more steps: it came to a training loss of 0.05 after 1,378, "
    "with 80.3 % on test images (83.9 % after SGD), 453 eigenvalues beyond the edge (485), 55 at the initial trace "
    "(46) and a Hill exponent of 1.84 (1.77). One network decides nothing, but trained as far, GD is near SGD.",
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


def _answer(ways: Mapping[str, Records], rows: Records, limit: float) -> str:
    accuracies = ", ".join(
        f"{_over(own, 'accuracy'):.1f} % ({way}, at a training loss of {_over(own, 'train_loss').value:.2f})"
        for way, own in ways.items()
    )
    rescaled, beyond, exponents = (
        ", ".join(f"{_over(own, name):{digits}}" for own in ways.values())
        for name, digits in (("rescaled", ".0f"), ("beyond", ".0f"), ("exponent", ".2f"))
    )
    return (
        f"Test accuracies are {accuracies}; eigenvalues of the tangent kernel beyond its initial edge, its trace "
        f"scaled back to the initial one: {rescaled}; as they are: {beyond}; Hill exponents: {exponents}. Of "
        f"{len(rows)} networks {len(learned(rows, limit))} have learned."
    )


def _diverged(records: Records) -> str:
    """Which trainings came to nothing."""
    lost = [f"{row['way']} with seed {row['seed']}" for row in records.where(diverged=True)]
    return (
        f"Of {len(records)} trainings {len(lost)} diverged: {', '.join(lost)}. They have no spectrum and are in no "
        "mean."
        if lost
        else f"Of {len(records)} trainings none diverged."
    )


def _silent(rows: Records, limit: float) -> str:
    """Which networks died, so that their kernel has one direction left, and which have hardly learned."""

    def named(chosen: list[Any]) -> str:
        return ", ".join(f"{row['way']} with seed {row['seed']}" for row in chosen) or "none"

    dead = [row for row in rows if row["spectra"][1][1] < SILENT * row["spectra"][0][1]]
    slow = [row for row in rows if row["train_loss"] > limit and all(row is not one for one in dead)]
    return (
        f"Networks that died in training: {named(dead)}. Others that did not learn, with a training loss above "
        f"{limit:g}, {LEARNED:g} times the one that is asked for: {named(slow)}. The means of the table have them, "
        "the claims do not; where fewer than two seeds are left, a claim shows all and is not decided. Narrow "
        "networks are in danger, since the last two convolutions have w channels."
    )


def _training(ways: Mapping[str, Records], loss: float) -> tuple[str, ...]:
    """How far each way has come, whether gradient descent could go faster, and the share of the first eigenvalue."""
    own = {way: rows for way, rows in ways.items() if rows}
    if not own:
        return ()
    ends = "; ".join(
        f"{way} ended at {_range(rows.column('train_loss'), '.2g')} after {_range(rows.column('epochs_run'), '.0f')} "
        "passes"
        for way, rows in own.items()
    )
    begun = _range([_share(row, 0) for rows in own.values() for row in rows], ".1f")
    left = ", ".join(
        f"{_range([_share(row, 1) for row in rows], '.0f')} % after {way}" for way, rows in own.items()
    )
    rates = [_range([_stable_rate(row["spectra"][when]) for row in ways["GD"]], ".2g") for when in (0, 1)]
    return (
        f"Training was to end at a loss of {loss:g}; a network that knows nothing has log 2 = 0.69. {ends}. GD is "
        "stable at least below a rate of 8n/λ₁, with λ₁ the largest of n eigenvalues: it was "
        f"{rates[0]} before training and {rates[1]} after it. At the scale evening the kernel so grew until the rate "
        "of GD, 1, was about the largest that is stable; at a rate of 3 two of five networks had come to nothing. "
        "That GD, with one step in a pass, learns so much more slowly is a finding of its own, but then its networks "
        "are not to be compared with trained ones.",
        f"The first eigenvalue has {begun} % of the trace before training, {left}. The count at the initial trace so "
        "mostly says how far this share has fallen.",
    )


def _share(row: Any, when: int) -> float:
    """What the first eigenvalue has of the trace, in percent."""
    return 100 * float(row["spectra"][when][0] / np.sum(row["spectra"][when]))


def _stable_rate(eigenvalues: Any) -> float:
    """8n/λ₁: twice the inverse of λ₁/(4n), the curvature of the mean cross-entropy of outputs near 0."""
    return 8 * len(eigenvalues) / float(eigenvalues[0])


def _range(values: Sequence[float], digits: str) -> str:
    """The least and the largest in words, none without values.

    Example:
        >>> _range([0.5, 0.25], ".2f"), _range([400, 400], ".0f"), _range([], ".0f")
        ('0.25 to 0.50', '400', 'none')
    """
    ends = [min(values), max(values)] if values else []
    return " to ".join(dict.fromkeys(format(float(end), digits) for end in ends)) or "none"


def _over(rows: Records, name: str) -> Measured:
    return Measured.over(rows.column(name))


def _table(ways: dict[str, Records]) -> Table:
    lines: list[tuple[Cell, ...]] = []
    ours = []
    for way, own in ways.items():
        lines.append((f"published: {way}", PUBLISHED[way], *[None] * 11))
        if own:
            ours.append(len(lines))
            lines.append(
                (
                    f"this run: {way}",
                    *(
                        _over(own, name)
                        for name in ("accuracy", "train_loss", "epochs_run", "rescaled", "rest", "beyond")
                    ),
                    _over(own, "growth"),
                    Measured.over([_share(row, 1) for row in own]),
                    _over(own, "ks"),
                    *(Measured.over([row["hill"][when] for row in own]) for when in (0, 1)),
                    Measured.over([row["kta"][1] - row["kta"][0] for row in own]),
                )
            )
    return Table(
        "Accuracy and spectra of the NTK (published Figure 22, of CIFAR-10)",
        (
            "training",
            Column("test accuracy, %", ".1f"),
            Column("training loss", ".3f"),
            Column("passes", ".0f"),
            Column("beyond the edge at the initial trace", ".1f"),
            Column("without the first eigenvalue", ".1f"),
            Column("beyond the edge", ".1f"),
            Column("trace / initial", ".1f"),
            Column("first eigenvalue, % of the trace", ".0f"),
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


def _tails_table(rows: Records, limit: float) -> Table:
    lines: list[tuple[Cell, ...]] = []
    for one, other in ORDER:
        for claim in tail_claims(rows, limit, one, other):
            interval, alone = claim.interval, replace(claim, needs="")
            numbers = (interval.mean, interval.low, interval.high) if claim.values else (None, None, None)
            lines.append((f"{one} than {other}", claim.quantity, *numbers, alone.verdict))
    return Table(
        "Is the tail heavier? By each measure",
        (
            "heavier after",
            "measure",
            *(Column(name, "+z.3f") for name in ("mean", "95 % from", "to")),
            "alone it would say",
        ),
        tuple(lines),
        note="Above 0 the tail is heavier, as is claimed.",
        ours=tuple(range(len(lines))),
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
