"""What kernel classifiers share: labels, one-hot targets, and predictions from logits."""

from abc import abstractmethod
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from sklearn.base import ClassifierMixin
from torch import Tensor

from tangentkit.core.errors import InputError
from tangentkit.linalg import Operator, symmetrized
from tangentkit.linalg.operator import Memory
from tangentkit.machines.labels import label_weights, read_labels, winning
from tangentkit.machines.machine import KernelMachine, in_working_precision


class KernelClassifier(ClassifierMixin, KernelMachine):
    """A machine whose outputs are logits of classes.

    A subclass sets `_coefficients` (n c, q), `_offsets` (q c,) and `blocks_` in its `fit`.
    """

    memory: Memory
    classes_: np.ndarray
    blocks_: int
    _offsets: Float[Tensor, " c"]

    @abstractmethod
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "KernelClassifier":
        """Fits the machine."""

    def logits(self, X: Any) -> Any:
        """The logits f(x) of every class (m, c); of a binary machine with one output, that of the second (m, 1)."""
        return self._in_kind(self._logits(X), X)

    def decision_function(self, X: Any) -> Any:
        """Logits (m, c), or (m,) for two classes: log-odds of the second."""
        return self._in_kind(self._scores(X), X)

    def predict_proba(self, X: Any) -> Any:
        """Probabilities (m, c), in the order of `classes_`."""
        return self._in_kind(self._probabilities(self._scores(X)), X)

    def predict(self, X: Any) -> Any:
        """The most probable class of every sample."""
        return winning(self._scores(X), self.classes_, X)

    def _scores(self, X: Any) -> Tensor:
        logits = self._logits(X)
        if len(self.classes_) > 2:
            return logits
        return logits[:, 0] if logits.shape[1] == 1 else logits[:, 1] - logits[:, 0]

    def _probabilities(self, scores: Tensor) -> Float[Tensor, "m c"]:
        if scores.ndim == 1:
            return torch.stack([torch.sigmoid(-scores), torch.sigmoid(scores)], 1)
        return scores.softmax(1)

    def _logits(self, X: Any) -> Float[Tensor, "m c"]:
        Z = self._accept(X, fitting=False)
        return self._outputs(Z, self.X_fit_, self._coefficients, self.blocks_) + self._offsets

    def _labels(self, y: Any) -> Int[Tensor, " n"]:
        """Indices into `classes_`, which it sets."""
        self.classes_, indices = read_labels(y, name=type(self).__name__)
        return indices

    def _weights(self, weights: Any, labels: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Weights of the samples, 1 by default."""
        return label_weights(weights, labels, self.classes_)

    def _gram(self, X: Any, labels: Int[Tensor, " n"]) -> tuple[Float[Tensor, "nc nc"], int]:
        """K in working precision, and its rows for every sample: 1, or the number of classes.

        Raises:
            InputError: the kernel's size does not go with the labels.
            NumericalError: it is not symmetric or not finite.
            BudgetError: it does not fit the memory budget.
        """
        K: Operator = symmetrized(self._source.gram(X, memory=self.memory))
        rows, n, c = K.shape[0], len(labels), len(self.classes_)
        if self._source.samples(X) not in (None, n):
            raise InputError(
                "labels do not match the samples", expected=f"{self._source.samples(X)} labels", got=n
            )
        if rows == n:
            return in_working_precision(K.dense(self.memory)), 1
        if rows != n * c:
            raise InputError(
                "labels do not match the kernel",
                expected=f"{rows} labels, or {n} x {c} rows for a kernel with one output for each of {c} classes",
                got=f"{n} labels of {c} classes for {rows} rows",
                hint="every class of the kernel's outputs needs a sample" if rows % n == 0 else None,
            )
        return in_working_precision(K.dense(self.memory)), c


def one_hot(labels: Int[Tensor, " n"], classes: int, *, like: Tensor) -> Float[Tensor, "n c"]:
    """1 where the class is the sample's, of a single column for two classes where `classes` is 1."""
    if classes == 1:
        return labels[:, None].to(like)
    return torch.nn.functional.one_hot(labels, classes).to(like)
