"""Result of the surrogates of pre-trained networks: rows of Tables 1 and 2, and what each kernel costs."""

import math
import re
from collections.abc import Iterable, Sequence

from tangentkit.core.memory import format_bytes
from tangentkit.report import Column, Dots, Figure, Measured, StandIn, Table
from tangentkit.report.table import Cell
from tangentkit.studies.surrogates.pretrained_claims import (
    ENOUGH,
    FAITHFUL,
    LEARNED,
    TEXT,
    of_all_images,
    on_level,
    on_order,
    on_projection,
)
from tangentkit.studies.surrogates.surrogate_cases import CASES, KERNELS, OTHERS, TABLE_2
from tangentkit.studies.surrogates.surrogate_report import TERMS
from tangentkit.studies.trials.records import Records
from tangentkit.studies.trials.study import Result

NUMBERS = ("tau", "difference", "agreement", "r2", "time")
RESNET18 = CASES["lenet"]
TABLE_1 = {
    RESNET18.published: (RESNET18.accuracy, RESNET18.tau, RESNET18.difference),
    **{name: (accuracy, tau, difference) for name, _, accuracy, difference, tau in OTHERS},
}
"""Network -> its accuracy, and tau and TAD of trNTK, as published."""


def report(
    records: Records, *, images: Sequence[int], sentences: tuple[int, int], model: str, dim: int
) -> Result:
    """The report of finished trials.

    Args:
        records: of all three kinds of trials.
        images: training and test images of cheap kernels, of dear ones, and of the exact kernel.
        sentences: training and test sentences of the text model.
        model: its name.
        dim: features of projected kernels.
    """
    networks, whole = by_network(records), records.having("everything")
    small = next((name for name, kernels in networks.items() if "proj-trNTK" in kernels), "ResNet-20")
    best = {
        name: max(rows, key=lambda kernel: rows[kernel].mean("tau"), default="–")
        for name, rows in networks.items()
    }
    return Result(
        answer=" ".join(
            f"{name}: the best surrogate stands on {kernel}, tau {networks[name][kernel].mean('tau'):.2f}."
            for name, kernel in best.items()
        )
        or "No trial has finished.",
        claims=(
            *(claim for name in networks for claim in on_level(name, networks[name], small, images[2])),
            *on_order(small, networks.get(small, {}), images[2]),
            on_projection(small, records.having("error"), images[4]),
            *of_all_images(whole),
        ),
        tables={
            "faithfulness": _table(networks),
            "exact": _exact(records.having("error"), images[4]),
            **({"everything": _everything(whole)} if whole else {}),
        },
        figures=_figures(networks),
        stand_ins=_stand_ins(images, sentences, model, _resnets(networks)),
        terms={
            **{name: words for name, words in KERNELS.items() if name != "trNTK0"},
            "tau": "Kendall's rank correlation of the probabilities of network and surrogate for the true class",
            "TAD": "test accuracy difference: accuracy of the surrogate minus that of the network, in points",
            "R²": f"{TERMS['R²']}; below 0 where these are farther off than the mean",
        },
        notes=_notes(networks, records.having("error"), images, sentences, dim),
    )


def _stand_ins(
    images: Sequence[int], sentences: tuple[int, int], model: str, resnets: Sequence[str]
) -> tuple[StandIn, ...]:
    return (
        StandIn(
            "networks",
            "ResNet18, ResNet34 and MobileNetV2 on CIFAR-10, trained by the authors",
            f"the published CIFAR-10 checkpoints of {' and '.join(resnets)}",
            "theirs are not to be had; these have 0.27 and 0.85 million parameters, not 11 million",
        ),
        StandIn(
            "images",
            "50,000 training and 10,000 test images",
            f"{images[0]:,} and {images[1]:,}; to compare all kernels {images[2]:,} and {images[3]:,}",
            "time on two cores; --scale full takes all",
        ),
        StandIn(
            "text model",
            "BERT-base tuned on 6,840 sentences of CoLA, 4 seeds",
            f"{model} tuned on {sentences[0]:,}, tested on {sentences[1]:,}",
            "BERT-base is not to be had here",
        ),
    )


