"""Several methods of attribution, put to the same questions, on one table."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn

from tangentkit.core.errors import InputError, UnknownNameError, briefly
from tangentkit.core.model.functions import Forward
from tangentkit.core.progress import Progress
from tangentkit.linearized.labeled import Labeled, labeled
from tangentkit.report import Column, Figure, Interval, Table, drawn
from tangentkit.surrogate.evaluation.datamodeling import DatamodelingScore
from tangentkit.surrogate.evaluation.methods import as_methods
from tangentkit.surrogate.evaluation.outcome import Outcome
from tangentkit.surrogate.evaluation.questions import (
    FindsSameClass,
    FindsSameSample,
    PredictsSubsets,
    Question,
    Task,
)
from tangentkit.surrogate.evaluation.retraining import Retrain
from tangentkit.surrogate.evaluation.scores import Attribute
from tangentkit.surrogate.network import whole_labels
from tangentkit.surrogate.surrogate import Surrogate

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False, kw_only=True)
class Intervals(Figure):
    """Values of several names with their intervals, one below the other."""

    values: Mapping[str, Interval]
    x_label: str
    level: float
    """A vertical line to compare with; none where it is nan."""

    def draw(self, ax: "Axes") -> None:
        """Adds the figure to axes."""
        from tangentkit.report.figure import short, words

        ink = ax.xaxis.label.get_color()
        for row, one in enumerate(self.values.values()):
            (dot,) = ax.plot(one.mean, row, "o", markersize=7, zorder=3)
            ax.plot([one.low, one.high], [row, row], "|-", color=dot.get_color(), markersize=9, linewidth=2.4)
        if not math.isnan(self.level):
            ax.axvline(self.level, color=ink, linewidth=1, linestyle="--")
        ax.set_xlabel(words(self.x_label))
        ax.set_yticks(range(len(self.values)), [short(name) for name in self.values])
        ax.set_ylim(len(self.values) - 0.5, -0.5)
        ax.grid(visible=False, axis="y")


@dataclass(frozen=True, eq=False, repr=False)
class AttributionEvaluation:
    """What several methods of attribution answered to the same questions."""

    outcomes: dict[str, dict[str, Outcome | None]]
    """Question -> method -> outcome; None where a question has no meaning for a method."""

    @property
    def questions(self) -> list[str]:
        """The titles of the questions that were asked."""
        return list(self.outcomes)

    @property
    def methods(self) -> list[str]:
        """Their names; the random baseline is the last."""
        return list(next(iter(self.outcomes.values())))

    def __repr__(self) -> str:
        return f"AttributionEvaluation(methods={self.methods}, questions={self.questions})"

    def __str__(self) -> str:
        return str(self.table())

    def of(self, question: str) -> dict[str, Outcome]:
        """Method -> outcome of one question, of the methods that it has a meaning for.

        Raises:
            UnknownNameError: it was not asked.
        """
        if question not in self.outcomes:
            raise UnknownNameError("question", question, self.outcomes)
        return {name: found for name, found in self.outcomes[question].items() if found is not None}

    def difference(self, question: str, better: str, worse: str) -> Interval:
        """By how much one method's linear datamodeling score is above another's, from networks that both share.

        Raises:
            InputError: the question is not of that kind.
            UnknownNameError: there is no such question or method.
        """
        found = self.of(question)
        for name in (better, worse):
            if name not in found:
                raise UnknownNameError("method", name, found)
        one, other = found[better], found[worse]
        if not isinstance(one, DatamodelingScore) or not isinstance(other, DatamodelingScore):
            raise InputError(
                f"no pairs to compare in {question!r}",
                expected="a question about retrained networks, such as LDS",
            )
        return one.difference(other)

    def table(self) -> Table:
        """A row for each method; for each question its value and 95 % interval."""
        columns: list[str | Column] = ["method"]
        for question in self.questions:
            columns += [Column(question, ".3f"), "95 % interval"]
        rows = []
        for method in self.methods:
            row: list[Any] = [method]
            for found in (self.outcomes[question][method] for question in self.questions):
                row += [None, None] if found is None else [found.value, found.interval_text()]
            rows.append(tuple(row))
        notes = [f"{title}: {self._note(title)}" for title in self.questions]
        return Table("Methods of attribution", tuple(columns), tuple(rows), note="\n".join(notes))

    def figure(self, question: str | None = None) -> Intervals:
        """The values of all methods for one question, the first by default, with their intervals."""
        title = question or self.questions[0]
        found = self.of(title)
        return Intervals(
            title=title,
            caption=f"{title} of each method with its 95 % interval. {self._note(title)}",
            values={name: one.interval for name, one in found.items()},
            x_label=title,
            level=next(iter(found.values())).chance,
        )

    def plot(self, question: str | None = None, ax: "Axes | None" = None) -> "Axes":
        """Draws the figure of one question on axes, new ones where none are given."""
        return drawn(self.figure(question), ax)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers: question -> method -> what it answered."""
        return {
            question: {name: found and found.to_dict() for name, found in answers.items()}
            for question, answers in self.outcomes.items()
        }

    def _note(self, title: str) -> str:
        first = next(iter(self.of(title).values()), None)
        if first is None:
            return "no method was asked."
        chance = "" if math.isnan(first.chance) else f" By chance {first.chance:.3g}."
        return f"{first.note}{chance}" + " The lower the better." * (first.better == "low")


