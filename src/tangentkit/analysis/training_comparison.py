"""Probe or fine-tune: ways to train a network on new data, compared over repeated splits."""

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from tangentkit.analysis.kolmogorov_smirnov import kolmogorov_smirnov
from tangentkit.analysis.tracking.measures import check_two_classes, loss_of
from tangentkit.analysis.tracking.moment import outputs_of
from tangentkit.analysis.training_ways import REFITTED, WAYS, Task, Way, whole_batch
from tangentkit.core.batches import Batch, move, take, tensors
from tangentkit.core.errors import InputError, UnknownNameError
from tangentkit.core.files.safe import as_path, write_whole
from tangentkit.core.model.calls import call, read_outputs
from tangentkit.core.model.functions import Forward
from tangentkit.core.progress import Progress, counted_off
from tangentkit.core.seeds import Key
from tangentkit.core.whole_numbers import as_count
from tangentkit.linearized import LinearizedModel, Training
from tangentkit.linearized.labeled import AT_ONCE, labeled
from tangentkit.report import Column, Dots, Lines, Measured, Page, Series, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

REPEATS = 10
UNFINISHED = "not trained to the end"
CONTAIN_PROBE = ("fine-tune", "linearized")
"""Ways that train the last layer too."""
LOSS_MARGIN = 0.01
"""A training loss that is larger by less than this is no sign of a training that was too short."""
DEPENDENT = (
    "All splits are of the same samples, so that accuracies of different repeats depend on each other: the standard "
    "error is too small, and p-values are. The corrected error of Nadeau and Bengio (2003), √((1/r + n_test/n_train) "
    "s²) over r repeats, accounts for that."
)


@dataclass(frozen=True)
class KolmogorovSmirnov:
    """The two-sided test that two samples are of one distribution."""

    statistic: float
    p_value: float


