"""What the trials of the study of principal components say, beside the published findings."""

from collections.abc import Callable, Sequence

import numpy as np

from tangentkit.report import Column, Figure, Lines, Measured, Ramp, Series, StandIn, Table
from tangentkit.studies.representations.layer_pca_claims import CLASSIFIERS, Layer, claims, late_gap, mean
from tangentkit.studies.trials.records import Records
from tangentkit.studies.trials.study import Result

TERMS = {
    "10-NN": "the class of most of the 10 nearest training images",
    "NCC": "nearest class center: the class whose training images are nearest in the mean",
    "SVM": "a linear support vector machine, of soft margin (C = 1), one class against the others",
    "d90": "the fewest principal components with 90 % of the best accuracy that the classifier has at this layer",
    "collapse": "the first layer from which all three classifiers have a d90 of at most 3",
}
NOTES = (
    "The published network is a ResNet-18 with eight blocks of up to 512 channels. Ours have nine and 27 blocks of "
    "16, 32 and 64 channels, so layers are compared by relative depth: block 4 of 8 is depth 0.5.",
    "Rules and bounds were set from the published text, after a look at accuracies of one layer (seed 99) that chose "
    "the number of images and the end of the grid: first half is depth up to 0.5, second half "
    "what is deeper; accuracies within two points match; a rank correlation below -0.8 is a decrease.",
    "That 10-NN and NCC saturate by about 100 components, and that 10-NN does not get worse in the second half, had "
    "no claims in the first run of the scale evening. Their rules are those of the other claims: two points, and "
    "means over a half. That run had seen 150 components and none between them and 100; NCC had gained at most 0.013 "
    "there, at any layer and draw. In the second half 10-NN had fallen by 0.035 (ResNet-20) and 0.032 (ResNet-56).",
    "The publication tries numbers of components up to the size of a layer. With few images that says little: there "
    "are no more components than images, and an SVM on more than a quarter as many components as images separates "
    "the training images whatever they are (and takes half a minute for one fit). So the grid ends before; --most "
    "and --train widen it.",
    "A collapse to two or three components was looked for with more images before the run: ResNet-20, one draw of "
    "3,000 training and 2,000 test images (seed 99). There d90 after the last block was 6 for all three, with 22 % "
    "of "
    "the variance; nine components had the network's accuracy (0.91 to 0.92). One block before, d90 was 15 (10-NN), "
    "18 "
    "(NCC) and 30 (SVM), and the best accuracies were 0.75, 0.75 and 0.80. Ten classes have nine directions.",
    "Seeds are draws of images for the same trained networks, for there is one checkpoint of each depth. What "
    "another training would give is not seen here.",
)


def report(depths: Sequence[int], train: int, most: int, records: Records) -> Result:
    """Tables, figures and claims of all networks."""
    networks = {f"ResNet-{depth}": records.where(depth=depth) for depth in depths}
    return Result(
        answer=" ".join(_answer(name, rows) for name, rows in networks.items() if rows)
        or "No trial was finished.",
        claims=tuple(claim for name, rows in networks.items() for claim in claims(name, rows, train, most)),
        tables={f"layers-{name.lower()}": _table(name, rows) for name, rows in networks.items()},
        figures={
            f"{what}-{name.lower()}": figure
            for name, rows in networks.items()
            if rows
            for what, figure in _figures(name, rows).items()
        },
        stand_ins=_stand_ins(depths, train, most),
        terms=TERMS,
        notes=NOTES,
    )


def _answer(name: str, rows: Records) -> str:
    first, last = (
        {
            short: mean(row["layers_found"][i]["needed"][classifier] for row in rows)
            for classifier, short in CLASSIFIERS.items()
        }
        for i in (0, -1)
    )
    words = ", ".join(f"{short} {first[short]:.0f} and {last[short]:.0f}" for short in first)
    gaps = [late_gap(row["layers_found"][-1:], row["network_accuracy"]) for row in rows]
    collapsed = [row["collapse_depth"] for row in rows if row["collapse_depth"] is not None]
    where = (
        f"all three get by with 3 or fewer in {len(collapsed)} of {len(rows)} draws, first at depth "
        f"{mean(collapsed):.2f} of 1"
        if collapsed
        else "at no layer do all three get by with 3 or fewer"
    )
    return (
        f"{name}: for 90 % of their best accuracy the classifiers need this many components before the first and "
        f"after the last block: {words}; {where}. On ten components of the last block the worst of the three "
        f"has an accuracy {mean(gaps):.3f} below that of the network."
    )


def _by_depth(rows: Records) -> list[list[Layer]]:
    """For every layer, what each seed says of it."""
    return [list(found) for found in zip(*(row["layers_found"] for row in rows), strict=True)]


