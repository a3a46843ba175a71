"""What kernel classifiers share: labels, one-hot targets, and predictions from logits."""

from abc import abstractmethod
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from sklearn.base import ClassifierMixin
from torch import Tensor

from tangentkit.core.errors import InputError
from tangentkit.linalg import FactorOperator, Operator, check_finite, check_symmetric
from tangentkit.linalg.operators.operator import Memory
from tangentkit.linalg.solvers.precision import in_working_precision
from tangentkit.machines.estimators.labels import check_one_label_each, label_weights, read_labels, winning
from tangentkit.machines.estimators.machine import KernelMachine
from tangentkit.machines.solvers.grams import FactoredGram, Gram, HeldGram


class KernelClassifier(ClassifierMixin, KernelMachine):
    """A machine whose outputs are logits of classes.

    A subclass sets `blocks_` in its `fit`, and by `_keep` what predictions need.
    """

    memory: Memory
    classes_: np.ndarray
    blocks_: int
    _offsets: Float[Tensor, " c"]
    _is_primal: bool
    """Whether `_coefficients` are those of features (d, c), and not of samples."""

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
        if not self._is_primal:
            return self._outputs(Z, self.X_fit_, self._coefficients, self.blocks_) + self._offsets
        bytes_each = len(self._coefficients) * self._coefficients.element_size()
        parts = [self._features(z) @ self._coefficients for z in self._pieces(Z, bytes_each)]
        return torch.cat(parts) + self._offsets

    def _labels(self, y: Any) -> Int[Tensor, " n"]:
        """Indices into `classes_`, which it sets."""
        self.classes_, indices = read_labels(y, name=type(self).__name__)
        return indices

    def _weights(self, weights: Any, labels: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Weights of the samples, 1 by default."""
        return label_weights(weights, labels, self.classes_)

    def _known(self, X: Any, labels: Int[Tensor, " n"]) -> Gram:
        """The kernel of training samples: by its features where they are fewer than the samples, else as a matrix.

        Raises:
            InputError: the kernel's size does not go with the labels.
            NumericalError: it is not symmetric or not finite.
            BudgetError: it does not fit the memory budget.
        """
        n = len(labels)
        check_one_label_each(labels, self._source.samples(X))
        features = self._source.features(X)
        if features is not None:
            check_finite(features, "features")
            self._check_rows(len(features), n)
            if features.shape[1] < n:
                return FactoredGram(in_working_precision(features))
            # The features are there already: better their inner products than another pass over the network.
            return HeldGram(FactorOperator(in_working_precision(features)).dense(self.memory))
        K: Operator = self._source.gram(X, memory=self.memory)
        check_symmetric(K)  # and no symmetrized copy: a matrix may be as large as memory allows
        self._check_rows(K.shape[0], n)
        return HeldGram(K.dense(self.memory))

    def _check_rows(self, rows: int, n: int) -> None:
        c = len(self.classes_)
        if rows not in (n, n * c):
            raise InputError(
                "labels do not match the kernel",
                expected=f"{rows} labels, or {n} x {c} rows for a kernel with one output for each of {c} classes",
                got=f"{n} labels of {c} classes for {rows} rows",
                hint="every class of the kernel's outputs needs a sample" if rows % n == 0 else None,
            )

    def _keep(self, X: Any, gram: Gram, coefficients: Tensor, b: Float[Tensor, " c"]) -> None:
        """What predictions need: coefficients of the features where there are few, else of samples, and those."""
        self._is_primal = isinstance(gram, FactoredGram)
        self._coefficients, self._offsets = coefficients, b
        self.X_fit_ = None if self._is_primal or self._is_precomputed else X

    @property
    def coef_(self) -> Any:
        """γ (d, c) with logits φ · γ + b, (d,) where two classes have one logit; of machines solved in features."""
        if not self._is_primal:
            raise AttributeError("the machine was solved in the samples: dual_coef_")
        return self._of_classes(self._coefficients)

    def _of_classes(self, values: Float[Tensor, "n c"]) -> Any:
        return self._in_kind(values.squeeze(1))

    def _strip(self) -> None:
        super()._strip()
        if self._is_primal:
            self.kernel = "features"


def one_hot(labels: Int[Tensor, " n"], classes: int, *, like: Tensor) -> Float[Tensor, "n c"]:
    """1 where the class is the sample's, of a single column for two classes where `classes` is 1."""
    if classes == 1:
        return labels[:, None].to(like)
    return torch.nn.functional.one_hot(labels, classes).to(like)