@dataclass(frozen=True)
class TrainingComparison:
    """Accuracies of each way over the repeats; repeat i has the same split for all."""

    test: dict[str, tuple[float, ...]]
    """Way -> accuracy on the held-out samples of each repeat."""
    train: dict[str, tuple[float, ...]]
    """Way -> accuracy on the training samples."""
    seconds: dict[str, tuple[float, ...]]
    """Way -> time of the training."""
    sizes: tuple[int, int]
    """Samples of training and of test."""
    loss: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """Way -> loss on the training samples at the end: cross-entropy, of one logit the binary one."""
    training: Training | None = None
    """The settings of what is trained by gradients."""

    @property
    def ways(self) -> list[str]:
        """The names of the ways that were compared."""
        return list(self.test)

    @property
    def unfinished(self) -> list[str]:
        """Ways that train all parameters and yet have a larger training loss than the last layer: not at their end.

        The network with another last layer is one of those that a way which trains all parameters can reach. That the
        loss of such a way is not larger does not show that it was trained to its end.
        """
        solved = [float(np.mean(self.loss[way])) for way in ("probe",) if way in self.loss]
        return [
            way
            for way, runs in self.loss.items()
            if solved and way in CONTAIN_PROBE and float(np.mean(runs)) > solved[0] + LOSS_MARGIN
        ]

    def corrected_error(self, way: str) -> float:
        """√((1/r + n_test / n_train) s²), the standard error for splits of the same samples; NaN of one repeat."""
        values, (n_train, n_test) = self.test[way], self.sizes
        if len(values) < 2:
            return math.nan
        return math.sqrt((1 / len(values) + n_test / n_train) * float(np.var(values, ddof=1)))

    def ks(self, a: str, b: str) -> KolmogorovSmirnov:
        """The two-sided Kolmogorov-Smirnov test between the test accuracies of two ways."""
        return KolmogorovSmirnov(*kolmogorov_smirnov(self._of(a), self._of(b)))

    def qq(self, a: str, b: str) -> tuple[Float[np.ndarray, " r"], Float[np.ndarray, " r"]]:
        """The quantiles of two ways at the probabilities (i - 1/2) / r: their sorted accuracies."""
        return np.sort(self._of(a)), np.sort(self._of(b))

    def table(self) -> Table:
        """One row a way: mean and standard error over the repeats."""
        rows = tuple(
            (
                way,
                Measured.over(self.loss[way]) if way in self.loss else None,
                Measured.over(self.train[way]),
                Measured.over(self.test[way]),
                None if math.isnan(error := self.corrected_error(way)) else error,
                Measured.over(self.seconds[way]),
                UNFINISHED if way in self.unfinished else "",
            )
            for way in self.ways
        )
        columns = (
            "way", Column("train loss", ".4f"), Column("train accuracy", ".4f"), Column("test accuracy", ".4f"),
            Column("corrected error of test", ".4f"), Column("seconds", ".2f"), "remark",
        )  # fmt: skip
        repeats = len(next(iter(self.test.values())))
        title = f"Accuracy over {repeats} splits into {self.sizes[0]} and {self.sizes[1]} samples"
        return Table(title, columns, rows, note=f"{self._how} {DEPENDENT}".strip())

    def tests_table(self) -> Table:
        """One row a pair of ways: difference of the means, KS distance and p-value."""
        rows = []
        for a, b in combinations(self.ways, 2):
            found = self.ks(a, b)
            gaps = [x - y for x, y in zip(self.test[a], self.test[b], strict=True)]
            rows.append((a, b, Measured.over(gaps), found.statistic, found.p_value))
        columns = ("way", "against", Column("difference", "+z.4f"), Column("KS distance", ".3f"), "p-value")
        return Table("Two-sided Kolmogorov-Smirnov tests of the test accuracies", columns, tuple(rows))

    def figure(self) -> Dots:
        """Test accuracies, their means and 95 % intervals."""
        caption = "Test accuracy of each way: mean with its 95 % interval, and the single splits."
        return Dots(title="Test accuracy", caption=caption, values=self.test, x_label="test accuracy")

    def qq_figure(self, a: str, b: str) -> Lines:
        """The quantiles of one way over those of another, and the line of equal ones."""
        x, y = self.qq(a, b)
        ends = [min(x[0], y[0]), max(x[-1], y[-1])]
        return Lines(
            title=f"{a} against {b}",
            caption=f"Sorted test accuracies of {b} over those of {a}; above the line {b} is better.",
            series={"quantiles": Series(x, y), "equal": Series(ends, ends)},
            x_label=a,
            y_label=b,
        )

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draws the test accuracies on axes, its own where none are given."""
        if ax is None:
            from matplotlib.figure import Figure

            ax = Figure(layout="constrained").add_subplot()
        self.figure().draw(ax)
        return ax

    def page(self) -> Page:
        """Tables, accuracies and Q-Q plots on one page."""
        best = max(self.ways, key=lambda way: float(np.mean(self.test[way])))
        pairs = list(combinations(self.ways, 2))
        tables = {"accuracy": self.table()} | ({"tests": self.tests_table()} if pairs else {})
        return Page(
            title="Ways to train a network, compared",
            source="tk.compare_training",
            question="Is it better to train all of a network, its last layer, its linearization, or a random one's?",
            answer=f"{best} has the highest mean test accuracy, {Measured.over(self.test[best]):.4f}.{self._warned}",
            terms={"KS": "Kolmogorov-Smirnov", "Q-Q": "quantiles of one sample over those of another"},
            tables=tables,
            figures={"accuracy": self.figure()} | {f"qq-{a}-{b}": self.qq_figure(a, b) for a, b in pairs},
        )

    def report(self, path: str | Path) -> Path:
        """Writes the page to a file and returns its path."""
        path = as_path(path)
        write_whole(path, [self.page().render().encode()], durable=False)
        return path

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and lists."""
        plain = {name: {way: list(runs) for way, runs in getattr(self, name).items()} for name in _PARTS}
        pairs = {f"{a} / {b}": vars(self.ks(a, b)) for a, b in combinations(self.ways, 2)}
        return plain | {"sizes": list(self.sizes), "ks": pairs}

    @property
    def _how(self) -> str:
        if self.training is None:
            return ""
        given = self.training
        return (
            f"The last layers of probe and random-features are solved for their optimum; fine-tune and linearized "
            f"have {given.epochs} epochs of {given.optimizer} at a rate of {given.learning_rate:g}."
        )

    @property
    def _warned(self) -> str:
        if not self.unfinished:
            return ""
        were = "was" if len(self.unfinished) == 1 else "were"
        return (
            f" But {' and '.join(self.unfinished)} {were} {UNFINISHED}: the training loss is larger than that of the "
            "probe, whose network they could reach. More epochs or a larger rate, training=Training(...), may turn "
            "the order."
        )

    def _of(self, way: str) -> tuple[float, ...]:
        if way not in self.test:
            raise UnknownNameError("way", way, self.test)
        return self.test[way]


