"""KernelGLM: a classifier that is linear in the kernel's rows, logits = k(x, X) A + b."""

import warnings
from typing import Any

import torch
from jaxtyping import Float
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from tangentkit.core.errors import InputError, NumericalError, UnknownNameError
from tangentkit.linalg.operators.operator import Memory
from tangentkit.machines.estimators.classifier import KernelClassifier
from tangentkit.machines.estimators.machine import check_number
from tangentkit.machines.solvers.grams import FactoredGram, Gram
from tangentkit.machines.solvers.minimizers import MINIMIZERS, Adam, Minimizer, Objective

SCALINGS = ("diagonal", "deviation")


class KernelGLM(KernelClassifier):
    """A generalized linear model on the rows of a kernel: logits k(x, X) A + b.

    It minimizes the mean cross-entropy + (ridge / 2) ‖A‖², which is the surrogate of a network and not kernel
    logistic regression (that one has αᵀ K α; see `KernelLogistic`).

    ======== ===========================================================================================
    solver   way
    ======== ===========================================================================================
    "newton" softmax over all classes, to the optimum, however ill conditioned the kernel
    "lbfgs"  the same optimum by L-BFGS: slow where the kernel is ill conditioned, no matrix beside the kernel's
    "sgd"    scikit-learn's SGDClassifier, one class against the rest, balanced classes (the published form)
    "adam"   softmax by 8000 full steps of Adam, as if training the coefficients: with ridge=0 and
             fit_intercept=False, kernel regression with the cross-entropy
    ======== ===========================================================================================

    A kernel with fewer features than samples (conjugate, sketched, given) is solved by "newton" in the features, and
    predicts from them: no (n, n) matrix is made. A block kernel k(x, y) (n, c, m, c), with one output for every
    class, has logits Σ_i k(x, x_i) α_i.

    Args:
        kernel: "precomputed", "features", a kernel of this library, or a function k(x, y).
        ridge: the weight of ‖A‖², of the kernel as scaled.
        solver: a name, or a minimizer with options of its own, such as `Adam(steps=1000)`.
        fit_intercept: whether there is a b.
        scaling: "diagonal" divides the kernel by the mean of its diagonal while fitting, "deviation" by the
            standard deviation of its entries, None leaves it. Coefficients are for the kernel as given.
        memory: the budget for the kernel matrix, in bytes or as "2GB"; None takes a share of what is free.

    Attributes:
        classes_: the labels, in order.
        dual_coef_: A (n, c), or (n, 1) for two classes by "sgd", which has the logit of the second alone.
        intercept_: b (c,) or (1,).
        scale_: what the kernel was divided by.
        n_iter_: steps; `converged_`, `message_` and `losses_` tell how they went.
        coef_: γ (d, c) with logits φ · γ + b, where the kernel has fewer features than samples.
        X_fit_: the training samples, where predictions need them.

    Example:
        >>> import numpy as np
        >>> x = np.array([[-2.0], [-1.0], [1.0], [3.0]])
        >>> machine = KernelGLM(lambda x, y: x @ y.T, ridge=1e-2).fit(x, [0, 0, 1, 1])
        >>> machine.predict(np.array([[0.5], [-1.5]])), machine.dual_coef_.shape
        (array([1, 0]), (4, 2))
    """

    def __init__(
        self,
        kernel: Any = "precomputed",
        *,
        ridge: float = 1e-4,
        solver: str | Minimizer = "newton",
        fit_intercept: bool = True,
        scaling: str | None = "diagonal",
        memory: Memory = None,
    ):
        self.kernel, self.ridge, self.solver = kernel, ridge, solver
        self.fit_intercept, self.scaling, self.memory = fit_intercept, scaling, memory

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "KernelGLM":
        """Fits the machine.

        Args:
            X: samples, or their kernel matrix.
            y: labels (n,).
            sample_weight: (n,), not negative.

        Raises:
            InputError: shapes do not match, there is one class only, or an option is not known.
            NumericalError: the kernel is not symmetric or not finite.
            BudgetError: the kernel matrix is beyond the memory budget.
        """
        ridge, solver = check_number(self.ridge, "ridge"), _as_minimizer(self.solver)
        given = self._accept(X, fitting=True)
        labels = self._labels(y)
        weights = self._weights(sample_weight, labels)
        gram = self._known(given, labels)
        scale = scale_of(gram, self.scaling)
        objective = Objective(
            gram,
            scale,
            labels.to(gram.kind.device),
            len(self.classes_),
            (weights / weights.sum()).to(gram.kind),
            ridge,
            self.fit_intercept,
            self.memory,
        )
        found = solver.minimize(objective)

        self.blocks_, self.scale_ = gram.rows // len(labels), scale
        A = found.A / scale
        self._keep(given, gram, gram.primal(A) if isinstance(gram, FactoredGram) else A, found.b)
        self._one_against_rest = solver.one_against_rest
        self.dual_coef_ = self._in_kind(A.reshape(len(labels), -1))
        self.intercept_ = self._in_kind(found.b)
        self.n_iter_, self.converged_, self.message_ = found.steps, found.converged, found.message
        self.losses_ = found.losses
        # The steps of Adam are what was asked for, not a limit, unless they lead nowhere.
        is_as_asked = isinstance(solver, Adam) and found.losses[-1] <= found.losses[0]
        if not (found.converged or is_as_asked):
            warnings.warn(f"KernelGLM: {found.message}", ConvergenceWarning, stacklevel=2)
        return self

    def _probabilities(self, scores: Tensor) -> Float[Tensor, "m c"]:
        if not self._one_against_rest or scores.ndim == 1:
            return super()._probabilities(scores)
        # Of classes that stand alone; where all say no, none is preferred.
        alone = torch.sigmoid(scores)
        total = alone.sum(1, keepdim=True)
        return torch.where(total > 0, alone / total, 1 / scores.shape[1])


def scale_of(gram: Gram, scaling: str | None) -> float:
    """What a kernel matrix is divided by.

    Raises:
        UnknownNameError: there is no such scaling.
        NumericalError: it would be zero.
    """
    if scaling is None:
        return 1.0
    if scaling not in SCALINGS:
        raise UnknownNameError("scaling", str(scaling), SCALINGS)
    scale = gram.mean_diagonal() if scaling == "diagonal" else gram.deviation()
    if not scale > 0:
        raise NumericalError(
            f"the kernel has no {scaling} to scale it by", expected="a number > 0", got=scale
        )
    return scale


def _as_minimizer(solver: str | Minimizer) -> Minimizer:
    if isinstance(solver, Minimizer):
        return solver
    if not isinstance(solver, str):
        raise InputError("not a solver", expected="a name or a minimizer", got=type(solver).__name__)
    if solver not in MINIMIZERS:
        raise UnknownNameError("solver", solver, MINIMIZERS)
    return MINIMIZERS[solver]()
