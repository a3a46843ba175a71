"""Claims about the principal components of each layer, and the quantities that they are about."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tangentkit.report import Claim
from tangentkit.studies.trials.records import Records

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
    """How far 10-NN on all tried components is below its best, in the mean over layers."""
    return mean(max(layer["accuracy"]["10-NN"]) - layer["accuracy"]["10-NN"][-1] for layer in layers)


def late_gain(layers: Sequence[Layer], classifier: str) -> float:
    """What a classifier has more on any number of components above 100 than on 100, at the layer where it is most."""
    return max(
        max(
            (a for d, a in zip(layer["dims"], layer["accuracy"][classifier], strict=True) if d > EARLY),
            default=math.nan,
        )
        - at(layer, classifier, EARLY)
        for layer in layers
    )


def svm_gain(layers: Sequence[Layer]) -> float:
    """What the SVM gains from the 100th component on, in the mean over the first half."""
    return mean(
        layer["accuracy"]["linear SVM"][-1] - at(layer, "linear SVM", EARLY)
        for layer in half(layers, second=False)
    )


def hunch(layers: Sequence[Layer]) -> float:
    """ln d90 of NCC: the mean of the middle third of depth minus the larger mean of the outer thirds."""
    third = [min(2, int(3 * layer["depth"])) for layer in layers]
    means = [
        mean(
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
    return mean(
        layer["variance_needed"][classifier]
        for layer in half(layers, second=True)
        for classifier in CLASSIFIERS
    )


def late_gap(layers: Sequence[Layer], network: float) -> float:
    """By how much the network is better than the worst classifier on ten components, mean over the second half."""
    return mean(
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


def claims(name: str, rows: Records, train: int, most: int) -> tuple[Claim, ...]:
    """All claims about one network."""
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
    none_beyond = "" if most > EARLY else f"more than {EARLY} components: --most 150"
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
            _each(rows, lambda layers: neighbor_fall(half(layers, second=False))),
            low=MATCHED,
            published="declines beyond about 100 components, up to block 4 of 8",
        ),
        Claim(
            f"{name}: in the second half 10-NN does not get worse with many components",
            "best accuracy minus that on all tried components, mean of the second half",
            _each(rows, lambda layers: neighbor_fall(half(layers, second=True))),
            high=MATCHED,
            published="declines up to block 4 of 8 only",
        ),
        *(
            Claim(
                f"{name}: {short} saturates by {EARLY} components",
                f"best accuracy on {EARLY + 1} to {most:,} components minus that on {EARLY}, the most over layers",
                _each(rows, lambda layers, classifier=classifier: late_gain(layers, classifier)),
                high=MATCHED,
                published="10-NN and NCC saturate by about 100 components",
                needs=none_beyond,
            )
            for classifier, short in CLASSIFIERS.items()
            if short != "SVM"
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


def mean(values: Iterable[float]) -> float:
    """The mean, nan of none."""
    found = list(values)
    return float(np.mean(found)) if found else math.nan
