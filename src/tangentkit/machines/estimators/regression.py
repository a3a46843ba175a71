"""KernelRegression: f(z) = f0(z) + k(z, X) (K + ridge W⁻¹)⁻¹ (y - f0(X)), by the solver that suits it."""

import copy
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from jaxtyping import Float
from sklearn.base import RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from tangentkit.core.errors import InputError
from tangentkit.linalg import Operator
from tangentkit.linalg.operators.matrices import as_tensor
from tangentkit.linalg.operators.operator import Memory
from tangentkit.linalg.operators.symmetry import mirrored
from tangentkit.linalg.solvers.solution import Method
from tangentkit.machines.estimators.initial import Initial
from tangentkit.machines.estimators.machine import (
    KernelMachine,
    check_number,
    regression_targets,
    sample_weights,
)
from tangentkit.machines.kernel_sources import as_matrix
from tangentkit.machines.solvers.fits import CoefficientsOnly, DecomposedFit, Fit
from tangentkit.machines.solvers.systems import System, solve_system, weigh


class KernelRegression(RegressorMixin, KernelMachine):
    """Kernel (ridge) regression; with a kernel of covariances, the posterior of a Gaussian process.

    f minimizes Σ_i w_i (y_i - f(x_i))² + ridge ‖f - f0‖²_K. Without a ridge it interpolates, or is the fit of
    least norm where it cannot. A kernel with c outputs, k(x, y) of shape (n, c, m, c), couples them.

    ==========  =======================================================================================
    solver      way
    ==========  =======================================================================================
    "cholesky"  of K + ridge I; positive definite kernels
    "eigh"      pseudo-inverse with a cut-off; singular kernels, ridge paths
    "cg"        preconditioned conjugate gradients; kernels that are not held (operators, stored kernels)
    "features"  least squares on the kernel's features by QR and SVD: the condition number is not squared
    "normal"    normal equations of features, in blocks of samples: many samples
    "auto"      one of these; `solver_` and `reason_` tell which and why
    ==========  =======================================================================================

    Args:
        kernel: "precomputed", "features", a kernel of this library, or a function k(x, y).
        ridge: the weight of the norm, and the variance of the noise of the posterior.
        solver: a name, or a method of `tangentkit.linalg` with options of its own, such as
            `CG(preconditioner=Nystrom(rank=200, key=Key(0)))`.
        cutoff: eigenvalues ("eigh") or singular values ("features") up to this share of the largest count as zero;
            None takes the rounding of the dtype, and where eigenvalues below zero show more of it, twice as far.
        f0: a function of the samples to start from, such as the network itself, kept as it is at `fit`: with the
            tangent kernel, the prediction of a network in the lazy regime.
        memory: the budget for matrices, in bytes or as "2GB"; None takes a share of what is free.

    Attributes:
        solver_: what was done; `reason_` says why, `message_` what the solver found.
        residual_: of the linear system; `converged_` and `n_iter_` of an iteration.
        X_fit_: the training samples, where predictions need them.

    Example:
        >>> import numpy as np
        >>> x = np.linspace(-1, 1, 20)[:, None]
        >>> machine = KernelRegression(lambda x, y: np.exp(-4 * (x - y.T) ** 2), ridge=1e-6)
        >>> machine.fit(x, np.sin(3 * x[:, 0])).predict(np.array([[0.3]])).round(2), machine.solver_
        (array([0.78]), 'cholesky')
    """

    def __init__(
        self,
        kernel: Any = "precomputed",
        *,
        ridge: float = 0.0,
        solver: str | Method = "auto",
        cutoff: float | None = None,
        f0: Callable[[Any], Any] | None = None,
        memory: Memory = None,
    ):
        self.kernel, self.ridge, self.solver = kernel, ridge, solver
        self.cutoff, self.f0, self.memory = cutoff, f0, memory

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, f0: Any = None) -> "KernelRegression":
        """Fits the machine.

        Args:
            X: samples, or their kernel matrix.
            y: targets (n,) or (n, c).
            sample_weight: (n,), not negative; a weight of two counts as the sample twice.
            f0: values of the initial function at X (n,) or (n, c), where it is not given as a function.

        Raises:
            InputError: shapes do not match, or an option is not known.
            NumericalError: the kernel is not symmetric, not finite, or not positive where the solver needs it.
        """
        given = self._accept(X, fitting=True)
        targets, is_flat = regression_targets(y, name=type(self).__name__)
        initial = Initial.of(self.f0, values=f0, precomputed=self._is_precomputed)
        Y = targets - initial.at(given, f0, like=targets)
        weights = sample_weights(sample_weight, n=len(Y), like=Y)
        ridge = check_number(self.ridge, "ridge")
        cutoff = None if self.cutoff is None else check_number(self.cutoff, "cutoff", below=1.0)
        system = System(self._source, given, Y, is_flat, weights, ridge, cutoff, self.memory)
        solved = solve_system(system, self.solver)
        fit, kind = solved.fit, system.features if solved.fit.is_primal else system.gram
        assert kind is not None

        self.solver_, self.reason_ = solved.solver, solved.reason
        self.blocks_, self.n_outputs_ = system.blocks(kind), Y.shape[1]
        self.X_fit_ = None if fit.is_primal or self._is_precomputed else given
        self._roots, self._targets, self._initial = system.roots(kind), system.targets(kind), initial
        # Samples of no weight do not see the fit: their errors need the kernel itself.
        silent = self._roots is not None and not bool((self._roots > 0).all())
        self._unused = (system.Y.reshape(kind.shape[0], -1), kind) if silent else None
        self._is_flat = is_flat
        self._keep(fit)
        if not self.converged_:
            warnings.warn(f"{self.solver_}: {self.message_}", ConvergenceWarning, stacklevel=2)
        return self

    @property
    def dual_coef_(self) -> Any:
        """α (n,) or (n, c) with f = f0 + k(·, X) α, of all solvers but "features" and "normal"."""
        if self._fit.is_primal:
            raise AttributeError(f"solver {self.solver_!r} finds coefficients of features: coef_")
        return self._shaped(self._coefficients.reshape(-1, self.n_outputs_))

    @property
    def coef_(self) -> Any:
        """γ (d,) or (d, c) with f = f0 + φ · γ, of the solvers "features" and "normal"."""
        if not self._fit.is_primal:
            raise AttributeError(f"solver {self.solver_!r} finds coefficients of samples: dual_coef_")
        return self._shaped(self._coefficients)

    def predict(
        self, X: Any, return_std: bool = False, return_cov: bool = False, *, f0: Any = None, prior: Any = None
    ) -> Any:
        """The mean at new samples, with the posterior deviation or covariance of the function where asked for.

        Args:
            X: samples, or their kernel matrix k(Z, X) with the training samples.
            return_std: whether to add √(k(z, z) - k(z, X) (K + ridge W⁻¹)⁻¹ k(X, z)), of the shape of the mean.
            return_cov: whether to add the covariance of all pairs: (m, m), or (m, c, m, c) of a block kernel.
            f0: values of the initial function, where they came with `fit`.
            prior: k(z, z) (m,), or k(Z, Z) for the covariance, where the kernel is precomputed.

        Returns:
            The mean (m,) or (m, c), or a pair of it and the deviation or covariance.

        Raises:
            InputError: shapes do not match, or the prior is missing.
        """
        if return_std and return_cov:
            raise InputError("return_std and return_cov", expected="one of them", got="both")
        Z = self._accept(X, fitting=False)
        mean = self._mean(Z)
        mean = mean + self._initial.at(Z, f0, like=mean)
        if return_cov:
            return self._shaped(mean, X), self._in_kind(self._covariance(Z, prior).to(self._targets.dtype), X)
        if return_std:
            deviations = self._variances(Z, prior).sqrt().reshape(len(mean), -1).expand_as(mean)
            return self._shaped(mean, X), self._shaped(deviations, X)
        return self._shaped(mean, X)

    def leave_one_out(self) -> Any:
        """The errors y_i - f_(-i)(x_i) of fits without sample i, in closed form, of the shape of y.

        Raises:
            InputError: the solver kept no decomposition ("cg", "normal").

        Example:
            >>> import numpy as np
            >>> K = np.array([[2.0, 1.0], [1.0, 2.0]])
            >>> KernelRegression().fit(K, np.array([1.0, 0.0])).leave_one_out()
            array([ 1. , -0.5])
        """
        check_is_fitted(self)
        errors = self._fit.leave_one_out(self._targets, blocks=self.blocks_)
        if self._roots is not None:
            roots = self._roots[:, None]
            errors = (errors / roots).where(roots > 0, self._errors_without_weight())
        return self._shaped(errors.reshape(-1, self.n_outputs_))

    def ridge_path(self, ridges: Iterable[float]) -> list["KernelRegression"]:
        """This machine with other ridges, from the one decomposition of `solver="eigh"` or "features".

        Raises:
            InputError: the solver kept no such decomposition, or a ridge is negative.

        Example:
            >>> import numpy as np
            >>> K = np.diag([1.0, 2.0, 4.0])
            >>> path = KernelRegression(solver="eigh").fit(K, np.ones(3)).ridge_path([0.0, 1.0])
            >>> [machine.predict(K).round(3).tolist() for machine in path]
            [[1.0, 1.0, 1.0], [0.5, 0.667, 0.8]]
        """
        check_is_fitted(self)
        if not isinstance(self._fit, DecomposedFit):
            raise InputError(
                "a ridge path needs a decomposition", expected='solver="eigh" or "features"', got=self.solver_
            )
        return [self._with_ridge(self._fit, check_number(ridge, "ridge")) for ridge in ridges]

    def _strip(self) -> None:
        super()._strip()
        if self._fit.is_primal:
            self.kernel = "features"
        # The decomposition is large, and only deviations and leave-one-out errors need it.
        self._fit = CoefficientsOnly.of(self._fit)
        self._initial, self.f0 = self._initial.as_given(), None
        self._targets, self._roots, self._unused = self._targets[:0], None, None

    def _with_ridge(self, fit: DecomposedFit, ridge: float) -> "KernelRegression":
        machine = copy.copy(self)
        machine.ridge = ridge
        machine._keep(fit.with_ridge(ridge, self._targets))
        return machine

    def _errors_without_weight(self) -> Float[Tensor, "n q"]:
        """y - f(X), which is the leave-one-out error of a sample of no weight; 0 where there is no such sample."""
        if self._unused is None:
            return self._coefficients.new_zeros(1)
        Y, kind = self._unused
        if isinstance(kind, Operator) and kind.dtype != self._coefficients.dtype:
            # Solved in float64, which takes a matrix that fits in memory: its own products are too coarse.
            kind = kind.dense(kind.nbytes).to(self._coefficients)
        return Y.to(self._coefficients) - kind @ self._coefficients

    def _keep(self, fit: Fit) -> None:
        self._fit = fit
        self._coefficients = fit.coefficients if fit.is_primal else weigh(fit.coefficients, self._roots)
        self.residual_, self.converged_ = fit.residual, fit.converged
        self.message_, self.n_iter_ = fit.message, fit.steps

    def _mean(self, Z: Any) -> Float[Tensor, "m c"]:
        if not self._fit.is_primal:
            return self._outputs(Z, self.X_fit_, self._coefficients, self.blocks_)
        bytes_each = len(self._coefficients) * self._coefficients.element_size()
        return torch.cat([self._features(z) @ self._coefficients for z in self._pieces(Z, bytes_each)])

    def _variances(self, Z: Any, prior: Any) -> Float[Tensor, " mc"]:
        """k(z, z) - Aᵀ B, in pieces of samples."""
        bytes_each = 3 * self.blocks_ * len(self._coefficients) * self._coefficients.element_size()
        explained = []
        for z in self._pieces(Z, bytes_each):
            A, B = self._fit.halves(self._columns(z))
            explained.append((A * B).sum(0))
        known = torch.cat(explained)
        before = (self._source.variances(Z) if prior is None else as_tensor(prior, "prior").flatten()).to(
            known
        )
        _check_prior(before, known)
        return (before - known).clamp(min=0)

    def _covariance(self, Z: Any, prior: Any) -> Tensor:
        A, B = self._fit.halves(self._columns(Z))
        known = A.T @ B
        if prior is None and self._is_precomputed:
            self._source.variances(Z)
        before = as_matrix(self._source.gram(Z, memory=self.memory).dense() if prior is None else prior).to(
            known
        )
        _check_prior(before, known)
        covariance = mirrored(before - known)
        b = self.blocks_
        return covariance if b == 1 else covariance.unflatten(1, (-1, b)).unflatten(0, (-1, b))

    def _columns(self, Z: Any) -> Float[Tensor, "n m"]:
        """k̂(X, Z), or the features of Z as columns."""
        if self._fit.is_primal:
            return self._features(Z).T
        k = self._cross(Z, self.X_fit_, self._coefficients)
        return weigh(k.T, self._roots)

    def _shaped(self, values: Float[Tensor, "n c"], X: Any = None) -> Any:
        # A ridge may have asked for a solution in float64; what is given has the dtype of the kernel.
        values = values.to(self._targets.dtype)
        return self._in_kind(values[:, 0] if self._is_flat else values, X)


def _check_prior(before: Tensor, known: Tensor) -> None:
    if before.shape != known.shape:
        raise InputError(
            "bad prior", expected=f"k of the new samples, {tuple(known.shape)}", got=tuple(before.shape)
        )