def _notes(
    networks: dict[str, dict[str, Records]],
    exact: Records,
    images: Sequence[int],
    sentences: tuple[int, int],
    dim: int,
) -> tuple[str, ...]:
    return (
        f"Projected kernels have {dim:,} features. Seeds differ in the images and in the projection, not in the "
        "ResNets, of which there is one of each depth: intervals are about images, not about networks. A "
        "surrogate here sees a part of the images that the network was trained on.",
        f"That {ENOUGH:,} images are needed to judge the level of a surrogate on the trace, and to compare the "
        "kernels, is our rule. It was made after the first finished run of the scale quick, in which tau of "
        "proj-trNTK was 0.49 and its TAD -11 with 100 training images. That all kernels are compared on the same "
        "images was mended after it, too: proj-pNTK and CK had had 300.",
        "A first run of the scale evening compared all kernels of ResNet-20 on 500 training and 200 test images, "
        "too few by this rule: tau of proj-trNTK was 0.621 ± 0.015, 0.146 below proj-pNTK and 0.145 below CK, and "
        "its TAD -5.7 ± 0.85. The scale now takes as many images for these as for the kernels of one pass.",
        *_note_on_projection(exact, images[4]),
        "Whether the trace is more faithful than Em is not judged here: published are 0.776 for the exact trNTK "
        "against 0.768, and 0.737 for its projection, which is what is compared here. The study surrogate has "
        "the exact kernel beside Em, on LeNet.",
        *_note_on_text(networks),
        "A first run of the scale quick, with 1,000 training and 500 test images, was stopped since it took too "
        "long. Its finished trials: tau of proj-pNTK 0.77 to 0.79 on ResNet-20 (5 seeds) and 0.73 to 0.77 on "
        "ResNet-56 (4 seeds), of CK 0.77 to 0.79 on ResNet-20 (5 seeds). Claims were written before it.",
        "The memory of a single kernel is not told: it is recorded by how much the process grew meanwhile, and a "
        "process that has done other trials has memory at hand that does not grow. With all images it outgrows "
        "whatever came before, and what the last table says is what it took at least.",
        "On disk are kernel matrices of all images alone, through which the surrogates of the last table are "
        "asked; of these there is one run, and their claims are over fifths of its test images. All other kernels "
        f"keep nothing on disk. They would need there, {_disk(images, sentences, dim)}.",
    )


def _note_on_text(networks: dict[str, dict[str, Records]]) -> tuple[str, ...]:
    """What the text model has learned, and how its training was chosen."""
    if TEXT not in networks:
        return ()
    known = next(iter(networks[TEXT].values())).column("matthews")
    found = (
        f"The Matthews correlation of {TEXT} was not noted for every seed of this run"
        if math.isnan(sum(known))
        else f"{TEXT} has a Matthews correlation of {Measured.over(known):.2f} on test sentences"
    )
    return (
        f"{found}; BERT-base is known for 0.5 to 0.6. "
        f"Below {LEARNED:g} its surrogate is not judged, which is our rule. First runs, at a "
        "higher rate with 150 and with 2,000 sentences, as many of either class, had not learned: 52 and 55 % of "
        "balanced test sentences were right. Sentences are now drawn and split at random, as published; rate and "
        "epochs were chosen by the accuracy of one model, before any kernel of it was seen.",
    )


def _resnets(networks: Iterable[str]) -> list[str]:
    """The ResNets among networks, without the numbers of their images."""
    return list(dict.fromkeys(name.partition(",")[0] for name in networks if name.startswith("ResNet")))


def by_network(records: Records) -> dict[str, dict[str, Records]]:
    """Network and its images -> kernel -> rows with tau, difference, agreement, accuracy, R², time, memory.

    Kernels that were fitted to equally many images and asked about others are apart: they have not seen the same.
    """
    found: dict[str, dict[str, Records]] = {}
    for depth, own in records.having("tau").by("depth").items():
        for train, fitted in own.by("train").items():
            tests = fitted.by("test")
            for test, rows in tests.items():
                asked = f", {test:,} test images" if len(tests) > 1 else ""
                found[f"ResNet-{depth}, {train:,} images{asked}"] = {
                    kernel: rows.where(kernel=kernel) for kernel in KERNELS if rows.where(kernel=kernel)
                }
    text = records.having("kernels")
    if text:
        # Runs made before did not note Matthews' correlation, and had models that hardly learned.
        rows = [{"matthews": math.nan, **row} for row in text]
        found[TEXT] = {
            name: Records([{**row, **row["kernels"][name]} for row in rows]) for name in text[0]["kernels"]
        }
    return found


def _note_on_projection(exact: Records, images: int) -> tuple[str, ...]:
    """What the comparison with the exact kernel says where images are few, and what it does not."""
    if not exact or images >= ENOUGH:
        return ()
    taus = (Measured.over([row[which]["tau"] for row in exact]) for which in ("exact", "projected"))
    return (
        f"The exact kernel and its projection are compared on {images} training and {images} test images, for which "
        "there is time. What is judged is their difference alone: how far a projection is from its kernel depends "
        "on its features, not on the number of images. Their taus, "
        f"{' and '.join(f'{tau:.2f}' for tau in taus)}, do not say how faithful either is: that takes {ENOUGH:,} "
        "images.",
    )


