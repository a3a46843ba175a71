"""The numbers of the surrogate study, beside the published ones, and what they say."""

from dataclasses import dataclass, field

import numpy as np

from tangentkit.core.text import counted
from tangentkit.report import (
    Bars,
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
from tangentkit.report.table import Cell
from tangentkit.studies.records import Record
from tangentkit.studies.study import DataCard
from tangentkit.surrogate.invertible_map import InvertibleMap, log_odds

KERNELS = {
    "trNTK": "trace of the NTK over the outputs, as a cosine: k(x, y) / √(k(x, x) k(y, y))",
    "trNTK0": "the same, not normalized to a cosine",
    "Em": "embedding kernel, as a cosine: inner product of the activations of all layers",
    "CK": "conjugate kernel, as a cosine: inner product of the activations of the last hidden layer",
    "pixels": "inner product of the images themselves, as a cosine",
}
"""The kernels that are compared, and what they are."""

PROJECTIONS = {
    "proj-trNTK": "trNTK from random projections of the gradients",
    "proj-pNTK": "the same of the sum of the outputs (pseudo-NTK)",
}
"""Kernels that are published and not computed here."""

TERMS = {
    "kGLM": "kernel generalized linear model: here softmax regression on a kernel, the surrogate of the network",
    "NTK": "neural tangent kernel: the inner product of the gradients of a network's outputs by its weights",
    **KERNELS,
    **PROJECTIONS,
    "tau": "Kendall's rank correlation between network and surrogate, of the probabilities they give to the true "
    "class of each test point: 1 is the same order, 0 is no relation",
    "TAD": "test accuracy difference: accuracy of the surrogate minus that of the network, in percentage points",
    "R²": "share of the variance of the network's log-odds that the surrogate's explain, by a fitted increasing map",
}
"""Abbreviations of the report."""

SMALL_DIFFERENCE = 2.0
"""Percentage points of accuracy that we call small; the source gives no number."""

TABLE_1 = (
    ("MLP (MNIST, 2 classes)", 100, Measured(99.64, 0.01), Measured(0.03, 0.05), Measured(0.708, 0.003)),
    ("CNN (MNIST, 2 classes)", 100, Measured(98.4, 0.1), Measured(-0.2, 0.2), Measured(0.857, 0.007)),
    ("CNN (CIFAR-10, 2 classes)", 100, Measured(94.94, 0.05), Measured(-2.1, 0.5), Measured(0.711, 0.003)),
    (
        "CNN (Fashion-MNIST, 2 classes)",
        100,
        Measured(97.95, 0.04),
        Measured(-2.2, 0.2),
        Measured(0.882, 0.003),
    ),
    ("ResNet18 (CIFAR-10)", 1, 93.07, -0.28, 0.776),
    ("ResNet34 (CIFAR-10)", 1, 93.33, -0.29, 0.786),
    ("MobileNetV2 (CIFAR-10)", 1, 93.91, -0.4, 0.700),
    ("BERT-base (CoLA)", 4, Measured(83.4, 0.1), Measured(-0.1, 0.3), Measured(0.78, 0.02)),
)
"""Network, number of networks, accuracy, TAD and tau as published."""

TABLE_2_NETWORKS = ("ResNet18", "BERT-base")
TABLE_2 = {
    "trNTK": ((0.776, Measured(0.809, 0.009)), (-0.30, Measured(0.1, 0.3))),
    "trNTK0": ((0.658, Measured(0.5, 0.1)), (-0.52, Measured(0.6, 0.2))),
    "proj-trNTK": ((0.737, Measured(0.800, 0.009)), (-0.20, Measured(0.1, 0.2))),
    "proj-pNTK": ((0.407, Measured(0.72, 0.02)), (-0.30, Measured(0.5, 0.2))),
    "Em": ((0.768, Measured(0.65, 0.02)), (-0.32, Measured(-0.3, 0.5))),
    "CK": ((0.630, Measured(0.52, 0.04)), (-0.20, Measured(-0.1, 0.1))),
}
"""Kernel -> tau and TAD of both networks as published."""


@dataclass(frozen=True)
class Scores:
    """How faithful the surrogate of one kernel is, for each seed."""

    tau: tuple[float, ...]
    """Kendall's τ between the probabilities of the true class."""
    difference: tuple[float, ...]
    """TAD: accuracy of the surrogate minus that of the network, in percentage points."""
    r2: tuple[float, ...]
    """R² of the log-odds after the fitted invertible map."""
    agreement: tuple[float, ...]
    """Percentage of test points to which both give the same class."""


@dataclass(frozen=True, eq=False)
class Examples(Record):
    """What the first seed shows: arrays to draw."""

    network: np.ndarray
    """(m,) the network's probability of the true class."""
    surrogate: np.ndarray
    """(m,) the trNTK surrogate's."""
    correct: np.ndarray
    """(m,) whether the network is right."""
    curve: InvertibleMap
    """From the log-odds of the surrogate to the probability of the network."""
    gram: np.ndarray
    """(g, g) part of the trNTK Gram matrix, sorted by class."""
    gram_classes: dict[str, int]
    """Class -> number of rows of `gram`."""
    images: np.ndarray
    """(q, 1 + 5, ...) a test image of each of the first classes and its five most similar training images."""
    labels: tuple[tuple[str, ...], ...]
    """Their classes."""


@dataclass(frozen=True, eq=False)
class Result(Record):
    """The numbers of the surrogate study."""

    seeds: tuple[int, ...]
    data: tuple[DataCard, ...]
    model: str
    parameters: int
    train: int
    test: int
    classes: int
    accuracy: tuple[float, ...]
    """Of the network on the test points, in percent, for each seed."""
    removed: tuple[int, ...]
    """Test points whose probability is exactly 0 or 1, which no τ or R² counts."""
    scores: dict[str, Scores]
    """Kernel -> scores."""
    examples: Examples = field(repr=False)

    def answer(self) -> str:
        """What came out, in two or three sentences."""
        trace, runs = self.scores["trNTK"], len(self.seeds)
        return (
            f"Over {counted(runs, 'seed')} the network is right on {Measured.over(self.accuracy):.1f} % of the test "
            "points. Its surrogate on the normalized trace of its neural tangent kernel (trNTK) ranks their "
            f"probabilities with Kendall's tau (rank correlation) {Measured.over(trace.tau):.3f}, differs from it by "
            f"{Measured.over(trace.difference):+z.2f} points of accuracy, and names the same class on "
            f"{Measured.over(trace.agreement):.1f} % of the points (mean ± standard error)."
        )

    def terms(self) -> dict[str, str]:
        """Abbreviation -> what it means."""
        return TERMS

    def claims(self) -> tuple[Claim, ...]:
        """The published claims, judged over the seeds."""
        tau = {name: np.array(scores.tau) for name, scores in self.scores.items()}
        rival = max((name for name in tau if name != "trNTK"), key=lambda name: tau[name].mean())
        return (
            Claim(
                "The surrogate ranks test points as the network does: tau is at least 0.7",
                "tau of trNTK",
                self.scores["trNTK"].tau,
                low=0.7,
                published="0.700 to 0.882 for eight networks",
            ),
            Claim(
                f"The surrogate is as accurate as the network, within {SMALL_DIFFERENCE:g} points",
                "TAD of trNTK in points",
                self.scores["trNTK"].difference,
                low=-SMALL_DIFFERENCE,
                high=SMALL_DIFFERENCE,
                published="-2.2 to +0.03 points, called small without a number",
            ),
            Claim(
                "trNTK has the highest tau of all kernels",
                f"tau of trNTK minus tau of {rival}, the best other one",
                tuple(map(float, tau["trNTK"] - tau[rival])),
                low=0.0,
                published="trNTK 0.776, the next one 0.768 (Em), CK 0.630 on ResNet18",
            ),
            Claim(
                "Normalization helps: tau of trNTK is above that of trNTK0",
                "tau of trNTK minus tau of trNTK0",
                tuple(map(float, tau["trNTK"] - tau["trNTK0"])),
                low=0.0,
                published="0.776 against 0.658 on ResNet18, 0.809 against 0.5 on BERT-base",
            ),
        )

    def tables(self) -> dict[str, Table]:
        """File name -> table; published numbers stand beside ours."""
        trace = self.scores["trNTK"]
        ours = (
            f"this run: {self.model} ({self.data[0].name}, {counted(self.classes, 'class')})",
            len(self.seeds),
            Measured.over(self.accuracy),
            Measured.over(trace.difference),
            Measured.over(trace.tau),
        )
        models = Table(
            "Faithfulness of the trNTK surrogate (published Table 1)",
            (
                "network (data)",
                "networks",
                Column("accuracy %", ".2f"),
                Column("TAD", "+z.2f"),
                Column("tau", ".3f"),
            ),
            (ours, *TABLE_1),
            note="TAD: accuracy of the surrogate minus that of the network, in percentage points. "
            "tau: Kendall's rank correlation of the probabilities of the true class. "
            "± is the standard error of the mean over networks.",
            ours=(0,),
        )
        kernels = Table(
            "Kernels compared (published Table 2)",
            (
                "kernel",
                *(Column(f"tau: {who}", ".3f") for who in ("ours", *TABLE_2_NETWORKS)),
                *(Column(f"TAD: {who}", "+z.2f") for who in ("ours", *TABLE_2_NETWORKS)),
                Column("R²: ours", ".3f"),
                Column("same class %: ours", ".1f"),
            ),
            tuple(self._kernel_row(name) for name in {**KERNELS, **TABLE_2}),
            note="The kernels are explained under Terms. The published projections (proj-) are not computed here; "
            "the pixel kernel is our own baseline. Points whose probability is exactly 0 or 1 count for no tau: "
            f"{sum(self.removed)} of {self.test * len(self.seeds):,}.",
            ours=tuple(range(len(KERNELS))),
        )
        return {"networks": models, "kernels": kernels}

    def figures(self) -> dict[str, Figure]:
        """File name -> figure."""
        shown = self.examples
        x = shown.curve.forward_log_odds(log_odds(shown.surrogate))
        y = log_odds(shown.network)
        groups = {"network right": shown.correct, "network wrong": ~shown.correct}
        first = f"seed {self.seeds[0]}"
        trace = self.scores["trNTK"]
        rows, neighbors = len(shown.images), shown.images.shape[1] - 1
        which = "each class" if rows == self.classes else f"each of {rows} of the {self.classes} classes"
        return {
            "tau": Dots(
                title="Which kernel repeats the network?",
                caption=f"tau of each kernel: mean over {counted(len(self.seeds), 'seed')} with its 95 % interval, "
                "and below it the single seeds as small dots. The dashed line is the claimed 0.7. The axis shows "
                "only the range of the values. Kernels share their seeds: the claims judge differences seed by seed.",
                values={name: scores.tau for name, scores in self.scores.items()},
                level=0.7,
                x_label="tau (1: same order)",
                size=(4.8, 3.0),
            ),
            "accuracy": Bars(
                title="Does the surrogate lose accuracy?",
                caption="TAD of each kernel: accuracy of the surrogate minus that of the network on the same test "
                "points, mean over seeds with its standard error; dots are single seeds. Left of 0 the surrogate is "
                "worse.",
                values={name: scores.difference for name, scores in self.scores.items()},
                level=0.0,
                x_label="TAD in percentage points",
                size=(4.8, 2.6),
            ),
            "odds": Scatter(
                title="Point by point",
                caption=f"Log-odds of the true class for each test point, {first}: of the trNTK surrogate after "
                f"the fitted increasing map, and of the network. On the dashed line both say the same; here "
                f"R² = {trace.r2[0]:.2f} and tau = {trace.tau[0]:.2f}.",
                series={name: Series(x[mask], y[mask]) for name, mask in groups.items() if mask.any()},
                diagonal=True,
                x_label="surrogate, log-odds (mapped)",
                y_label="network, log-odds",
                size=(4.8, 3.8),
            ),
            "gram": Heatmap(
                title="What the network finds alike",
                caption=f"trNTK between {len(shown.gram)} training images, sorted by class, {first}. Bright blocks "
                "on the diagonal are classes that the network holds together; bright blocks beside it are "
                "classes that it finds alike.",
                matrix=shown.gram,
                groups=shown.gram_classes,
                value_label="cosine",
            ),
            "neighbors": Images(
                title="Which training images speak for a test image?",
                caption=f"The first test image of {which} and the {neighbors} training images with the "
                f"largest trNTK to it, most similar first, {first}; their true classes below.",
                images=shown.images,
                labels=shown.labels,
                headings=("test", *map(str, range(1, neighbors + 1))),
                size=(4.8, 0.98 * len(shown.images)),
            ),
        }

    def stand_ins(self) -> tuple[StandIn, ...]:
        """What was replaced by what."""
        train = self.data[0]
        return (
            StandIn(
                "data",
                "CIFAR-10 (ResNets, MobileNet), two classes of MNIST, CIFAR-10 or Fashion-MNIST, CoLA (BERT)",
                f"{train.name}: {self.train:,} training and {self.test:,} test images for each seed, "
                f"{counted(self.classes, 'class')}",
                "comes with the library, so that the study runs without a download",
            ),
            StandIn(
                "network",
                "100 small MLPs and CNNs; ResNet18, ResNet34 and MobileNetV2 once; BERT-base four times",
                f"{self.model}, {self.parameters:,} parameters, trained here once for each seed: "
                f"{len(self.seeds)} in all",
                "small enough to be trained and taken apart on two cores",
            ),
            StandIn(
                "kernel GLM",
                "scikit-learn's SGDClassifier: logistic, one class against the rest",
                "softmax, fitted by L-BFGS",
                "probabilities of all classes at once, and no step size to choose",
            ),
            StandIn(
                "kernels",
                "trNTK, trNTK0, two random projections, embedding kernel, CK",
                ", ".join(self.scores),
                "projections come with a later version; pixels are our own baseline",
            ),
        )

    def _kernel_row(self, kernel: str) -> tuple[Cell, ...]:
        scores = self.scores.get(kernel)
        tau, difference, r2, agreement = (
            Measured.over(getattr(scores, name)) if scores else None
            for name in ("tau", "difference", "r2", "agreement")
        )
        taus, differences = TABLE_2.get(kernel, ((None, None), (None, None)))
        return (kernel, tau, *taus, difference, *differences, r2, agreement)
