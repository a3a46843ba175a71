"""What is asked of every method: each question prepares once what all methods share, and is then put to each."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from jaxtyping import Bool, Int
from numpy.typing import ArrayLike
from torch import Tensor, nn

from tangentkit.compute.sources import as_source
from tangentkit.core.batches import Batch, batch_size, take
from tangentkit.core.errors import InputError
from tangentkit.core.model.functions import Forward, snapshot_to_call
from tangentkit.core.progress import Progress
from tangentkit.core.seeds import Key
from tangentkit.linearized.labeled import Labeled
from tangentkit.surrogate.evaluation.brittleness import brittleness
from tangentkit.surrogate.evaluation.datamodeling import linear_datamodeling_score
from tangentkit.surrogate.evaluation.detection import group_detection, mislabel_auroc
from tangentkit.surrogate.evaluation.identity import same_class, same_sample
from tangentkit.surrogate.evaluation.methods import Method
from tangentkit.surrogate.evaluation.outcome import Outcome
from tangentkit.surrogate.evaluation.randomized import randomized_model_check
from tangentkit.surrogate.evaluation.retraining import Retrain, Retrained, retrain_on
from tangentkit.surrogate.evaluation.scores import Attribute
from tangentkit.surrogate.evaluation.subsets import random_absences, random_subsets
from tangentkit.surrogate.network import network_logits

Answer = Callable[[Method], Outcome | None]
"""What a method answers; None where a question has no meaning for it."""


@dataclass(frozen=True, eq=False)
class Task:
    """A network, its training samples and test samples: what questions are about."""

    train: Labeled
    test: Batch
    labels: Int[Tensor, " n"]
    """Of the test samples."""
    model: nn.Module | None
    retrain: Retrain | None
    forward: Forward | None
    seed: int
    progress: bool | Progress

    @cached_property
    def train_labels(self) -> Int[Tensor, " m"]:
        """The labels of all training samples."""
        return torch.cat([torch.as_tensor(targets) for _, targets in self.train]).long().cpu()

    @cached_property
    def predicted(self) -> Int[Tensor, " n"]:
        """The classes that the network predicts for the test samples."""
        return self.predict(self.test)

    def predict(self, x: Batch) -> Int[Tensor, " n"]:
        """The classes that the network predicts."""
        network = snapshot_to_call(self.network("predictions"), forward=self.forward)
        return network_logits(network, as_source(x)).argmax(1).cpu()

    def network(self, what: str) -> nn.Module:
        """The network itself.

        Raises:
            InputError: it was not given.
        """
        if self.model is None:
            raise InputError(f"no network for {what}", expected="model=..., the network that is explained")
        return self.model

    def retraining(self, what: str) -> Retrain:
        """The function that trains a network again.

        Raises:
            InputError: it was not given.
        """
        if self.retrain is None:
            raise InputError(
                f"nothing to train networks for {what} with",
                expected="retrain=(numbers of training samples, seed) -> network",
                hint="tangentkit.surrogate.evaluation.Retraining(make_model, x, y, training)",
            )
        return self.retrain


class Question(ABC):
    """A question to all methods."""

    title: str
    """The heading of its column."""

    @abstractmethod
    def prepared(self, task: Task) -> Answer:
        """What puts the question to a method, after the work that all methods share."""


@dataclass(frozen=True, eq=False)
class PredictsSubsets(Question):
    """Do sums of scores predict what networks trained on random subsets say? The linear datamodeling score."""

    subsets: int = 50
    share: float = 0.5
    """Of the training samples in a subset."""
    retrained: Retrained | None = None
    """Networks that are trained already; then subsets and share are theirs."""
    path: str | Path | None = None
    """A file that keeps the networks' answers; see `retrain_on`."""
    title: str = "LDS"

    def prepared(self, task: Task) -> Answer:
        """Trains the networks, once for all methods."""
        if self.retrained is not None:
            return _datamodeling(task, self.retrained)
        masks = random_subsets(len(task.train), self.subsets, share=self.share, seed=task.seed)
        return _datamodeling(task, _retrained(task, masks, self.path, self.title))


