"""What the trials of the study of principal components say, beside the published findings."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tangentkit.report import Claim, Column, Figure, Lines, Measured, Series, StandIn, Table
from tangentkit.studies.trials.records import Records
from tangentkit.studies.trials.study import Result

Layer = Mapping[str, Any]
CLASSIFIERS = {"10-NN": "10-NN", "nearest center": "NCC", "linear SVM": "SVM"}
"""Classifier -> its short name on the page."""
EARLY = 100
"""Components by which 10-NN and NCC have said what they know, as published."""
FEW = 10
"""Components within which the second half of the network is as good as the network itself, as published."""
MATCHED = 0.02
"""Accuracies that differ by less are equal: about a standard error of 600 images."""
MONOTONE = -0.8
"""A rank correlation below it counts as falling with depth."""
MANY = 10_000
"""Training images below which an SVM on hundreds of components learns its images by heart."""

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
    last = next(reversed(networks))
    return Result(
        answer=" ".join(_answer(name, rows) for name, rows in networks.items() if rows)
        or "No trial was finished.",
        claims=tuple(claim for name, rows in networks.items() for claim in _claims(name, rows, train, most)),
        tables={f"layers-{name.lower()}": _table(name, rows) for name, rows in networks.items()},
        figures={
            "components-needed": _needed_figure(last, networks[last]),
            **{
                f"accuracy-{short.lower()}": _accuracy_figure(last, networks[last], classifier, short)
                for classifier, short in CLASSIFIERS.items()
            },
            "variance": _variance_figure(last, networks[last]),
            **{
                f"components-needed-{name.lower()}": _needed_figure(name, rows)
                for name, rows in networks.items()
                if name != last
            },
        },
        stand_ins=_stand_ins(depths, train, most),
        terms=TERMS,
        notes=NOTES,
    )


def half(layers: Sequence[Layer], *, second: bool) -> list[Layer]:
    """The layers of relative depth above 0.5, or the others."""
    return [layer for layer in layers if (layer["depth"] > 0.5) == second]


def at(layer: Layer, classifier: str, d: int) -> float:
    """The accuracy on the most components that are tried up to d."""
    index = max(i for i, tried in enumerate(layer["dims"]) if tried <= d or i == 0)
    return layer["accuracy"][classifier][index]


def svm_lead(layers: Sequence[Layer]) -> float:
    """The least lead of the SVM's best accuracy over those of 10-NN and NCC, over layers."""
    return min(
        max(layer["accuracy"]["linear SVM"])
        - max(max(layer["accuracy"][other]) for other in ("10-NN", "nearest center"))
        for layer in layers
    )


def neighbor_fall(layers: Sequence[Layer]) -> float:
    """How far 10-NN on all tried components is below its best, in the mean over the first half."""
    return _mean(
        max(layer["accuracy"]["10-NN"]) - layer["accuracy"]["10-NN"][-1]
        for layer in half(layers, second=False)
    )


def svm_gain(layers: Sequence[Layer]) -> float:
    """What the SVM gains from the 100th component on, in the mean over the first half."""
    return _mean(
        layer["accuracy"]["linear SVM"][-1] - at(layer, "linear SVM", EARLY)
        for layer in half(layers, second=False)
    )


def hunch(layers: Sequence[Layer]) -> float:
    """ln d90 of NCC: the mean of the middle third of depth minus the larger mean of the outer thirds."""
    third = [min(2, int(3 * layer["depth"])) for layer in layers]
    means = [
        _mean(
            math.log(layer["needed"]["nearest center"])
            for layer, t in zip(layers, third, strict=True)
            if t == i
        )
        for i in range(3)
    ]
    return means[1] - max(means[0], means[2])


def svm_trend(layers: Sequence[Layer]) -> float:
    """Spearman's correlation of the SVM's d90 with depth, 0 where all are equal."""
    from scipy.stats import spearmanr

    needed = [layer["needed"]["linear SVM"] for layer in layers]
    if len(set(needed)) == 1:
        return 0.0
    return float(spearmanr([layer["depth"] for layer in layers], needed).statistic)  # pyright: ignore[reportAttributeAccessIssue]


def late_variance(layers: Sequence[Layer]) -> float:
    """The share of the variance in the d90 components, in the mean over the second half and classifiers."""
    return _mean(
        layer["variance_needed"][classifier]
        for layer in half(layers, second=True)
        for classifier in CLASSIFIERS
    )


def late_gap(layers: Sequence[Layer], network: float) -> float:
    """By how much the network is better than the worst classifier on ten components, mean over the second half."""
    return _mean(
        network - min(at(layer, classifier, FEW) for classifier in CLASSIFIERS)
        for layer in half(layers, second=True)
    )


def collapse(row: Mapping[str, Any]) -> float:
    """The relative depth of the collapse; one block beyond the last layer where there is none."""
    depth = row["collapse_depth"]
    if depth is not None:
        return depth
    depths = [layer["depth"] for layer in row["layers_found"]]
    return 1 + (depths[-1] - depths[-2])


