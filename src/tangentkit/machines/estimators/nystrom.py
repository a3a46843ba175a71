"""NystromRegression: kernel regression on a few landmarks, for more samples than a kernel matrix can hold."""

import warnings
from numbers import Integral
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from sklearn.base import RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from tangentkit.core.errors import InputError, UnknownNameError
from tangentkit.core.seeds import Key
from tangentkit.linalg import CG, DenseOperator, symmetrized
from tangentkit.linalg.operators.operator import Memory
from tangentkit.linalg.solvers.precision import in_working_precision
from tangentkit.machines.estimators.machine import (
    KernelMachine,
    check_number,
    columns_do_not_match,
    regression_targets,
    sample_weights,
)
from tangentkit.machines.kernel_sources import take_samples
from tangentkit.machines.solvers.falkon import FalkonOperator, solve_directly, upper_root
from tangentkit.machines.solvers.row_strips import kernel_strips, landmark_matrix

SOLVERS = ("auto", "direct", "falkon")
MOST_FLOPS = 5e10
"""Up to this, the normal equations of the landmarks take a second or so."""


class NystromRegression(RegressorMixin, KernelMachine):
    """Kernel ridge regression with f = Σ_j α_j k(·, x_j) over m landmarks x_j among the samples.

    It minimizes Σ_i w_i (y_i - f(x_i))² + ridge ‖f‖²_K over such f; with all samples as landmarks it is
    `KernelRegression`. With C = k(X, landmarks) and M = k(landmarks, landmarks) the equations are

        (Cᵀ W C + ridge M) α = Cᵀ W y,

    where M has 1e-12 of its mean diagonal more on the diagonal (1e-6 for kernels in float32) against rounding.

    ========  =========================================================================================
    solver    way
    ========  =========================================================================================
    "direct"  sums Cᵀ W C over strips of C and factors it: n m² operations
    "falkon"  conjugate gradients with products of C alone, preconditioned by M (Rudi, Carratino, Rosasco
              2017): n m operations a step; C is held where the budget allows, else made anew every step
    "auto"    "direct" where it is quick, else "falkon"
    ========  =========================================================================================

    Args:
        kernel: "precomputed" with k(X, X), which may be an operator stored on disk, "features", a kernel of this
            library, or a function k(x, y).
        landmarks: how many, drawn without replacement; or their indices.
        ridge: the weight of the norm.
        solver: a name.
        max_steps: the most steps of "falkon".
        tol: the relative residual at which they end; None takes 1e-7, for kernels in float32 1e-5.
        seed: of the landmarks.
        memory: the budget for matrices, in bytes or as "2GB"; None takes a share of what is free.

    Attributes:
        landmarks_: indices of the landmarks (m,), ascending.
        solver_: what was done; `reason_` says why, `n_iter_` and `converged_` how it went.
        X_fit_: the landmarks themselves, where predictions need them.

    Example:
        >>> import numpy as np
        >>> x = np.linspace(-1, 1, 500)[:, None]
        >>> machine = NystromRegression(lambda x, y: np.exp(-4 * (x - y.T) ** 2), landmarks=20, ridge=1e-6)
        >>> machine.fit(x, np.sin(3 * x[:, 0])).predict(np.array([[0.3]])).round(2), len(machine.landmarks_)
        (array([0.78]), 20)
    """

    def __init__(
        self,
        kernel: Any = "precomputed",
        *,
        landmarks: Any = 1000,
        ridge: float = 1e-3,
        solver: str = "auto",
        max_steps: int = 200,
        tol: float | None = None,
        seed: int = 0,
        memory: Memory = None,
    ):
        self.kernel, self.landmarks, self.ridge, self.solver = kernel, landmarks, ridge, solver
        self.max_steps, self.tol, self.seed, self.memory = max_steps, tol, seed, memory

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "NystromRegression":
        """Fits the machine.

        Args:
            X: samples, or their kernel matrix.
            y: targets (n,) or (n, c).
            sample_weight: (n,), not negative.

        Raises:
            InputError: shapes do not match, or an option is out of range.
            NumericalError: the kernel is not finite, or not positive on the landmarks.
        """
        ridge = check_number(self.ridge, "ridge", positive=True)
        tol = None if self.tol is None else check_number(self.tol, "tol", positive=True)
        if self.solver not in SOLVERS:
            raise UnknownNameError("solver", str(self.solver), SOLVERS)
        given = self._accept(X, fitting=True)
        targets, is_flat = regression_targets(y, name=type(self).__name__)
        weights = sample_weights(sample_weight, n=len(targets), like=targets)
        landmarks = self._choose(len(targets))
        strips = kernel_strips(self._source, given, landmarks, memory=self.memory)
        if len(targets) != strips.shape[0]:
            raise InputError(
                "targets do not match the samples",
                expected=f"shape ({strips.shape[0]},) or ({strips.shape[0]}, c)",
                got=(len(targets),) if is_flat else tuple(targets.shape),
                hint="y[0]: targets in one row" if len(targets) == 1 else None,
            )
        if self._is_precomputed:
            strips = strips.within(self.memory)  # read once, also where it is on disk
        M = landmark_matrix(self._source, given, landmarks, strips)
        M = symmetrized(DenseOperator(M)).dense()
        T = upper_root(in_working_precision(M), jitter=max(10 * torch.finfo(strips.kind.dtype).eps, 1e-12))
        del M
        Y, weights = targets.to(T), None if weights is None else weights.to(T)

        n, m = strips.shape
        name, reason = self._solver(n * m**2)
        if name == "direct":
            alpha = solve_directly(strips, Y, T, weights, ridge=ridge)
            steps, converged, message = 0, True, "solved"
        else:
            system = FalkonOperator(strips, T, weights, landmarks=landmarks, ridge=ridge, memory=self.memory)
            rtol = tol or (1e-7 if strips.kind.dtype == torch.float64 else 1e-5)
            method = CG(rtol=rtol, max_steps=self.max_steps)
            solution = method.solve(system, system.right_hand_side(Y), ridge=0.0)
            alpha = system.forward(solution.value)
            steps, converged, message = solution.steps, solution.converged, solution.message
        self.solver_, self.reason_ = name, reason
        self.n_iter_, self.converged_, self.message_ = steps, converged, message
        self.landmarks_, self._is_flat = landmarks.numpy(), is_flat
        self._coefficients = alpha.to(strips.kind.dtype)
        self.X_fit_ = None if self._is_precomputed else take_samples(given, landmarks)
        if not converged:
            warnings.warn(f"NystromRegression: {message}", ConvergenceWarning, stacklevel=2)
        return self

    @property
    def dual_coef_(self) -> Any:
        """α (m,) or (m, c)."""
        return self._in_kind(self._coefficients[:, 0] if self._is_flat else self._coefficients)

    def predict(self, X: Any) -> Any:
        """Σ_j α_j k(z, x_j) at new samples (m,) or (m, c).

        Args:
            X: samples, or their kernel matrix k(Z, X) with all training samples.
        """
        Z = self._accept(X, fitting=False)
        mean = self._outputs(Z, self.X_fit_, self._coefficients, 1)
        return self._in_kind(mean[:, 0] if self._is_flat else mean, X)

    def _strip(self) -> None:
        super()._strip()
        # Its kernel matrix has the landmarks as columns, and no others.
        self.landmarks_ = np.arange(len(self._coefficients))

    def _cross(self, Z: Any, X: Any, coefficients: Float[Tensor, "m q"]) -> Float[Tensor, "b m"]:
        if not self._is_precomputed:
            return super()._cross(Z, X, coefficients)
        k = self._source.cross(Z, X)
        if k.shape[1] != self.n_features_in_:
            raise columns_do_not_match(k, self.n_features_in_)
        return k[:, torch.from_numpy(self.landmarks_).to(k.device)].to(coefficients)

    def _choose(self, n: int) -> Int[Tensor, " m"]:
        """Indices of the landmarks, in ascending order."""
        if isinstance(self.landmarks, Integral) and not isinstance(self.landmarks, bool):
            if self.landmarks < 1:
                raise InputError("bad number of landmarks", expected="at least 1", got=self.landmarks)
            order = torch.randperm(n, generator=Key(self.seed).fold("landmarks").torch())
            return order[: int(self.landmarks)].sort().values
        indices = torch.as_tensor(self.landmarks)
        if indices.ndim != 1 or indices.is_floating_point() or not len(indices):
            raise InputError(
                "bad landmarks", expected="a number, or indices (m,)", got=repr(self.landmarks)[:60]
            )
        found = indices.long().cpu().unique()
        if len(found) < len(indices) or found[0] < 0 or found[-1] >= n:
            raise InputError(
                "bad landmarks",
                expected=f"different indices from 0 to {n - 1}",
                got=repr(self.landmarks)[:60],
            )
        return found

    def _solver(self, flops: float) -> tuple[str, str]:
        if self.solver != "auto":
            return self.solver, "asked for"
        if flops <= MOST_FLOPS:
            return "direct", f"n m² = {flops:.1e} operations take a second or so"
        return "falkon", f"n m² = {flops:.1e} operations take long; a step of conjugate gradients takes n m"
