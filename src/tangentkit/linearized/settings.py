"""How to train: a frozen dataclass of plain choices, checked when it is made."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import nn

from tangentkit.core.errors import InputError, UnknownNameError
from tangentkit.linearized.losses import LOSSES

OPTIMIZERS = ("sgd", "adam", "adagrad")


@dataclass(frozen=True)
class ConstantRate:
    """The learning rate stays."""

    def factor(self, step: int, steps: int, epoch: int) -> float:  # noqa: ARG002
        """The factor 1, whatever the step."""
        return 1.0


@dataclass(frozen=True)
class LinearDecay:
    """The learning rate falls linearly to 0 over all steps of all epochs."""

    def factor(self, step: int, steps: int, epoch: int) -> float:  # noqa: ARG002
        """1 - step / steps, for step 0, 1, ..."""
        return 1 - step / steps


@dataclass(frozen=True)
class StepDecay:
    """The learning rate is multiplied by a factor after every so many epochs."""

    every: int = 30
    """Epochs."""
    by: float = 0.1
    """The factor."""

    def __post_init__(self) -> None:
        _check("every", self.every, self.every >= 1, "at least 1")
        _check("by", self.by, self.by > 0, "more than 0")

    def factor(self, step: int, steps: int, epoch: int) -> float:  # noqa: ARG002
        """by^(epoch // every), for epoch 0, 1, ..."""
        return self.by ** (epoch // self.every)


@dataclass(frozen=True)
class Stop:
    """An early end: after the first epoch that is good enough in one of the two ways."""

    loss: float | None = None
    """Ends when the loss is at most this."""
    accuracy: float | None = None
    """Ends when the accuracy is at least this, in [0, 1]."""
    on: str = "train"
    """The set whose metrics decide: "train", or a name among the watched sets."""

    def __post_init__(self) -> None:
        if self.loss is None and self.accuracy is None:
            raise InputError(
                "an early stop without a condition", expected="a loss or an accuracy", got="neither"
            )

    def reason(self, loss: float, accuracy: float) -> str | None:
        """Why training is to end now, or None.

        Example:
            >>> Stop(loss=0.1).reason(0.05, 1.0)
            'train loss <= 0.1'
        """
        if self.loss is not None and loss <= self.loss:
            return f"{self.on} loss <= {self.loss:g}"
        if self.accuracy is not None and accuracy >= self.accuracy:
            return f"{self.on} accuracy >= {self.accuracy:g}"
        return None


@dataclass(frozen=True)
class Training:
    """Settings of a training run.

    The same settings serve a network and its linearization: the learning rate, and the weight decay, act on
    whatever the module's parameters are (weights w of the one, displacements u of the other).

    Example:
        >>> Training(epochs=100, learning_rate=0.1, momentum=0.9, weight_decay=5e-5, batch=32).optimizer
        'sgd'
    """

    epochs: int
    """Passes over the data."""
    learning_rate: float
    """At the first step."""
    optimizer: Literal["sgd", "adam", "adagrad"] = "sgd"
    """The rule of a step."""
    momentum: float = 0.0
    """Of sgd."""
    weight_decay: float = 0.0
    """Times the parameters, added to the gradient."""
    batch: int | None = 32
    """Samples of a step; none for gradient descent on all of them."""
    drop_last: bool = False
    """Whether an epoch leaves out its last, incomplete mini-batch."""
    schedule: ConstantRate | LinearDecay | StepDecay = field(default_factory=ConstantRate)
    """How the learning rate changes."""
    loss: Literal["l2", "l2-mean", "cross-entropy", "bce"] = "l2"
    """Squared error summed or averaged over the outputs, or cross-entropy of classes or of single logits."""
    stop: Stop | None = None
    """An early end."""

    def __post_init__(self) -> None:
        _check("epochs", self.epochs, self.epochs >= 1, "at least 1")
        _check("batch", self.batch, self.batch is None or self.batch >= 1, "at least 1, or None")
        _check("learning_rate", self.learning_rate, 0 < self.learning_rate < math.inf, "more than 0")
        _check("momentum", self.momentum, 0 <= self.momentum < 1, "in [0, 1)")
        _check("weight_decay", self.weight_decay, 0 <= self.weight_decay < math.inf, "at least 0")
        if self.optimizer not in OPTIMIZERS:
            raise UnknownNameError("optimizer", self.optimizer, OPTIMIZERS)
        if self.loss not in LOSSES:
            raise UnknownNameError("loss", self.loss, LOSSES)
        if self.momentum and self.optimizer != "sgd":
            raise InputError(
                "momentum is for sgd alone", expected="0", got=f"{self.momentum} with {self.optimizer}"
            )

    def steps_per_epoch(self, n: int) -> int:
        """The mini-batches of an epoch over n samples."""
        if self.batch is None:
            return 1
        return n // self.batch if self.drop_last else -(-n // self.batch)

    def make_optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """torch's optimizer of this kind."""
        rate, decay = self.learning_rate, self.weight_decay
        if self.optimizer == "adam":
            return torch.optim.Adam(parameters, lr=rate, weight_decay=decay)
        if self.optimizer == "adagrad":
            return torch.optim.Adagrad(parameters, lr=rate, weight_decay=decay)
        return torch.optim.SGD(parameters, lr=rate, momentum=self.momentum, weight_decay=decay)


def _check(name: str, value: object, right: bool, expected: str) -> None:
    if not right:
        raise InputError(f"bad {name}", expected=expected, got=value)