@briefly
def evaluate_attribution(
    attribute: Surrogate | Attribute | Mapping[str, Attribute],
    train: Any,
    test: Any,
    *,
    model: nn.Module | None = None,
    tests: Sequence[Question] | None = None,
    retrain: Retrain | None = None,
    seed: int = 0,
    forward: Forward | None = None,
    progress: bool | Progress = True,
) -> AttributionEvaluation:
    """Puts methods of attribution to the same tests, beside a baseline of random scores.

    =====================  ====================================================================================
    test                   what is asked
    =====================  ====================================================================================
    `PredictsSubsets`      do sums of scores predict networks trained on subsets: linear datamodeling score
    `PredictsAbsences`     do they predict networks trained without k samples: leave-k-out
    `FindsMislabels`       are self-scores of wrong labels the largest: AUROC
    `ChangesPredictions`   do predictions change without the samples that speak for them: brittleness
    `FindsGroup`           do shortcuts, or data mixed in, come first for what they mislead: average precision
    `FindsSameClass`       is the strongest training sample of the predicted class
    `FindsSameSample`      is the strongest training sample of a copy its original
    `DependsOnModel`       do scores change with the network's weights: correlation with random networks
    =====================  ====================================================================================

    Networks that a test trains serve all methods. They are in `tangentkit.surrogate.evaluation`, where each test is
    also a function of scores alone, such as `linear_datamodeling_score`.

    Args:
        attribute: a method, which is a function of samples that gives an `Attribution` or scores (n, m), positive
            ones for training samples that speak for a sample's class; or name -> method; or a fitted `Surrogate`,
            whose methods are its own attribution, influence, TRAK's scores and representer points.
        train: the training samples and labels in their order: a pair, labeled data, or a data set of pairs.
        test: test samples and labels, likewise.
        model: the network that is explained, for tests that ask it.
        tests: what is asked; by default `FindsSameClass` where there is a model, `FindsSameSample`, and
            `PredictsSubsets` where there is `retrain`.
        retrain: (numbers of training samples, seed) -> a network trained on these samples, or its logits on the test
            samples; `Retraining` makes such a function of settings.
        seed: of subsets, networks, copies, bootstrap and baseline.
        forward: how networks are called, (model, batch) -> (n, c).
        progress: whether to show a bar on a terminal; or a function (stage, done, total).

    Raises:
        InputError: a test lacks what it needs, or samples, labels and scores do not go together.

    Example:
        >>> import torch
        >>> from tangentkit import ConjugateKernel
        >>> _ = torch.manual_seed(0)
        >>> network = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
        >>> x = torch.randn(50, 2)
        >>> y = (x[:, 0] > 0).long()
        >>> fitted = Surrogate(network, ConjugateKernel(network)).fit(x[:40], y[:40])
        >>> found = evaluate_attribution(fitted, (x[:40], y[:40]), (x[40:], y[40:]), model=network)
        >>> found.methods
        ['surrogate', 'influence', 'TRAK-style', 'representer points', 'random']
        >>> found.questions
        ['same class', 'same sample']
    """
    samples, held_out = _labeled(train), _labeled(test)
    x, y = held_out.take(slice(None))
    labels = whole_labels(y, len(held_out))
    task = Task(samples, x, labels, model, retrain, forward, seed, progress)
    methods = as_methods(attribute, len(samples), seed)
    asked = list(tests) if tests is not None else _by_default(task)
    titles = [question.title for question in asked]
    if not asked or len(set(titles)) < len(titles):
        raise InputError(
            "bad tests", expected="one test or more, each with a title of its own", got=titles or "none"
        )
    outcomes: dict[str, dict[str, Outcome | None]] = {}
    for question in asked:
        answer = question.prepared(task)
        outcomes[question.title] = {method.name: answer(method) for method in methods}
    return AttributionEvaluation(outcomes)


def _labeled(data: Any) -> Labeled:
    return labeled(*(data if isinstance(data, (tuple, list)) else (data, None)))


def _by_default(task: Task) -> list[Question]:
    asked: list[Question] = [FindsSameClass()] if task.model is not None else []
    return [*asked, FindsSameSample(), *([PredictsSubsets()] if task.retrain is not None else [])]