@dataclass(frozen=True, eq=False)
class PredictsAbsences(Question):
    """Do scores predict what networks say that were trained without k random samples? Leave-k-out retraining.

    The fewer are left out, the more of what is seen is the noise of training, and the more networks it takes.
    """

    k: int = 1
    networks: int = 50
    retrained: Retrained | None = None
    """Networks that are trained already; then their absences count."""
    path: str | Path | None = None
    """A file that keeps the networks' answers; see `retrain_on`."""

    @property
    def title(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The heading of its column."""
        return f"leave-{self.k}-out"

    def prepared(self, task: Task) -> Answer:
        """Trains the networks, once for all methods."""
        if self.retrained is not None:
            return _datamodeling(task, self.retrained)
        masks = random_absences(len(task.train), self.networks, k=self.k, seed=task.seed)
        return _datamodeling(task, _retrained(task, masks, self.path, self.title))


@dataclass(frozen=True, eq=False)
class FindsMislabels(Question):
    """Do training samples of wrong labels have the largest self-scores?"""

    wrong: ArrayLike | Tensor
    """Which labels are wrong, (m,) of booleans."""
    title: str = "mislabel AUROC"

    def prepared(self, task: Task) -> Answer:
        """Reads the training samples."""
        x, _ = task.train.take(slice(None))
        return lambda method: mislabel_auroc(method.self_scores(x, task.train_labels), self.wrong)


@dataclass(frozen=True, eq=False)
class FindsGroup(Question):
    """Do marked training samples come first for samples that follow them? Shortcuts, and data mixed in."""

    marked: ArrayLike | Tensor
    """Which training samples are marked, (m,) of booleans."""
    x: Batch
    """Samples with the mark, of other classes: see `group_detection`."""
    label: int
    """The class of the marked training samples. Only samples that the network takes for it count."""
    title: str = "shortcut"

    def prepared(self, task: Task) -> Answer:
        """Takes the samples that the network falls for."""
        fallen = (task.predict(self.x) == self.label).nonzero()[:, 0]
        if not len(fallen):
            raise InputError(
                f"the network follows the mark ({self.title}) nowhere",
                expected=f"samples that it takes for class {self.label}",
                got=f"none of {batch_size(self.x)}",
            )
        x, classes = take(self.x, fallen), torch.full((len(fallen),), self.label)
        return lambda method: group_detection(
            torch.from_numpy(method.scores(x, classes)), self.marked, classes
        )


@dataclass(frozen=True, eq=False)
class ChangesPredictions(Question):
    """Do predictions change when the training samples that speak most for them are left out? Brittleness."""

    numbers: Sequence[int] = (10, 100)
    """How many are left out."""
    points: int = 10
    """Test samples, the first ones; each costs a network for every method and number."""
    title: str = "brittleness"

    def prepared(self, task: Task) -> Answer:
        """Takes the test samples and what the network predicts for them."""
        retrain, first = task.retraining(self.title), slice(0, self.points)
        x, predicted = take(task.test, first), task.predicted[first]

        def whole(numbers: Tensor, seed: int) -> nn.Module | Tensor:
            found = retrain(numbers, seed)
            return found[first] if isinstance(found, Tensor) else found

        def answer(method: Method) -> Outcome:
            scores = torch.from_numpy(method.scores(task.test, task.predicted))[first]
            return brittleness(
                scores,
                predicted,
                whole,
                x,
                numbers=self.numbers,
                seed=task.seed,
                forward=task.forward,
                progress=task.progress,
            )

        return answer


@dataclass(frozen=True, eq=False)
class FindsSameClass(Question):
    """Is the strongest training sample of the class that the network predicts?"""

    title: str = "same class"

    def prepared(self, task: Task) -> Answer:
        """Asks the network."""
        predicted = task.predicted

        def answer(method: Method) -> Outcome:
            scores = torch.from_numpy(method.scores(task.test, predicted))
            return same_class(scores, task.train_labels, predicted)

        return answer


@dataclass(frozen=True, eq=False)
class FindsSameSample(Question):
    """Is the strongest training sample of a copy its original?"""

    copies: int = 50
    """Training samples, chosen at random."""
    title: str = "same sample"

    def prepared(self, task: Task) -> Answer:
        """Chooses the samples that are copied."""
        m = len(task.train)
        chosen = Key(task.seed).fold("copies").numpy().permutation(m)[: self.copies]
        x, y = task.train.take(torch.from_numpy(chosen))
        classes = torch.as_tensor(y).long().cpu()
        return lambda method: same_sample(torch.from_numpy(method.scores(x, classes)), chosen, classes)


@dataclass(frozen=True, eq=False)
class DependsOnModel(Question):
    """Do scores change when the weights of the network are drawn anew? The randomized-model check."""

    rebuilt: Mapping[str, Callable[[nn.Module], Attribute]]
    """Name of a method -> a function that makes the method for another network, everything fitted anew."""
    networks: int = 3
    make_model: Callable[[], nn.Module] | None = None
    """Makes the network with random weights, where its layers cannot draw themselves anew."""
    title: str = "like a random model"

    def prepared(self, task: Task) -> Answer:
        """Makes sure that there is a network to ask."""
        model = task.network(self.title)

        def answer(method: Method) -> Outcome | None:
            if method.name not in self.rebuilt:
                return None
            make = self.rebuilt[method.name]
            return randomized_model_check(
                torch.from_numpy(method.scores(task.test, task.labels)),
                lambda other: make(other)(task.test),
                model,
                task.labels,
                networks=self.networks,
                seed=task.seed,
                make_model=self.make_model,
                progress=task.progress,
            )

        return answer


def _retrained(task: Task, masks: Bool[Tensor, "s m"], path: str | Path | None, title: str) -> Retrained:
    return retrain_on(
        masks,
        task.retraining(title),
        task.test,
        seed=task.seed,
        forward=task.forward,
        path=path,
        progress=task.progress,
    )


def _datamodeling(task: Task, retrained: Retrained) -> Answer:
    def answer(method: Method) -> Outcome:
        scores = torch.from_numpy(method.scores(task.test, task.labels))
        return linear_datamodeling_score(scores, retrained, task.labels, seed=task.seed)

    return answer
