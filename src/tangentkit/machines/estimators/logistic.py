"""KernelLogistic: kernel logistic and softmax regression by Newton steps."""

import warnings
from typing import Any

import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from tangentkit.core.errors import InputError
from tangentkit.linalg.operators.checks import rounding
from tangentkit.linalg.operators.operator import Memory
from tangentkit.linalg.solvers.positivity import check_positive
from tangentkit.machines.estimators.classifier import KernelClassifier, one_hot
from tangentkit.machines.estimators.machine import check_number
from tangentkit.machines.solvers.grams import Gram, HeldGram
from tangentkit.machines.solvers.newton import Goal, Likelihood, minimize


class KernelLogistic(KernelClassifier):
    """Kernel logistic regression, two classes or more, by Newton's method with preconditioned conjugate gradients.

    With z = k(·, X) α it minimizes Σ_i w_i ℓ(y_i, z_i) + (ridge / 2) αᵀ K α, ℓ being the logistic loss, or the
    cross-entropy of the softmax for more than two classes. There is no intercept: add one by a kernel, such as
    `ConjugateKernel(model, bias=True)`. A kernel with fewer features than samples (conjugate, sketched, given) is
    solved in the features, and predicts from them: no (n, n) matrix is made. A block kernel k(x, y) (n, c, m, c) has
    one output for every class.

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
        dual_coef_: α (n,) for two classes, (n, c) for more; not of a machine that was solved in features.
        objective_: the value reached; `n_iter_`, `converged_` and `message_` tell how.
        coef_: γ (d,) or (d, c) with logits φ · γ, where the kernel has fewer features than samples.
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
        gram = self._known(given, labels)
        blocks = gram.rows // len(labels)
        if isinstance(gram, HeldGram):
            check_positive(gram.held(self.memory).K, hint="another kernel")
        logits = len(self.classes_) if blocks > 1 or len(self.classes_) > 2 else 1
        roots = weights.sqrt().to(gram.kind)
        targets = one_hot(labels.to(roots.device), logits, like=roots)
        space, lift = gram.space(roots, ridge=ridge, memory=self.memory)
        likelihood = Likelihood(space, targets, roots, ridge)
        enough = tol * float(weights.sum())
        found = minimize(likelihood, goal=Goal(gap=enough), max_steps=self.max_iter)
        coefficients = lift(found.coefficients)

        self.blocks_ = blocks
        self._keep(given, gram, coefficients, torch.zeros(logits).to(roots))
        self.objective_, self.n_iter_ = _objective(likelihood, gram, coefficients), found.steps
        self.converged_, self.message_ = found.converged, found.message
        # The iteration knows its logits by recurrences: what counts is the objective of the coefficients.
        lost = self.objective_ - found.value
        if found.converged and not lost <= max(enough, rounding(roots.dtype) * found.value):
            self.converged_ = False
            self.message_ = f"rounding in the kernel raises the objective by {lost:.1e}; try a larger ridge"
        if not self.converged_:
            warnings.warn(f"KernelLogistic: {self.message_}", ConvergenceWarning, stacklevel=2)
        return self

    @property
    def dual_coef_(self) -> Any:
        """α (n,) or (n, c) with logits k(·, X) α."""
        if self._is_primal:
            raise AttributeError("the machine was solved in the features: coef_")
        return self._of_classes(self._coefficients.reshape(-1, len(self._offsets)))


def _objective(likelihood: Likelihood, gram: Gram, coefficients: Tensor) -> float:
    """φ, from the coefficients of samples or features alone."""
    f = gram.function(coefficients)
    square = (coefficients * (f if isinstance(gram, HeldGram) else coefficients)).sum()
    return float(likelihood.loss(f.reshape(likelihood.targets.shape)) + likelihood.ridge / 2 * square)
