"""What the trials of the surrogate study say, beside the published numbers."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tangentkit.core.text import counted
from tangentkit.report import (
    Claim,
    Column,
    Dots,
    Figure,
    Heatmap,
    Images,
    Measured,
    Scatter,
    Series,
    StandIn,
    Table,
)
from tangentkit.studies.surrogates.surrogate_cases import CASES, KERNELS, OTHERS, SMALL_DIFFERENCE, TABLE_2
from tangentkit.studies.trials.published import Pair, beside_published, is_same
from tangentkit.studies.trials.records import Records
from tangentkit.studies.trials.study import Result

TERMS = {
    "kGLM": "kernel generalized linear model: here softmax regression on a kernel, the surrogate of the network",
    "NTK": "neural tangent kernel: the inner product of the gradients of a network's outputs by its weights",
    **KERNELS,
    "tau": "Kendall's rank correlation between network and surrogate, of the probabilities they give to the true "
    "class of each test point: 1 is the same order, 0 is no relation",
    "TAD": "test accuracy difference: accuracy of the surrogate minus that of the network, in percentage points",
    "R²": "share of the variance of the network's log-odds that the surrogate's explain, by a fitted increasing map",
}
"""Abbreviations of the report."""


def report(records: Records, *, train: int, test: int, passes: float, dim: int) -> Result:
    """Claims, tables and figures."""
    cases = {case: rows for case in CASES if (rows := records.where(case=case))}
    ten = cases.get("lenet") or next(iter(cases.values()))
    tau = _over(ten, "tau")
    answer = (
        f"On {counted(len(cases), 'kind')} of networks the surrogate on the trace of the tangent kernel (trNTK) "
        f"ranks test points with tau {min(_over(rows, 'tau')['trNTK'].value for rows in cases.values()):.2f} to "
        f"{max(_over(rows, 'tau')['trNTK'].value for rows in cases.values()):.2f}. On {_name(ten)} trNTK has tau "
        f"{tau['trNTK']:.3f}, its projection {tau['proj-trNTK']:.3f}, the embedding kernel {tau['Em']:.3f} and the "
        f"conjugate kernel {tau['CK']:.3f} (mean ± standard error)."
    )
    return Result(
        answer=answer,
        terms=TERMS,
        claims=tuple(
            replace(claim, larger="--train and --test")
            for claim in (*_claims_of_networks(cases), *_claims_of_kernels(ten))
        ),
        tables={
            "networks": _networks(cases),
            "kernels-tau": _kernels(cases, "tau"),
            "kernels-tad": _kernels(cases, "difference"),
            "attribution": _attribution(cases),
        },
        figures=_figures(cases, ten),
        stand_ins=_stand_ins(records, train, test, passes, dim),
        notes=(
            "tau ranks log-odds, in which probabilities that round to 0 or 1 keep their order. The authors' code "
            "for one-logit networks ranks the probability of class 1 at all points instead of that of the true "
            "class, and drops seeds whose numbers overflow. That measure is high as soon as both tell the classes "
            "apart.",
            "The MLP's tau of the true class stays below the published 0.708 with 300 and 2,000 images, with a fifth "
            "and all of the published epochs, with penalties of 1e-4, 1e-2 and 1 and with the authors' SGDClassifier "
            "(0.13 to 0.58, two seeds each), while the tau of class 1 is 0.75 to 0.80 in every one of these: the "
            "published numbers of two-class networks seem to be of the latter kind.",
            "The published text gives the mean squared error of the Fashion-MNIST networks without a sigmoid; we "
            "take it with one, as for MNIST, since the surrogate reads the output as a log-odds.",
        ),
    )


def _of(row: Mapping[str, Any], number: str) -> dict[str, float]:
    """Kernel -> a number of one trial."""
    return {kernel: values[number] for kernel, values in row["kernels"].items()}


def _over(rows: Records, number: str) -> dict[str, Measured]:
    """Kernel -> a number over seeds."""
    return {kernel: Measured.over([_of(row, number)[kernel] for row in rows]) for kernel in KERNELS}


def _name(rows: Records) -> str:
    row = rows[0]
    if row["case"] == "lenet":
        return f"LeNet ({row['data']})"
    kind, _, published = CASES[row["case"]].published.removesuffix(", 2 classes)").partition(" (")
    # On other data networks that were published for several are told apart by these.
    as_published = "" if is_same(published, row["data"]) else f" as for {published}"
    return f"{kind}{as_published} ({row['data']}, 2 classes)"


def _claims_of_networks(cases: dict[str, Records]) -> list[Claim]:
    """Table 1: how faithful the trNTK surrogate of each network is."""
    found = []
    for case, rows in cases.items():
        network = _name(rows)
        stands = f" ({CASES[case].published})" if case == "lenet" or " as for " in network else ""
        found.append(
            Claim(
                f"{network}: the surrogate ranks test points as the network does, tau at least 0.7",
                f"tau of trNTK, {network}",
                tuple(_of(row, "tau")["trNTK"] for row in rows),
                low=0.7,
                published=f"{CASES[case].tau:.3f}{stands}",
            )
        )
        if CASES[case].classes:
            found.append(
                Claim(
                    f"{network}: the same by the authors' measure, the probability of class 1",
                    f"tau of class 1 at all points, trNTK, {network}",
                    tuple(row["tau_class_1"]["trNTK"] for row in rows),
                    low=0.7,
                    published=f"{CASES[case].tau:.3f}{stands}",
                )
            )
        found.append(
            Claim(
                f"{network}: the surrogate is as accurate, within {SMALL_DIFFERENCE:g} points",
                f"TAD of trNTK in points, {network}",
                tuple(_of(row, "difference")["trNTK"] for row in rows),
                low=-SMALL_DIFFERENCE,
                high=SMALL_DIFFERENCE,
                published=f"{CASES[case].difference:+.2f}{stands}",
            )
        )
    return found


def _claims_of_kernels(ten: Records) -> list[Claim]:
    """Table 2 and Figure 2, on the network with ten classes."""

    def gains(one: str, other: str) -> tuple[float, ...]:
        return tuple(_of(row, "tau")[one] - _of(row, "tau")[other] for row in ten)

    taus = _over(ten, "tau")
    rival = max((kernel for kernel in KERNELS if kernel != "trNTK"), key=lambda kernel: taus[kernel].value)
    return [
        Claim(
            "trNTK has the highest tau of all kernels",
            f"tau of trNTK minus tau of {rival}, the best other one, {_name(ten)}",
            gains("trNTK", rival),
            low=0.0,
            published="0.776, the next one 0.768 (Em), on ResNet18; 0.809 and 0.800 (proj-trNTK) on BERT",
        ),
        Claim(
            "Normalization helps: tau of trNTK is above that of trNTK0",
            f"tau of trNTK minus tau of trNTK0, {_name(ten)}",
            gains("trNTK", "trNTK0"),
            low=0.0,
            published="0.776 against 0.658 on ResNet18, 0.809 against 0.5 on BERT-base",
        ),
        Claim(
            "The projected kernel is close behind: tau of proj-trNTK within 0.05 of trNTK",
            f"tau of trNTK minus tau of proj-trNTK, {_name(ten)}",
            gains("trNTK", "proj-trNTK"),
            low=-0.05,
            high=0.05,
            published="0.039 on ResNet18, 0.009 on BERT-base",
        ),
        Claim(
            "The projected pseudo-NTK is less faithful than the projected trace",
            f"tau of proj-trNTK minus tau of proj-pNTK, {_name(ten)}",
            gains("proj-trNTK", "proj-pNTK"),
            low=0.0,
            published="0.737 against 0.407 on ResNet18, 0.800 against 0.72 on BERT-base",
        ),
        Claim(
            "The class with the largest mean attribution is the predicted one",
            f"share of test points, {_name(ten)}",
            tuple(ten.column("largest_is_predicted")),
            low=0.9,
            published="shown for one image (Figure 2); at least 90 % is our rule",
        ),
        Claim(
            "No small set of points carries a decision: the top 1 % hold less than 10 % of the attribution",
            f"share of the mass of |A|, mean over test points, {_name(ten)}",
            tuple(ten.column("mass")),
            high=0.1,
            published="said of Figure 2 without a number; 10 % is our rule",
        ),
    ]


def _networks(cases: dict[str, Records]) -> Table:
    rows: list[Pair] = []
    for case, known in CASES.items():
        rows.append(
            (known.published, (known.networks, known.accuracy, known.difference, known.tau, None), None)
        )
        if found := cases.get(case):
            ours = (
                len(found),
                Measured.over(found.column("accuracy")),
                _over(found, "difference")["trNTK"],
                _over(found, "tau")["trNTK"],
                Measured.over([row["tau_class_1"]["trNTK"] for row in found]) if known.classes else None,
            )
            rows.append((_name(found), None, ours))
    return beside_published(
        "Faithfulness of the trNTK surrogate (published Table 1)",
        (
            "network (data)",
            "networks",
            Column("accuracy %", ".2f"),
            Column("TAD", "+z.2f"),
            Column("tau", ".3f"),
            Column("tau of class 1", ".3f"),
        ),
        [*rows, *((name, (*rest, None), None) for name, *rest in OTHERS)],
        note="± is the standard error of the mean over networks.",
    )


def _kernels(cases: dict[str, Records], number: str) -> Table:
    """Table 2 for tau ("tau") or TAD ("difference")."""
    name, form, place = {"tau": ("tau", ".3f", 0), "difference": ("TAD", "+z.2f", 1)}[number]
    published = ("ResNet18, published", "BERT-base, published")
    return Table(
        f"Kernels compared by {name} (published Table 2)",
        ("kernel", *(Column(one, form) for one in (*(_name(rows) for rows in cases.values()), *published))),
        tuple(
            (kernel, *(_over(rows, number)[kernel] for rows in cases.values()), *TABLE_2[kernel][place])
            for kernel in KERNELS
        ),
        note="Published: ResNet18 on CIFAR-10, BERT-base on CoLA. The kernels are explained under Terms.",
    )


def _attribution(cases: dict[str, Records]) -> Table:
    def share(rows: Records, name: str) -> Measured:
        return Measured.over([100 * value for value in rows.column(name)])

    return Table(
        "What attributions look like (published Figure 2, and nearest training images)",
        (
            "network (data)",
            Column("predicted class has the largest mean, % of points", ".1f"),
            Column("mass in the top 1 %, %", ".1f"),
            Column("mean inside the box, %", ".1f"),
            *(Column(f"top 5 as trNTK, %: {kernel}", ".0f") for kernel in KERNELS if kernel != "trNTK"),
        ),
        tuple(
            (
                _name(rows),
                *(share(rows, name) for name in ("largest_is_predicted", "mass", "mean_in_box")),
                *(
                    Measured.over([100 * row["overlap"][kernel] for row in rows])
                    for kernel in KERNELS
                    if kernel != "trNTK"
                ),
            )
            for rows in cases.values()
        ),
    )


def _figures(cases: dict[str, Records], ten: Records) -> dict[str, Figure]:
    figures: dict[str, Figure] = {
        "tau": Dots(
            title="Which kernel repeats the network?",
            caption=f"tau of each kernel on {_name(ten)}: mean over {counted(len(ten), 'seed')} with its 95 % "
            "interval, and below it the single seeds. The dashed line is the claimed 0.7. Kernels share their seeds: "
            "the claims judge differences seed by seed.",
            values={kernel: [_of(row, "tau")[kernel] for row in ten] for kernel in KERNELS},
            level=0.7,
            x_label="tau (1: same order)",
        ),
        "networks": Dots(
            title="How faithful on which network?",
            caption="tau of the trNTK surrogate for each kind of network, with its 95 % interval.",
            values={_name(rows): [_of(row, "tau")["trNTK"] for row in rows] for rows in cases.values()},
            level=0.7,
            x_label="tau (1: same order)",
        ),
    }
    for rows in cases.values():
        for row in rows.having("odds"):
            x, y = np.asarray(row["odds"], dtype=float)
            right = np.asarray(row["right"], dtype=bool)
            groups = {"network right": right, "network wrong": ~right}
            figures[f"odds-{row['case']}"] = Scatter(
                title=f"Point by point: {_name(rows)}",
                caption=f"Log-odds of the true class for each test point, seed {row['seed']}: of the trNTK surrogate "
                "after the fitted increasing map, and of the network (published Figure 1). On the dashed line both "
                f"say the same; R² = {_of(row, 'r2')['trNTK']:.2f}, tau = {_of(row, 'tau')['trNTK']:.2f}.",
                series={name: Series(x[mask], y[mask]) for name, mask in groups.items() if mask.any()},
                diagonal=True,
                x_label="surrogate, log-odds (mapped)",
                y_label="network, log-odds",
                size=(4.8, 3.6),
            )
    for row in ten.having("odds"):
        figures |= _pictures(row)
    return figures


def _pictures(row: Mapping[str, Any]) -> dict[str, Figure]:
    pictures = np.asarray(row["pictures"], dtype=float) / 255
    images = pictures[:, :, 0] if pictures.shape[2] == 1 else np.moveaxis(pictures, 2, -1)
    return {
        "gram": Heatmap(
            title="What the network finds alike",
            caption=f"trNTK between {len(row['gram'])} training images, sorted by class, seed {row['seed']}. Bright "
            "blocks on the diagonal are classes that the network holds together.",
            matrix=np.asarray(row["gram"], dtype=float),
            groups=row["gram_classes"],
            value_label="cosine",
        ),
        "neighbors": Images(
            title="Which training images speak for a test image?",
            caption=f"A test image of each class and the {images.shape[1] - 1} training images with the largest "
            f"trNTK to it, most similar first, seed {row['seed']}; their true classes below.",
            images=images,
            labels=row["labels"],
            headings=("test", *map(str, range(1, images.shape[1]))),
            size=(4.8, 0.98 * len(images)),
        ),
    }


def _stand_ins(records: Records, train: int, test: int, passes: float, dim: int) -> tuple[StandIn, ...]:
    used = ", ".join(dict.fromkeys(records.column("data")))
    return (
        StandIn(
            "data",
            "two classes of MNIST, CIFAR-10 or Fashion-MNIST (10,000 training images), CIFAR-10 (50,000), CoLA",
            f"{used}: {train:,} training and {test:,} test images for each seed",
            "what two cores do in minutes; `--scale full` has the published size of the small networks",
        ),
        StandIn(
            "networks",
            "100 small MLPs and CNNs of each kind; ResNet18, ResNet34 and MobileNetV2 once; BERT-base four times",
            f"the small ones as published, with {passes:g} of the published epochs; a LeNet on ten classes for the "
            "ResNets and MobileNet",
            "the published ResNets' weights are not to be had; ResNets that others trained on CIFAR-10 are in the "
            "study "
            "pretrained-surrogate",
        ),
        StandIn(
            "kernel GLM",
            "scikit-learn's SGDClassifier: logistic, one class against the rest",
            "softmax, solved to the optimum by Newton's method",
            "probabilities of all classes at once, and no step size to choose",
        ),
        StandIn("projections", "10,240 random directions", f"{dim:,} features", "smaller matrices"),
    )
