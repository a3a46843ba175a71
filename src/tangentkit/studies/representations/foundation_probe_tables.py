"""The tables of the study of probes and fine-tuning, published numbers beside ours."""

import math
from collections.abc import Mapping

from tangentkit.analysis.training_comparison import DEPENDENT, TrainingComparison
from tangentkit.report import Column, Measured, Table
from tangentkit.studies.trials.records import Records

SIZES = (300, 59)
"""Tweets of M to train on and to test on."""
PUBLISHED = {
    "random": ("GPT-2 with random weights + LP", (0.857, 0.0027), (0.578, 0.0105)),
    "LP": ("pre-trained + LP", (0.953, 0.0015), (0.863, 0.0055)),
    "FT on M": ("pre-trained + FT on M", (0.999, 0.0002), (0.837, 0.0081)),
    "FT on P": ("pre-trained + FT on P, tested on M", (0.916, 0.0093), (0.841, 0.0049)),
    "QLoRA": ("pre-trained + QLoRA + FT", (0.700, 0.0028), (0.669, 0.0077)),
}
"""Way -> its name, accuracy in training and in test with standard errors, as published (Tables 5 and 6)."""


def accuracy_table(ways: Mapping[str, Records], compared: TrainingComparison) -> Table:
    """Accuracies of every way, the published ones first."""

    def percent(found: Measured) -> Measured:
        return Measured(100 * found.value, None if found.error is None else 100 * found.error)

    rows: list[tuple] = []
    for way, (name, train, test) in PUBLISHED.items():
        rows.append(("published", name, 50, percent(Measured(*train)), percent(Measured(*test)), None))
        ours = ways[way]
        if way == "QLoRA":
            rows.append(("ours", f"{name}: not run, see notes", 0, None, None, None))
        elif ours:
            measured = [percent(Measured.over(ours.column(part))) for part in ("train", "test")]
            rows.append(("ours", name, len(ours), *measured, 100 * compared.corrected_error(way)))
        if ours and "test_ten_epochs" in ours[0]:
            epochs = [percent(Measured.over(ours.column(f"{part}_ten_epochs"))) for part in ("train", "test")]
            rows.append(("ours", f"{name}, by ten epochs of Adam", len(ours), *epochs, None))
    columns = (
        "whose",
        "way",
        "shuffles",
        Column("train %", ".2f"),
        Column("test %", ".2f"),
        Column("corrected error", ".2f"),
    )
    return Table(
        "Accuracies (mean and standard error over shuffles; Tables 5 and 6)",
        columns,
        tuple(rows),
        note=f"FT on P: accuracy in training is the mean over its steps. {DEPENDENT}",
        ours=tuple(i for i, row in enumerate(rows) if row[0] == "ours"),
    )


def ks_table(compared: TrainingComparison) -> Table:
    """LP against the other ways, by the published test."""
    rows: list[tuple] = [("published", "LP against FT on P", 50, 50, None, 0.007)]
    for other in ("FT on P", "FT on M", "random"):
        if "LP" in compared.test and other in compared.test:
            found = compared.ks("LP", other)
            counts = [len(compared.test[way]) for way in ("LP", other)]
            rows.append(("ours", f"LP against {other}", *counts, found.statistic, found.p_value))
    return Table(
        "Two-sided Kolmogorov-Smirnov tests of test accuracies",
        ("whose", "ways", "shuffles", "of the other", Column("KS distance", ".3f"), Column("p", ".2g")),
        tuple(rows),
        note="As published, the test takes shuffles for independent, which they are not: its p-values are too small.",
        ours=tuple(range(1, len(rows))),
    )


def shift_table(of: Mapping[str, Records]) -> Table:
    """How well P and M are told apart."""
    names = (
        "auc_two",
        "auc_many",
        "auc_all",
        "accuracy_all",
        "auc_control",
        "ks_first",
        "ks_second",
        "p_value",
    )
    rows = tuple(
        (name, *(Measured.over(rows.column(part)) for part in names)) for name, rows in of.items() if rows
    )
    return Table(
        "P against M (mean and standard error over draws of P)",
        (
            "weights",
            *(Column(name, ".3f") for name in ("AUC, 2 components", "AUC, 20", "AUC, whole vectors")),
            *(Column(name, ".3f") for name in ("accuracy, whole vectors", "AUC, P against P")),
            *(Column(name, ".3f") for name in ("KS, component 1", "KS, component 2", "p of all tests")),
        ),
        rows,
        note="Published, by their contours: GPT-2 and Falcon-7B separate P and M fully, RoBERTa-base and Falcon-1B "
        "partly, BERT-base does not. P against P is one half of the draw against the other, on two components. Whole "
        "vectors are told apart by Fisher's discriminant, cross-validated; its accuracy is the mean of those on P "
        "and on M. Chance is 0.5 everywhere.",
        ours=tuple(range(len(rows))),
    )


def filter_table(rows: Records) -> Table:
    """What filtering P does."""

    def mean(name: str) -> Measured | None:
        found = [value for value in rows.column(name) if value is not None]
        return Measured.over(found) if found else None

    return Table(
        "P filtered (mean and standard error over draws of P)",
        (
            "filter",
            Column("share of P that stays", ".2f"),
            Column("AUC against M", ".3f"),
            Column("gain on M over as many random tweets", "+z.3f"),
        ),
        (
            ("none", 1.0, mean("auc_two"), None),
            ("none, but half of P at random", 0.5, mean("half_auc"), None),
            ("the half that a judge is surest of", 0.5, mean("clear_auc"), mean("clear_gain")),
            ("where M is dense on two components", mean("dense_share"), None, mean("dense_gain")),
        ),
        note=f"A probe that is trained on all of the draw of P has accuracy {mean('probe_of_p') or math.nan:.3f} on "
        "M. The second filter is an idea of the publication without a result.",
    )


def label_table(found: Records) -> Table:
    """Repeated tweets, and those with both labels."""
    rows = tuple(
        (
            split,
            how,
            one["repeated"],
            one["conflicting"],
            one["groups"],
            one["empty"],
            "; ".join(", ".join(map(str, group)) for group in one["rows"]),
        )
        for row in found
        for split, readers in row["conflicts"].items()
        for how, one in readers.items()
    )
    return Table(
        "Tweets that are the same but for their label (Table 7)",
        (
            "tweets",
            "as read by",
            "repeated",
            "with both labels",
            "groups of these",
            "without a word",
            "rows, from 0",
        ),
        rows,
        note="Published: examples only, handles alone with either label among them.",
        ours=tuple(range(len(rows))),
    )
