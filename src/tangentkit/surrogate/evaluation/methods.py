"""Methods of attribution under test: functions of samples, those of a surrogate, and the random baseline."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from tangentkit.compute.sources import sources_of
from tangentkit.core.errors import InputError
from tangentkit.core.memory import memory_budget
from tangentkit.core.seeds import Key
from tangentkit.surrogate.evaluation.scores import Attribute, Scores, scores_for, self_scores_of
from tangentkit.surrogate.influence import influence, representer_points, trak
from tangentkit.surrogate.surrogate import Surrogate

RANDOM = "random"
"""The name of the baseline."""
REMEMBERED = 2
"""Sets of samples whose matrices are kept: test samples, and others of one question."""


class Method(ABC):
    """What gives scores to samples."""

    name: str

    @abstractmethod
    def scores(self, x: Any, classes: Int[Tensor, " n"]) -> Float[np.ndarray, "n m"]:
        """How much each training sample speaks for one class of each sample."""

    @abstractmethod
    def self_scores(self, train: Any, labels: Int[Tensor, " m"]) -> Float[np.ndarray, " m"]:
        """How much each training sample speaks for its own label."""


@dataclass
class Given(Method):
    """A function of samples. The scores of the latest samples are remembered."""

    name: str
    attribute: Attribute
    _latest: tuple[Any, Scores] | None = field(default=None, repr=False)

    def scores(self, x: Any, classes: Int[Tensor, " n"]) -> Float[np.ndarray, "n m"]:
        """The scores of the training samples for these test samples."""
        if self._latest is None or self._latest[0] is not x:
            self._latest = x, self.attribute(x)
        return scores_for(self._latest[1], classes)

    def self_scores(self, train: Any, labels: Int[Tensor, " m"]) -> Float[np.ndarray, " m"]:
        """Of the training samples."""
        return self_scores_of(self.attribute(train), labels)


@dataclass(frozen=True)
class Random(Method):
    """Scores without meaning: independent standard normal numbers."""

    m: int
    """Training samples."""
    seed: int
    name = RANDOM

    def scores(self, x: Any, classes: Int[Tensor, " n"]) -> Float[np.ndarray, "n m"]:  # noqa: ARG002
        """Scores that are drawn at random."""
        return Key(self.seed).fold("random scores").numpy().normal(size=(len(classes), self.m))

    def self_scores(self, train: Any, labels: Int[Tensor, " m"]) -> Float[np.ndarray, " m"]:  # noqa: ARG002
        """Self-scores that are drawn at random."""
        return Key(self.seed).fold("random self-scores").numpy().normal(size=self.m)


def methods_of(surrogate: Surrogate) -> dict[str, Attribute]:
    """The methods that a fitted surrogate has: its own attribution, influence, TRAK's scores and representer points.

    All are made of the same matrix between samples and training samples, which is computed once, and kept in memory
    for the last two sets of samples that were asked about.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from tangentkit import ConjugateKernel
        >>> model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))
        >>> fitted = Surrogate(model, ConjugateKernel(model)).fit(torch.randn(20, 2), torch.arange(20) % 2)
        >>> list(methods_of(fitted))
        ['surrogate', 'influence', 'TRAK-style', 'representer points']
    """
    surrogate._check_fitted()
    latest: list[tuple[Any, Tensor]] = []

    def cross(x: Any) -> Float[Tensor, "n m"]:
        known = next((matrix for samples, matrix in latest if samples is x), None)
        if known is None:
            source = sources_of(surrogate.kernel, x)["x"]
            matrix = surrogate._cross(source, None)
            n, m = matrix.shape
            memory_budget().check(
                8 * n * m,
                "the matrix between samples and training samples is",
                of=f"{n:,} and {m:,}",
                hint="fewer samples; or methods of your own, such as {'surrogate': surrogate.attribute}",
                copies=REMEMBERED,
            )
            known = matrix.dense()
            latest[:] = [(x, known), *latest][:REMEMBERED]
        return known

    return {
        "surrogate": lambda x: surrogate.attribute(x, cross=cross(x)),
        "influence": lambda x: influence(surrogate, x, cross=cross(x)),
        "TRAK-style": lambda x: trak(surrogate, x, cross=cross(x)),
        "representer points": lambda x: representer_points(surrogate, x, cross=cross(x)),
    }


def as_methods(given: Surrogate | Attribute | Mapping[str, Attribute], m: int, seed: int) -> list[Method]:
    """The methods that somebody means, and the random baseline.

    Raises:
        InputError: there is none, or one is no function.
    """
    if isinstance(given, Surrogate):
        functions = methods_of(given)
    elif isinstance(given, Mapping):
        functions = dict(given)
    else:
        functions = {getattr(given, "__name__", "method"): given}
    for name, function in functions.items():
        if not callable(function) or name == RANDOM:
            raise InputError(
                f"bad method {name!r}",
                expected="a function samples -> scores, under another name than 'random', which is always there",
                got=type(function).__name__,
                hint=f"{{{name!r}: surrogate.attribute}}" if isinstance(function, Surrogate) else None,
            )
    if not functions:
        raise InputError("nothing to evaluate", expected="a surrogate, a function, or name -> function")
    return [*(Given(name, function) for name, function in functions.items()), Random(m, seed)]
