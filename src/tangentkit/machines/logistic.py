"""KernelLogistic: kernel logistic and softmax regression by damped Newton steps."""

import warnings
from typing import Any

import torch
from sklearn.exceptions import ConvergenceWarning

from tangentkit.core.errors import InputError
from tangentkit.linalg.operator import Memory
from tangentkit.machines.classifier import KernelClassifier, one_hot
from tangentkit.machines.machine import check_number
from tangentkit.machines.newton import Likelihood, minimize


class KernelLogistic(KernelClassifier):
    """Kernel logistic regression, two classes or more, by damped Newton with backtracking.

    With z = k(·, X) α it minimizes Σ_i w_i ℓ(y_i, z_i) + (ridge / 2) αᵀ K α, ℓ being the logistic loss, or the
    cross-entropy of the softmax for more than two classes. There is no intercept: add one by a kernel, such as
    `ConjugateKernel(model, bias=True)`. A block kernel k(x, y) (n, c, m, c) has one output for every class.

    Data that can be separated have no optimum without a ridge, and one far away with a small ridge: the iteration
    then ends at `max_iter`, says so by a ConvergenceWarning, and `converged_` is False.

    Args:
        kernel: "precomputed", "features", a kernel of this library, or a function k(x, y).
        ridge: the weight of the norm.
        max_iter: the most Newton steps.
        tol: how far above its minimum the objective may end, for every unit of weight.
        memory: the budget for matrices, in bytes or as "2GB"; None takes a share of what is free.

    Attributes:
        classes_: the labels, in order.
        dual_coef_: α (n,) for two classes, (n, c) for more.
        objective_: the value reached; `n_iter_`, `converged_` and `message_` tell how.
        X_fit_: the training samples, where predictions need them.

    Example:
        >>> import numpy as np
        >>> x = np.array([[-2.0], [-1.0], [1.0], [3.0]])
        >>> machine = KernelLogistic(lambda x, y: x @ y.T, ridge=0.1).fit(x, ["left", "left", "right", "right"])
        >>> machine.predict(np.array([[0.5], [-0.5]])), machine.converged_
        (array(['right', 'left'], dtype='<U5'), True)
    """

    def __init__(
        self,
        kernel: Any = "precomputed",
        *,
        ridge: float = 1e-3,
        max_iter: int = 100,
        tol: float = 1e-10,
        memory: Memory = None,
    ):
        self.kernel, self.ridge, self.max_iter, self.tol, self.memory = kernel, ridge, max_iter, tol, memory

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "KernelLogistic":
        """Fits the machine.

        Args:
            X: samples, or their kernel matrix.
            y: labels (n,).
            sample_weight: (n,), not negative.

        Raises:
            InputError: shapes do not match, there is one class only, or an option is out of range.
            NumericalError: the kernel is not symmetric or not finite.
            BudgetError: the matrices of a step are beyond the memory budget.
        """
        ridge, tol = check_number(self.ridge, "ridge"), check_number(self.tol, "tol", positive=True)
        if self.max_iter < 1:
            raise InputError("bad number of steps", expected="max_iter >= 1", got=self.max_iter)
        given = self._accept(X, fitting=True)
        labels = self._labels(y)
        weights = self._weights(sample_weight, labels)
        K, blocks = self._gram(given, labels)
        logits = len(self.classes_) if blocks > 1 or len(self.classes_) > 2 else 1
        targets = one_hot(labels.to(K.device), logits, like=K)
        found = minimize(
            Likelihood(K, targets, weights.to(K), ridge), max_steps=self.max_iter, tol=tol, memory=self.memory
        )

        self.blocks_, self._offsets = blocks, torch.zeros(logits).to(K)
        self._coefficients = found.alpha.reshape(len(K), -1)
        self.dual_coef_ = self._in_kind(found.alpha[:, 0] if logits == 1 else found.alpha)
        self.X_fit_ = None if self._is_precomputed else given
        self.objective_, self.n_iter_ = found.value, found.steps
        self.converged_, self.message_ = found.converged, found.message
        if not found.converged:
            warnings.warn(f"KernelLogistic: {found.message}", ConvergenceWarning, stacklevel=2)
        return self
