"""What kernel classifiers share: labels, one-hot targets, and predictions from logits."""

from abc import abstractmethod
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, column_or_1d
from torch import Tensor

from tangentkit.core.errors import InputError
from tangentkit.linalg import Operator, symmetrized
from tangentkit.linalg.operator import Memory
from tangentkit.machines.machine import KernelMachine, gives_tensors, in_working_precision, sample_weights

ANY: Any = None
"""scikit-learn's word for labels of any type."""


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
        scores = self._scores(X)
        labels = self.classes_[_winners(scores).cpu().numpy()]
        if not gives_tensors(X) or labels.dtype.kind not in "biuf":
            return labels
        return torch.from_numpy(labels).to(scores.device)

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
        """Indices into `classes_`, which it sets.

        Raises:
            InputError: labels are missing, not labels, or all of one class.
        """
        if y is None:
            raise InputError(
                f"{type(self).__name__} requires y to be passed, but the target y is None", expected="labels"
            )
        y = y.detach().cpu().numpy() if isinstance(y, Tensor) else y
        y = check_array(
            y, ensure_2d=False, dtype=ANY, allow_nd=True, input_name="y", estimator=type(self).__name__
        )
        if y.ndim > 2 or (y.ndim == 2 and y.shape[1] > 1):
            raise InputError(
                "bad labels",
                expected="shape (n,)",
                got=y.shape,
                hint="y.argmax(1) turns one-hot rows into labels",
            )
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        self.classes_, indices = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise InputError(
                "nothing to tell apart", expected="labels of two classes or more", got=f"one class, {y[0]!r}"
            )
        return torch.from_numpy(indices)

    def _weights(self, weights: Any, labels: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Weights of the samples, 1 by default.

        Raises:
            InputError: of all samples of a class the weight is zero.
        """
        ones = torch.ones(len(labels), dtype=torch.float64)
        w = sample_weights(weights, n=len(labels), like=ones)
        w = ones if w is None else w
        mass = torch.bincount(labels, weights=w)
        if not (mass > 0).all():
            empty = self.classes_[(mass == 0).numpy()].tolist()
            raise InputError(
                "a class is empty",
                expected="a weight above 0 in every class",
                got=f"none in class {empty[0]!r}",
            )
        return w

    def _gram(self, X: Any, labels: Int[Tensor, " n"]) -> tuple[Float[Tensor, "nc nc"], int]:
        """K in working precision, and its rows for every sample: 1, or the number of classes.

        Raises:
            InputError: the kernel's size does not go with the labels.
            NumericalError: it is not symmetric or not finite.
            BudgetError: it does not fit the memory budget.
        """
        K: Operator = symmetrized(self._source.gram(X, memory=self.memory))
        rows, n, c = K.shape[0], len(labels), len(self.classes_)
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


def _winners(scores: Tensor) -> Int[Tensor, " m"]:
    return (scores > 0).long() if scores.ndim == 1 else scores.argmax(1)
