"""KernelRidgeClassifier: kernel ridge regression of labels ±1, one class against the rest."""

from typing import Any

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from torch import Tensor

from tangentkit.linalg.operators.operator import Memory
from tangentkit.linalg.solvers.solution import Method
from tangentkit.machines.estimators.labels import (
    check_one_label_each,
    label_weights,
    one_against_rest,
    read_labels,
    winning,
)
from tangentkit.machines.estimators.machine import KernelMachine
from tangentkit.machines.estimators.regression import KernelRegression


class KernelRidgeClassifier(ClassifierMixin, KernelMachine):
    """A classifier by kernel ridge regression: for every class a regression of targets 1 in it and -1 outside.

    The class of the largest value wins. One linear system is solved for all classes, so that it is the quickest
    classifier of a kernel. A block kernel k(x, y) (n, c, m, c) has one output for every class.

    Args:
        kernel: "precomputed", "features", a kernel of this library, or a function k(x, y).
        ridge: the weight of the norm.
        solver: as in `KernelRegression`.
        cutoff: as in `KernelRegression`.
        memory: the budget for matrices, in bytes or as "2GB"; None takes a share of what is free.

    Attributes:
        classes_: the labels, in order.
        regression_: the fitted `KernelRegression` of the targets ±1 (n, c), with its solver, its coefficients and
            its leave-one-out errors.

    Example:
        >>> x = np.array([[-2.0], [-1.0], [1.0], [3.0]])
        >>> machine = KernelRidgeClassifier(lambda x, y: x @ y.T, ridge=0.1).fit(x, ["-", "-", "+", "+"])
        >>> machine.predict(np.array([[0.5], [-0.5]])), machine.regression_.solver_
        (array(['+', '-'], dtype='<U1'), 'cholesky')
    """

    classes_: np.ndarray
    regression_: KernelRegression

    def __init__(
        self,
        kernel: Any = "precomputed",
        *,
        ridge: float = 1e-3,
        solver: str | Method = "auto",
        cutoff: float | None = None,
        memory: Memory = None,
    ):
        self.kernel, self.ridge, self.solver = kernel, ridge, solver
        self.cutoff, self.memory = cutoff, memory

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "KernelRidgeClassifier":
        """Fits the machine.

        Args:
            X: samples, or their kernel matrix.
            y: labels (n,).
            sample_weight: (n,), not negative.

        Raises:
            InputError: shapes do not match, there is one class only, or an option is not known.
            NumericalError: the kernel is not symmetric, not finite, or not positive where the solver needs it.
        """
        given = self._accept(X, fitting=True)
        self.classes_, labels = read_labels(y, name=type(self).__name__)
        check_one_label_each(labels, self._source.samples(given))
        weights = label_weights(sample_weight, labels, self.classes_)
        options = {name: getattr(self, name) for name in ("ridge", "solver", "cutoff", "memory")}
        targets = one_against_rest(labels, len(self.classes_))
        self.regression_ = KernelRegression(self.kernel, **options).fit(given, targets, weights)
        return self

    def decision_function(self, X: Any) -> Any:
        """The regressions (m, c), or (m,) of two classes: that of the second."""
        return self._in_kind(self._scores(X), X)

    def predict(self, X: Any) -> Any:
        """The class whose regression is largest."""
        return winning(self._scores(X), self.classes_, X)

    def _scores(self, X: Any) -> Tensor:
        Z = self._accept(X, fitting=False)
        values = torch.as_tensor(self.regression_.predict(Z))
        # Of two classes the one is minus the other, unless a block kernel tells them apart.
        return values if len(self.classes_) > 2 else (values[:, 1] - values[:, 0]) / 2

    def _strip(self) -> None:
        self.regression_ = slim = self.regression_.portable()
        self.kernel, self.n_features_in_, self.sample_shape_ = (
            slim.kernel,
            slim.n_features_in_,
            slim.sample_shape_,
        )