_PARTS = ("test", "train", "seconds", "loss")


@torch.inference_mode(mode=False)
def compare_training(
    model: nn.Module,
    data: Any,
    ways: Sequence[str] | Mapping[str, Way] = tuple(WAYS),
    repeats: int = REPEATS,
    *,
    training: Training | None = None,
    train_share: float = 0.75,
    seed: int = 0,
    forward: Forward | None = None,
    random_model: Callable[[], nn.Module] | None = None,
    progress: bool | Progress = False,
) -> TrainingComparison:
    """Trains a network in several ways on repeated splits of labeled data, and compares the accuracies.

    ==================  ==============================================================================
    way                 what is trained
    ==================  ==============================================================================
    "probe"             the last layer, on the network's features (`refit_last_layer`)
    "fine-tune"         all parameters that require grad, from where they are
    "random-features"   the last layer of a network of this architecture with random weights
    "linearized"        the first-order model of the network about its weights
    ==================  ==============================================================================

    Every split keeps the shares of the classes, and is the same for all ways. The model is left as it is.

    Args:
        model: ends in a linear layer with an output for each class.
        data: a pair (inputs, classes), labeled data, or a data set of pairs that fits in memory.
        ways: their names; or name -> function of a `Task` that gives a network.
        repeats: the number of splits.
        training: settings of what is trained by gradients; by default 10 epochs of Adam at 1e-3, which is too little
            for few samples: the result says of a way when it shows (`unfinished`).
        train_share: the share of samples that is trained on.
        seed: of splits, of the order of samples and of random weights.
        forward: (model, batch) -> outputs (n, c).
        random_model: makes the network with random weights, where its layers cannot draw themselves anew.
        progress: whether to show a bar on a terminal; or a function (stage, done, total).

    Raises:
        InputError: targets are no classes, a class is too small to be split, or an option does not fit.
        UnknownNameError: there is no such way.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> x = torch.randn(60, 4)
        >>> model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
        >>> found = compare_training(model, (x, (x[:, 0] > 0).long()), ["probe", "fine-tune"], repeats=3)
        >>> found.ways, found.sizes, 0 <= found.ks("probe", "fine-tune").p_value <= 1
        (['probe', 'fine-tune'], (45, 15), True)
    """
    chosen = _chosen(ways)
    repeats = as_count(repeats, "repeats")
    x, y = labeled(*(data if isinstance(data, (tuple, list)) else (data, None))).whole()
    _check_classes(y)
    modes = {module: module.training for module in model.modules()}
    results: dict[str, dict[str, list[float]]] = {part: {way: [] for way in chosen} for part in _PARTS}
    sizes = (0, 0)
    try:
        loss_name = _loss_name(model, x, y, forward, chosen.values())
        training = training or Training(10, 1e-3, optimizer="adam", loss=loss_name)
        with counted_off(progress, "training", repeats * len(chosen)) as advance:
            for repeat in range(repeats):
                key = Key(seed).fold("repeat", repeat)
                inside, outside = _split(y, train_share, key)
                sizes = (len(inside), len(outside))
                task = Task(
                    model, take(x, inside), y[inside], training, key.fold("training"), forward, random_model
                )
                for name, way in chosen.items():
                    began = time.perf_counter()
                    trained = way(task)
                    results["seconds"][name].append(time.perf_counter() - began)
                    accuracy, loss = _judged(trained, task.x, task.y, forward)
                    results["train"][name].append(accuracy)
                    results["loss"][name].append(loss)
                    results["test"][name].append(_judged(trained, take(x, outside), y[outside], forward)[0])
                    advance()
    finally:
        for module, mode in modes.items():
            module.training = mode
    plain = {part: {way: tuple(runs) for way, runs in found.items()} for part, found in results.items()}
    return TrainingComparison(**plain, sizes=sizes, training=training)