def _table(name: str, rows: Records) -> Table:
    shorts = CLASSIFIERS.values()
    return Table(
        f"{name}: best accuracy, d90 and variance in so many components (mean and s.e. over draws of images)",
        (
            "layer",
            Column("depth", ".2f"),
            "size",
            *(Column(f"best {short}", ".3f") for short in shorts),
            *(Column(f"d90 {short}", ".1f") for short in shorts),
            *(Column(f"variance {short}", ".2f") for short in shorts),
        ),
        tuple(
            (
                layers[0]["name"],
                layers[0]["depth"],
                layers[0]["size"],
                *(Measured.over([max(one["accuracy"][c]) for one in layers]) for c in CLASSIFIERS),
                *(Measured.over([one["needed"][c] for one in layers]) for c in CLASSIFIERS),
                *(Measured.over([one["variance_needed"][c] for one in layers]) for c in CLASSIFIERS),
            )
            for layers in _by_depth(rows)
        ),
        note="The network itself: "
        f"{Measured.over(rows.column('network_accuracy')):.3f}. The publication shows curves without numbers, but "
        "for: d90 of 2 to 3 in the second half, and 20 to 40 % of the variance.",
    )


def _over_depth(rows: Records, value: Callable[[Layer, str], float]) -> dict[str, Series]:
    layers = _by_depth(rows)
    found = {}
    for classifier, short in CLASSIFIERS.items():
        means = [Measured.over([value(one, classifier) for one in some]) for some in layers]
        found[short] = Series(
            [some[0]["depth"] for some in layers], [m.value for m in means], [m.error or 0.0 for m in means]
        )
    return found


def _figures(name: str, rows: Records) -> dict[str, Figure]:
    return {
        "components-needed": _needed_figure(name, rows),
        "variance": _variance_figure(name, rows),
        **{
            f"accuracy-{short.lower()}": _accuracy_figure(name, rows, classifier, short)
            for classifier, short in CLASSIFIERS.items()
        },
    }


def _needed_figure(name: str, rows: Records) -> Figure:
    return Lines(
        title=f"Components needed over depth, {name}",
        caption="d90, the fewest components with 90 % of a classifier's best accuracy at this layer. At most 3 "
        "(dashed) for all three means collapse. Bands are standard errors over draws of images.",
        series=_over_depth(rows, lambda layer, classifier: layer["needed"][classifier]),
        x_label="relative depth",
        y_label="d90",
        level=3,
        legend="beside",
        size=(5.6, 3.2),
    )


def _variance_figure(name: str, rows: Records) -> Figure:
    return Lines(
        title=f"Variance in these components, {name}",
        caption="The share of the variance of a layer that its d90 components have; published: 0.2 to 0.4 in the "
        "second half.",
        series=_over_depth(rows, lambda layer, classifier: layer["variance_needed"][classifier]),
        x_label="relative depth",
        y_label="share of the variance",
        legend="beside",
        size=(5.6, 3.2),
    )


def _accuracy_figure(name: str, rows: Records, classifier: str, short: str) -> Figure:
    curves = {
        layers[0]["depth"]: Series(
            layers[0]["dims"], np.mean([one["accuracy"][classifier] for one in layers], axis=0)
        )
        for layers in _by_depth(rows)
    }
    return Ramp(
        title=f"Accuracy of {short} over components, {name}",
        caption=f"Test accuracy of {short} on the first d components, a curve for each of {len(curves)} layers with "
        "its relative depth as color, in the mean over draws of images; dashed: the network itself.",
        curves=curves,
        level=mean(rows.column("network_accuracy")),
        x_label="components d",
        y_label="test accuracy",
        value_label="relative depth",
        x_scale="log",
    )


def _stand_ins(depths: Sequence[int], train: int, most: int) -> tuple[StandIn, ...]:
    return (
        StandIn(
            "network",
            "ResNet-18 trained on CIFAR-10 (92.5 % on the test set), 8 blocks",
            ", ".join(f"ResNet-{depth}" for depth in depths)
            + " trained on CIFAR-10 (91.73 and 93.39 % for 20 and 56)",
            "the published network is not to be had; these have public checkpoints",
        ),
        StandIn(
            "first layer",
            "output of the initial max-pool",
            "output of the initial convolution, normalization and ReLU",
            "these networks have no max-pool",
        ),
        StandIn(
            "images",
            "the training set of CIFAR-10 (its size is not said; there are 50,000)",
            f"{train:,} training images, and up to {most:,} components",
            "time; --scale full. All 50,000 would make all seeds the same, so that full draws 45,000",
        ),
    )
