"""The accuracy of LeNet×k and of its linearization over the width k, on tasks of rising difficulty.

Both start from the same weights and see the same mini-batches.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from tangentkit.core.errors import NumericalError
from tangentkit.core.seeds import Key
from tangentkit.data.dataset import Data
from tangentkit.linearized import ConstantRate, StepDecay, Training
from tangentkit.models import lenet
from tangentkit.report import Claim, Column, Figure, Lines, Measured, Series, StandIn, Table
from tangentkit.studies.linearization.images import drawn_images, in_words
from tangentkit.studies.trials.data import cards, first_here
from tangentkit.studies.trials.fields import check_rising
from tangentkit.studies.trials.pairs import train_pair
from tangentkit.studies.trials.per_seed import mean_over_tasks, missing_trials, whole_seeds
from tangentkit.studies.trials.published import is_same, of_data
from tangentkit.studies.trials.records import Records
from tangentkit.studies.trials.study import Result
from tangentkit.studies.trials.trial import Trial, sweep

PUBLISHED_TRAIN = 50_000
PUBLISHED = {"plain": (4.67, 0.48), "shifted": (27.65, 3.91), "harder": (20.22, 13.17)}
"""Task -> the published gap at ×1 and at ×60, in percentage points."""
PUBLISHED_DATA = {"plain": "MNIST", "shifted": "MNIST, shifted", "harder": "CIFAR-10"}
MODELS = ("network", "linearized")
EVALUATED = 500
"""Images that are evaluated at once."""


@dataclass(frozen=True)
class Config:
    """Settings of the study of the gap between networks and their linearizations."""

    data: tuple[str, ...] = ("mnist", "fashion-mini")
    """Images of the easy task, and shifted those of the second one; in order of preference."""
    harder: tuple[str, ...] = ("cifar10", "fashion-mini")
    """Images of the third task, in order of preference; there is none where they are those of the easy one."""
    train: int = 800
    """Training images."""
    test: int = 1000
    """Test images."""
    widths: tuple[float, ...] = (0.5, 1.0, 2.0)
    """The k of LeNet×k, rising."""
    shift: int = 7
    """How far shifted images are moved, in pixels."""
    epochs: int = 12
    """Passes over the training images."""
    learning_rate: float = 0.1
    """Of both models, as published."""
    loss: Literal["l2", "l2-mean"] = "l2-mean"
    """Squared error, summed or averaged over the outputs: the publication does not say which."""
    decay_every: int | None = None
    """Epochs after which the learning rate of the harder task is divided by 10; none for a constant one."""
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    """Each has its own images, initialization and mini-batches."""

    def __post_init__(self) -> None:
        check_rising("widths", self.widths)


SCALES = {
    "quick": Config(),
    "evening": Config(train=2000, test=2000, widths=(0.5, 1.0, 2.0), epochs=20),
    "full": Config(
        train=50_000,
        test=10_000,
        widths=(1.0, 2.0, 5.0, 10.0, 25.0, 60.0),
        epochs=100,
        decay_every=30,
    ),
}


def trials(config: Config) -> list[Trial]:
    """One for each task, width and seed; what takes longest comes last, so that a kill loses least.

    Tasks with the same images are one: none is compared with itself.
    """
    easy, hard = first_here(config.data), first_here(config.harder)
    fixed = {name: getattr(config, name) for name in ("train", "test", "epochs", "learning_rate", "loss")}
    tasks: list[dict[str, Any]] = [
        {"task": "plain", "data": easy, "shift": 0, "decay_every": None},
        {"task": "shifted", "data": easy, "shift": config.shift, "decay_every": None},
        {"task": "harder", "data": hard, "shift": 0, "decay_every": config.decay_every},
    ]
    different: dict[tuple[str, int], dict[str, Any]] = {}
    for task in tasks:
        different.setdefault((task["data"], task["shift"]), task)
    over = {"width": config.widths, "seed": config.seeds}
    return [trial for task in different.values() for trial in sweep(compare, over, **task, **fixed)]


def compare(
    *,
    task: str,
    data: str,
    shift: int,
    width: float,
    seed: int,
    train: int,
    test: int,
    epochs: int,
    learning_rate: float,
    loss: Literal["l2", "l2-mean"],
    decay_every: int | None,
) -> dict[str, Any]:
    """Trains a network and its linearization alike, and evaluates both.

    Raises:
        NumericalError: training of one of them diverged.
    """
    key = Key(seed).fold("width-gap", task)
    sets = drawn_images(data, train, test, shift, key.fold("images"))
    channels, size = sets[0].inputs.shape[1:3]
    network = lenet(
        width, channels=channels, size=size, outputs=len(sets[0].classes), seed=key.fold("network")
    )
    settings = Training(
        epochs,
        learning_rate,
        momentum=0.9,
        weight_decay=5e-5,
        batch=32,
        loss=loss,
        schedule=StepDecay(decay_every) if decay_every else ConstantRate(),
    )
    pair = train_pair(network, sets[0].inputs, sets[0].targets, settings, key=key.fold("batches"))
    diverged = [name for name, value in pair.last("train loss").items() if math.isnan(value)]
    if diverged:
        raise NumericalError(f"{' and '.join(diverged)} diverged", hint="a smaller --learning-rate")
    return {
        "parameters": sum(p.numel() for p in network.parameters()),
        **{
            f"{split}_{name}": accuracy(model, one)
            for split, one in zip(("train", "test"), sets, strict=True)
            for name, model in (("network", pair.network), ("linearized", pair.linearized))
        },
        "data_cards": cards(data),
    }


@torch.no_grad()
def accuracy(model: nn.Module, data: Data) -> float:
    """The share of images whose largest output is that of their class, in percent."""
    answers = torch.cat([model(piece).argmax(1) for piece in data.inputs.split(EVALUATED)])
    return 100 * float((answers == data.targets).double().mean())


def result(config: Config, records: Records) -> Result:
    """Accuracies and gaps over width."""
    rows = Records([{**row, "gap": row["test_network"] - row["test_linearized"]} for row in records])
    names: dict[str, str] = {}
    for task, some in rows.by("task").items():
        name = in_words(some[0]["data"], some[0]["shift"])
        if name not in names.values():  # nor is a task compared with itself that an older run has twice
            names[task] = name
    return Result(
        answer=_answer(config, rows, names),
        claims=_claims(config, rows, names),
        tables={"gaps": _table(config, rows, names)},
        figures=_figures(rows, names),
        stand_ins=_stand_ins(config, names),
        terms={
            "linearization": "the network's first-order form in its weights, f(w0, x) + J(w0, x) u, trained in u",
            "gap": "test accuracy of the network minus that of its linearization, in percentage points",
        },
        notes=_notes(config),
    )


def _claims(config: Config, rows: Records, names: dict[str, str]) -> tuple[Claim, ...]:
    claims = [
        claim for task, name in names.items() for claim in _of_task(config, rows.where(task=task), task, name)
    ]
    claims += [
        Claim(
            f"The gap is larger on a harder task ({names[task]} against {names['plain']})",
            "gap minus that on the easy task, mean over the widths, in percentage points",
            tuple(_mean_gap(rows, "plain", task, widths=len(config.widths))),
            low=0.0,
            published=of_data(
                f"at ×1 {PUBLISHED[task][0]} against {PUBLISHED['plain'][0]}",
                f"{PUBLISHED_DATA[task]} against {PUBLISHED_DATA['plain']}",
                f"{names[task]} against {names['plain']}",
            ),
        )
        for task in ("shifted", "harder")
        if task in names and "plain" in names
    ]
    if "harder" in names:
        claims.append(_widest_beats_narrowest(config, rows.where(task="harder"), names["harder"]))
    return tuple(claims)


def _of_task(config: Config, some: Records, task: str, name: str) -> list[Claim]:
    """What is claimed of one task alone."""
    first, last = config.widths[0], config.widths[-1]
    narrow, wide = PUBLISHED[task]
    data = PUBLISHED_DATA[task]
    return [
        Claim(
            f"The network is better than its linearization at every width ({name})",
            "least gap over the widths, in percentage points",
            tuple(min(one.column("gap")) for one in whole_seeds(some, tasks=len(config.widths))),
            low=0.0,
            published=of_data(f"gap {narrow} at ×1, {wide} at ×60", data, name),
            needs=missing_trials(some, config.seeds, width=config.widths),
        ),
        Claim(
            f"The linearization gains from width ({name})",
            f"its test accuracy at ×{last:g} minus that at ×{first:g}, in percentage points",
            tuple(some.paired("test_linearized", "width", last, first)),
            low=0.0,
            published="it improves with width",
        ),
        Claim(
            f"The gap shrinks with width ({name})",
            f"gap at ×{last:g} minus that at ×{first:g}, in percentage points",
            tuple(some.paired("gap", "width", last, first)),
            high=0.0,
            published=of_data(f"{narrow} to {wide} from ×1 to ×60", data, name),
        ),
    ]


def _widest_beats_narrowest(config: Config, hard: Records, name: str) -> Claim:
    first, last = config.widths[0], config.widths[-1]
    few = config.train < PUBLISHED_TRAIN
    return Claim(
        f"The widest linearization beats the narrowest network ({name})",
        f"test accuracy of the linearization at ×{last:g} minus that of the network at ×{first:g}, in points",
        tuple(
            wide["test_linearized"] - one["test_network"]
            for wide in hard.where(width=last)
            for one in hard.where(width=first, seed=wide["seed"])
        ),
        low=0.0,
        published="LinLeNet×60 beats LeNet×1 on CIFAR-10",
        needs=f"{PUBLISHED_TRAIN:,} images, as published: --scale full" if few else "",
    )


def _mean_gap(rows: Records, easy: str, hard: str, *, widths: int) -> list[float]:
    """The mean gap over the widths on a hard task minus that on an easy one, of the seeds that have them all."""
    ours, theirs = (
        mean_over_tasks(rows.where(task=task), lambda row: row["gap"], tasks=widths) for task in (hard, easy)
    )
    return [ours[seed] - theirs[seed] for seed in ours if seed in theirs]


def _answer(config: Config, rows: Records, names: dict[str, str]) -> str:
    first, last = config.widths[0], config.widths[-1]
    gaps = "; ".join(
        f"{name}: {rows.where(task=task, width=first).mean('gap'):.1f} at ×{first:g}, "
        f"{rows.where(task=task, width=last).mean('gap'):.1f} at ×{last:g}"
        for task, name in names.items()
    )
    return (
        f"Test accuracy of LeNet×k minus that of its linearization, in points, after {config.epochs} epochs "
        f"on {config.train:,} images ({gaps})."
    )


def _table(config: Config, rows: Records, names: dict[str, str]) -> Table:
    lines: list[tuple[Any, ...]] = []
    published: list[int] = []
    for task, name in names.items():
        for width, gap in zip((1, 60), PUBLISHED[task], strict=True):
            published.append(len(lines))
            data = name if is_same(PUBLISHED_DATA[task], name) else PUBLISHED_DATA[task]
            lines.append(("published", data, f"×{width}", None, None, None, None, None, gap))
        for width, some in rows.where(task=task).by("width").items():
            columns = [f"{split}_{model}" for split in ("train", "test") for model in MODELS]
            measured = [Measured.over(some.column(column)) for column in (*columns, "gap")]
            lines.append(("here", name, f"×{width:g}", some[0]["parameters"], *measured))
    heads = [Column(f"{split}, {model}", ".1f") for split in ("train", "test") for model in MODELS]
    return Table(
        "Accuracy in percent (mean and standard error over seeds)",
        ("who", "data", "width", "parameters", *heads, Column("gap", ".2f")),
        tuple(lines),
        note=f"Published gaps are after 100 epochs on all images, ours after {config.epochs} epochs on "
        f"{config.train:,}.",
        ours=tuple(i for i in range(len(lines)) if i not in published),
    )


def _figures(rows: Records, names: dict[str, str]) -> dict[str, Figure]:
    gaps = {name: Series(*rows.where(task=task).curve("width", "gap")) for task, name in names.items()}
    figures: dict[str, Figure] = {
        "gap": Lines(
            title="The gap over width",
            caption="Test accuracy of the network minus that of its linearization, over the width factor; bands are "
            "standard errors. Above 0 the network is better.",
            series=gaps,
            x_label="width factor k",
            y_label="gap (percentage points)",
            x_scale="log",
            level=0.0,
            legend="beside",
            size=(6.4, 3.2),
        )
    }
    for task, name in names.items():
        some = rows.where(task=task)
        figures[f"accuracy-{task}"] = Lines(
            title=f"Accuracy over width: {name}",
            caption="Train and test accuracy of the network and of its linearization; bands are standard errors.",
            series={
                f"{model}, {split}": Series(*some.curve("width", f"{split}_{model}"))
                for model in MODELS
                for split in ("train", "test")
            },
            x_label="width factor k",
            y_label="accuracy (%)",
            x_scale="log",
            legend="beside",
            size=(6.4, 3.2),
        )
    return figures


def _stand_ins(config: Config, names: dict[str, str]) -> tuple[StandIn, ...]:
    size = f"{config.train:,} training and {config.test:,} test images, {config.epochs} epochs"
    rate = f"learning rate {config.learning_rate:g}, squared error " + (
        "summed over the outputs" if config.loss == "l2" else "averaged over the outputs"
    )
    return (
        StandIn(
            "data",
            "MNIST, MNIST shifted by up to 7 pixels, CIFAR-10",
            "; ".join(names.values()),
            "" if "harder" in names else "a third task needs images other than those of the easy one",
        ),
        StandIn("size", "60,000 (50,000) training and 10,000 test images, 100 epochs", size, "time"),
        StandIn("widths", "×1 to ×60", ", ".join(f"×{width:g}" for width in config.widths), "time"),
        StandIn("training", "learning rate 0.1; the average of the loss is not said", rate),
    )


def _notes(config: Config) -> tuple[str, ...]:
    return (
        "Both models are trained with momentum 0.9, weight decay 5e-5, batches of 32 and one learning rate for all "
        "widths and tasks, as published.",
        "Two claims do not show with 800 images and 12 epochs, at either of two learning rates. On shifted "
        "digits the gap grows with width, since the narrow network itself is not trained yet (49 % on its "
        "training images at ×0.5, 97 % at ×2). And the gap is smaller on CIFAR-10 than on MNIST, where the "
        "narrow linearization is not trained yet (68 % at ×0.5).",
        "One try each with 5,000 images at ×1, network and linearization on test images: MNIST 98.6 and 87.9 %, "
        "CIFAR-10 46.0 and 33.3 %, shifted digits 92.9 and 48.9 %; these at ×2 95.8 and 60.2 %. With so many images "
        "the gap is larger on CIFAR-10 than on MNIST (12.8 against 10.8 points), and shrinks with width on shifted "
        "digits (44.0 to 35.6 points), as published; one seed decides nothing.",
        "We first ran this study with learning rate 0.05 and a sum over the outputs, five times as fast as the "
        "published 0.1 and an average. The gap was then 20 to 6 points on MNIST, 25 to 37 on shifted digits "
        "(larger than on MNIST: that claim held) and 2 to 3 on CIFAR-10. That rate is too high for the network "
        "on CIFAR-10: with 10,000 images and 25 epochs it had 38.6 %, its linearization 40.4 %. On MNIST the "
        "linearization at ×4 did not settle with 0.1 and a sum. With the present rate three verdicts are others than "
        "in that run: the network being better at every width on CIFAR-10 was not decided and holds, the larger gap "
        "on shifted digits held and is not decided, the shrinking gap there was not decided and does not hold.",
        "Images are moved once and stay there in all epochs; the publication does not say.",
        f"With {config.train:,} images the hard tasks are far from the published accuracy of either model.",
    )