def _claims(name: str, rows: Records, train: int, most: int) -> tuple[Claim, ...]:
    return (*_on_components(name, rows, train, most), *_on_depth(name, rows))


def _each(rows: Records, quantity: Callable[[Sequence[Layer]], float]) -> tuple[float, ...]:
    """A quantity of the layers, one for each seed."""
    return tuple(quantity(row["layers_found"]) for row in rows)


def _on_components(name: str, rows: Records, train: int, most: int) -> tuple[Claim, ...]:
    """What more components do to the classifiers."""
    few = (
        ""
        if train >= MANY and most > EARLY
        else f"{MANY:,} training images and more components: --scale full"
    )
    return (
        Claim(
            f"{name}: the SVM matches or beats 10-NN and NCC at every layer",
            "least lead of its best accuracy over layers",
            _each(rows, svm_lead),
            low=-MATCHED,
            published="matches or beats them at every layer",
        ),
        Claim(
            f"{name}: in the first half 10-NN gets worse with many components",
            "best accuracy minus that on all tried components, mean of the first half",
            _each(rows, neighbor_fall),
            low=MATCHED,
            published="declines beyond about 100 components, up to block 4 of 8",
        ),
        Claim(
            f"{name}: in the first half the SVM gets better beyond 100 components",
            "gain from 100 components to the most, mean of the first half",
            _each(rows, svm_gain),
            low=0.0,
            published="keeps improving",
            needs=few,
        ),
    )


def _on_depth(name: str, rows: Records) -> tuple[Claim, ...]:
    """What depth does to them."""
    return (
        Claim(
            f"{name}: NCC needs most components in the middle of the network (hunchback)",
            "ln d90, middle third minus the larger of the outer thirds",
            _each(rows, hunch),
            low=0.0,
            published="a hunchback over depth",
        ),
        Claim(
            f"{name}: the SVM needs fewer components the deeper the layer",
            "rank correlation of d90 with depth",
            _each(rows, svm_trend),
            high=MONOTONE,
            published="decreases monotonically",
        ),
        Claim(
            f"{name}: in the second half ten components are as good as the network",
            "accuracy of the network minus the worst of the three on 10 components, mean of the second half",
            tuple(late_gap(row["layers_found"], row["network_accuracy"]) for row in rows),
            high=MATCHED,
            published="all three jump to the network's accuracy within 1 to 10 components from block 5 of 8 on",
        ),
        Claim(
            f"{name}: all classifiers collapse past the middle, before the last block",
            "relative depth of the collapse (above 1: none)",
            tuple(collapse(row) for row in rows),
            low=0.5,
            high=1.0,
            published="between block 4 and 5 of 8; d90 is 2 to 3 from there on",
        ),
        Claim(
            f"{name}: in the second half these components have 20 to 40 % of the variance",
            "share of the variance, mean over the second half and classifiers",
            _each(rows, late_variance),
            low=0.2,
            high=0.4,
            published="20 to 40 %",
        ),
    )


def _answer(name: str, rows: Records) -> str:
    first, last = (
        {
            short: _mean(row["layers_found"][i]["needed"][classifier] for row in rows)
            for classifier, short in CLASSIFIERS.items()
        }
        for i in (0, -1)
    )
    words = ", ".join(f"{short} {first[short]:.0f} and {last[short]:.0f}" for short in first)
    gaps = [late_gap(row["layers_found"][-1:], row["network_accuracy"]) for row in rows]
    collapsed = [row["collapse_depth"] for row in rows if row["collapse_depth"] is not None]
    where = (
        f"all three get by with 3 or fewer in {len(collapsed)} of {len(rows)} draws, first at depth "
        f"{_mean(collapsed):.2f} of 1"
        if collapsed
        else "at no layer do all three get by with 3 or fewer"
    )
    return (
        f"{name}: for 90 % of their best accuracy the classifiers need this many components before the first and "
        f"after the last block: {words}; {where}. On ten components of the last block the worst of the three "
        f"has an accuracy {_mean(gaps):.3f} below that of the network."
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


def _needed_figure(name: str, rows: Records) -> Figure:
    return Lines(
        title=f"Components needed over depth, {name}",
        caption="d90, the fewest components with 90 % of a classifier's best accuracy at this layer. Below 3 "
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
    found, series = _by_depth(rows), {}
    for layers in found[::-1][
        ::2
    ]:  # every second, the last one among them: more curves than colors say nothing
        values = np.array([one["accuracy"][classifier] for one in layers])
        series[f"{layers[0]['name']} ({layers[0]['depth']:.2f})"] = Series(layers[0]["dims"], values.mean(0))
    return Lines(
        title=f"Accuracy of {short} over components, {name}",
        caption=f"Test accuracy of {short} on the first d components, a curve for every second layer with "
        "its relative depth, in the mean over draws; dashed: the network itself.",
        series=series,
        level=_mean(rows.column("network_accuracy")),
        x_label="components d",
        y_label="test accuracy",
        x_scale="log",
        markers=False,
        legend="beside",
        size=(6.4, 3.6),
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


def _mean(values: Any) -> float:
    found = list(values)
    return float(np.mean(found)) if found else math.nan