def _disk(images: Sequence[int], sentences: tuple[int, int], dim: int) -> str:
    """What N samples of each size would take: N × dim numbers of 4 bytes as features, or N² as a kernel matrix."""
    sizes = [("images", sum(images[:2])), ("images", sum(images[2:4]))]
    sizes += [("sentences", sum(sentences))] * bool(sentences[0])
    return ", ".join(
        f"for {n:,} {what} {format_bytes(4 * n * dim)} of features of a projected kernel or a matrix of "
        f"{format_bytes(4 * n * n)}"
        for what, n in dict.fromkeys(sizes)
    )


def _table(networks: dict[str, dict[str, Records]]) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (f"published (Table 1): trNTK, {name}", *numbers, None, None, None)
        for name, numbers in TABLE_1.items()
    ]
    ours = []
    for kernel in ("trNTK", "proj-trNTK", "proj-pNTK", "Em", "CK"):
        for place, name in enumerate(("ResNet18 (CIFAR-10)", "BERT-base (CoLA)")):
            tau, difference = (TABLE_2[kernel][number][place] for number in (0, 1))
            accuracy = TABLE_1[name][0]
            rows.append(
                (f"published (Table 2): {kernel}, {name}", accuracy, tau, difference, None, None, None)
            )
    for name, kernels in networks.items():
        for kernel, found in kernels.items():
            ours.append(len(rows))
            accuracy = Measured.over(found.column("accuracy"))
            rows.append(
                (
                    f"this run: {kernel}, {name}",
                    accuracy,
                    *(Measured.over(found.column(number)) for number in NUMBERS),
                )
            )
    return Table(
        "Faithfulness of each kernel, and its cost (published Tables 1 and 2)",
        (
            "kernel, network",
            Column("network's accuracy %", ".2f"),
            Column("tau", ".3f"),
            Column("TAD", "+z.2f"),
            Column("same class %", ".1f"),
            Column("R²", ".3f"),
            Column("seconds", ".1f"),
        ),
        tuple(rows),
        note="± is the standard error over seeds. Seconds of one core: kernel, fit and test together. Accuracies "
        "beside the published Table 2 are those of Table 1.",
        ours=tuple(ours),
    )


def _exact(rows: Records, images: int) -> Table:
    def over(which: str, number: str) -> Measured:
        return Measured.over([row[which][number] for row in rows])

    return Table(
        "The exact trace of the tangent kernel beside its projection, on the same "
        f"{images:,} training and {images:,} test images",
        (
            "kernel",
            Column("tau", ".3f"),
            Column("TAD", "+z.2f"),
            Column("R²", ".3f"),
            Column("seconds", ".1f"),
            Column("error of K", ".3f"),
        ),
        tuple(
            (
                name,
                *(over(which, number) for number in ("tau", "difference", "r2", "time")),
                Measured.over(rows.column("error")) if which == "projected" else None,
            )
            for which, name in (("exact", "trNTK"), ("projected", "proj-trNTK"))
        ),
        note="Error of K: ‖K - K_projected‖ / ‖K‖ (Frobenius) between training images.",
        ours=(0, 1),
    )


def _everything(whole: Records) -> Table:
    rows = []
    for row in whole:
        found = row["everything"]
        rows.append(
            (
                f"{row['kernel']}, ResNet-{row['depth']}",
                found["accuracy"],
                Measured(found["tau"], found["tau_error"]),
                Measured(found["difference"], found["difference_error"]),
                found["agreement"],
                found["r2"],
                found["error"],
                found["written"] / 3600,
                found["time"] / 3600,
                found["memory"] / 1e3,
                found["disk"] / 1e3,
            )
        )
    return Table(
        "All 50,000 training and 10,000 test images, through the kernel matrix on disk",
        (
            "kernel, network",
            Column("network's accuracy %", ".2f"),
            Column("tau", ".3f"),
            Column("TAD", "+z.2f"),
            Column("same class %", ".1f"),
            Column("R²", ".3f"),
            Column("error of K", ".3f"),
            Column("hours to write", ".2f"),
            Column("hours in all", ".2f"),
            Column("memory (GB)", ".1f"),
            Column("disk (GB)", ".1f"),
        ),
        tuple(rows),
        note="± is the standard error of the bootstrap over test images; hours of one core, in the last attempt: "
        "where an earlier one had left its matrix on disk, to write it took none. Error of K: "
        "‖K - K_stored‖ / ‖K‖ (Frobenius) beside the exact kernel, on 300 training images.",
        ours=tuple(range(len(rows))),
    )


def _figures(networks: dict[str, dict[str, Records]]) -> dict[str, Figure]:
    return {
        f"tau-{re.sub(r'[^0-9A-Za-z]+', '-', name)}": Dots(
            title=f"Faithfulness of the kernels of {name}",
            caption="Kendall's tau between network and surrogate: mean with its 95 % interval, and the single seeds.",
            values={kernel: rows.column("tau") for kernel, rows in kernels.items()},
            x_label="tau",
            level=FAITHFUL,
            size=(4.8, 2.4),
        )
        for name, kernels in networks.items()
    }