def _chosen(ways: Sequence[str] | Mapping[str, Way]) -> dict[str, Way]:
    if isinstance(ways, Mapping):
        chosen = dict(ways)
    else:
        for name in ways:
            if name not in WAYS:
                raise UnknownNameError("way", name, WAYS)
        chosen = {name: WAYS[name] for name in ways}
    if not chosen:
        raise InputError("nothing to compare", expected=f"some of {', '.join(WAYS)}")
    return chosen


def _check_classes(y: Tensor) -> None:
    if y.ndim != 1 or y.is_floating_point() or y.is_complex():
        raise InputError(
            "targets are no classes", expected="integers (n,)", got=f"{y.dtype} {tuple(y.shape)}"
        )
    classes, counts = y.unique(return_counts=True)
    if int(classes[0]) < 0 or len(classes) < 2 or int(counts.min()) < 2:
        raise InputError(
            "classes cannot be split",
            expected="two classes or more, 0, 1, ..., with two samples or more each",
            got="negative classes" if int(classes[0]) < 0 else f"counts {counts.tolist()}",
        )


def _split(y: Tensor, share: float, key: Key) -> tuple[Tensor, Tensor]:
    """The numbers of the samples to train on and of the others, with the same shares of classes."""
    from sklearn.model_selection import train_test_split

    try:
        inside, outside = train_test_split(
            np.arange(len(y)),
            train_size=share,
            stratify=y.cpu().numpy(),
            random_state=key.fold("split").entropy % 2**32,
        )
    except ValueError as error:
        raise InputError("samples cannot be split", expected="another train_share", got=error) from error
    return torch.as_tensor(inside), torch.as_tensor(outside)


def _loss_name(
    model: nn.Module, x: Batch, y: Tensor, forward: Forward | None, ways: Collection[Way]
) -> Literal["cross-entropy", "bce"]:
    """Cross-entropy of several logits, the binary one of a single logit.

    Raises:
        InputError: classes and outputs do not go together.
    """
    c = outputs_of(model.eval(), take(x, slice(0, 2)), forward or call).shape[1]
    if c == 1:
        check_two_classes(y)
        return "bce"
    seen = y.unique().tolist()
    if seen[-1] >= c or (len(seen) < c and any(way in REFITTED for way in ways)):
        raise InputError(
            f"classes do not fit a model of {c} outputs",
            expected=f"all of 0 to {c - 1}",
            got=f"{seen[:20]}",
            hint='an output for each class; or ways=["fine-tune", "linearized"] where some classes have no samples',
        )
    return "cross-entropy"


@torch.no_grad()
def _judged(model: nn.Module, x: Batch, y: Tensor, forward: Forward | None) -> tuple[float, float]:
    """The share of samples whose largest logit is that of their class, of one logit whose sign is; and the loss."""
    rule = forward or call
    if forward is not None and isinstance(model, LinearizedModel):
        rule = whole_batch
    model.eval()
    device = next((p.device for p in tensors(list(model.parameters()))), torch.device("cpu"))
    hits, total = 0, 0.0
    for start in range(0, len(y), AT_ONCE):
        piece = slice(start, start + AT_ONCE)
        outputs = read_outputs(rule(model, move(take(x, piece), device)))
        outputs = outputs if outputs.ndim > 1 else outputs[:, None]
        answers = outputs.argmax(1) if outputs.shape[1] > 1 else (outputs[:, 0] > 0).long()
        hits += int((answers.cpu() == y[piece].cpu()).sum())
        total += len(answers) * float(loss_of(outputs, y).value(outputs.cpu(), y[piece].cpu()))
    return hits / len(y), total / len(y)
