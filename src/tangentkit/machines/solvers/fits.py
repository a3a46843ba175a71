"""Fits: the ways to solve a kernel regression, each with what can be asked of it afterwards.

All work on the weighted system (K̂ + ridge I) α̂ = ŷ with K̂ = W^(1/2) K W^(1/2), ŷ = W^(1/2) y; the coefficients are
then α = W^(1/2) α̂. With features, K̂ = Φ̂ Φ̂ᵀ and Φ̂ = W^(1/2) Φ, the unknowns are γ = Φ̂ᵀ α̂ instead.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float
from torch import Tensor

from tangentkit.core.errors import InputError, NumericalError
from tangentkit.linalg import Cholesky, Eigen, Operator
from tangentkit.linalg.operators.checks import below_zero, rounding
from tangentkit.linalg.operators.operator import Memory, TransformedOperator
from tangentkit.linalg.solvers.decomposition import (
    Decomposition,
    Eigenpairs,
    decompose,
    decompose_features,
    largest_ratio,
)
from tangentkit.linalg.solvers.factor import Factor, factorize
from tangentkit.linalg.solvers.positivity import judged_by_products, not_positive
from tangentkit.linalg.solvers.precision import in_working_precision
from tangentkit.linalg.solvers.solution import Method, relative_residuals
from tangentkit.machines.solvers.normal_equations import (
    covers_rounding,
    in_strips,
    normal_equations,
    residual,
)

CORRECTIONS = 10
"""Of normal equations that were summed in float32 under a ridge that covers it, at most: two or three do, mostly."""


@dataclass(frozen=True)
class Fit(ABC):
    """A solved kernel regression."""

    coefficients: Float[Tensor, "n q"]
    """α̂ of the samples, or γ of the features where `is_primal`."""
    ridge: float
    residual: float
    """‖(K̂ + ridge I) α̂ - ŷ‖ / ‖ŷ‖; of features ‖Φ̂ γ - ŷ‖ / ‖ŷ‖."""
    message: str
    """What the solver has to say."""
    converged: bool = field(default=True, kw_only=True)
    steps: int = field(default=0, kw_only=True)

    is_primal = False

    @abstractmethod
    def halves(self, k: Float[Tensor, "n m"]) -> tuple[Float[Tensor, "r m"], Float[Tensor, "r m"]]:
        """A and B with Aᵀ B = k̂ᵀ (K̂ + ridge I)⁺ k̂, what the training samples explain of the prior covariance.

        Args:
            k: k̂(X, Z), weighted; of a primal fit the features of Z as columns.
        """

    def leave_one_out(self, Y: Float[Tensor, "nc q"], *, blocks: int) -> Float[Tensor, "nc q"]:  # noqa: ARG002
        """The weighted errors ŷ_i - √w_i f_(-i)(x_i) of fits without sample i, without fitting again."""
        raise InputError(
            "no leave-one-out errors",
            expected="a solver that keeps a decomposition",
            got=type(self).__name__,
            hint='solver="cholesky", "eigh", or "features"',
        )


@dataclass(frozen=True)
class CholeskyFit(Fit):
    """K̂ + ridge I = L Lᵀ."""

    factor: Factor

    def halves(self, k: Float[Tensor, "n m"]) -> tuple[Tensor, Tensor]:
        """L⁻¹ k̂, twice."""
        half = self.factor.whiten(k)
        return half, half

    def leave_one_out(self, Y: Float[Tensor, "nc q"], *, blocks: int) -> Float[Tensor, "nc q"]:  # noqa: ARG002
        """α̂_i / (K̂ + ridge I)⁻¹_ii."""
        inverse = self.factor.inverse()
        n = len(inverse) // blocks
        M = inverse.view(n, blocks, n, blocks).diagonal(dim1=0, dim2=2).permute(2, 0, 1)
        return torch.linalg.solve(M, self.coefficients.unflatten(0, (n, blocks))).flatten(0, 1)


@dataclass(frozen=True)
class DecomposedFit(Fit):
    """K̂ = U diag(λ) Uᵀ, eigenvalues up to a cut-off left out: the fit of least norm."""

    parts: Decomposition
    pairs: Eigenpairs | None = None
    """All eigenpairs of K̂, where there was a K̂ to decompose."""

    def halves(self, k: Float[Tensor, "n m"]) -> tuple[Tensor, Tensor]:
        """(λ + ridge)^(-1/2) Uᵀ k̂, with signs where an eigenvalue is negative."""
        half = self.parts.vectors.T @ k
        gains = self.parts.gains(self.ridge)[:, None]
        if not self.parts.reaches_beyond(self.ridge):
            return half, gains * half
        outside = k - self.parts.vectors @ half
        return torch.cat([half, k]), torch.cat([gains * half, outside / self.ridge])

    def leave_one_out(self, Y: Float[Tensor, "nc q"], *, blocks: int) -> Float[Tensor, "nc q"]:
        """The leave-one-out predictions, read off the decomposition."""
        return self.parts.leave_one_out(Y, ridge=self.ridge, blocks=blocks)

    def with_ridge(self, ridge: float, Y: Float[Tensor, "n q"]) -> "DecomposedFit":
        """The fit with another ridge, from the same decomposition."""
        parts = self.parts if self.pairs is None else self.pairs.at(ridge)
        solve = parts.primal if self.is_primal else parts.dual
        # Of the samples' equations only what lies outside the eigenvectors is left, and with a ridge nothing.
        residual = (
            parts.misfit(Y, ridge=ridge)
            if self.is_primal
            else parts.misfit(Y, ridge=0.0) * (not parts.reaches_beyond(ridge))
        )
        coefficients = solve(Y.to(parts.vectors), ridge=ridge).to(self.coefficients)
        return replace(self, coefficients=coefficients, ridge=ridge, residual=residual, parts=parts)


@dataclass(frozen=True)
class FeaturesFit(DecomposedFit):
    """Φ̂ = U diag(s) Vᵀ: least squares on features, in which no condition number is squared."""

    is_primal = True

    def halves(self, k: Float[Tensor, "d m"]) -> tuple[Tensor, Tensor]:
        """√(s² / (s² + ridge)) Vᵀ φ, twice."""
        assert self.parts.directions is not None
        shares = self.parts.values * self.parts.gains(self.ridge)
        half = (shares.sqrt()[:, None] * (self.parts.directions.T @ k.to(shares))).to(k)
        return half, half


@dataclass(frozen=True)
class NormalFit(Fit):
    """Φ̂ᵀ Φ̂ + ridge I = L Lᵀ, summed over blocks of samples: for more samples than fit twice."""

    factor: Factor

    is_primal = True

    def halves(self, k: Float[Tensor, "d m"]) -> tuple[Tensor, Tensor]:
        """φ and φ - ridge (L Lᵀ)⁻¹ φ."""
        return k, k - self.ridge * self.factor.solve(k.to(self.factor.L)).to(k)


@dataclass(frozen=True)
class IterativeFit(Fit):
    """A fit by products with K̂ alone."""

    operator: Operator
    method: Method

    def halves(self, k: Float[Tensor, "n m"]) -> tuple[Tensor, Tensor]:
        """k̂ and (K̂ + ridge I)⁻¹ k̂, by another run of the method.

        Raises:
            NumericalError: it did not converge.
        """
        solution = self.method.solve(self.operator, k, ridge=self.ridge)
        if not solution.converged:
            raise NumericalError(f"no posterior variance: {solution.message}")
        return k, solution.value


@dataclass(frozen=True)
class CoefficientsOnly(Fit):
    """A fit of which nothing but the coefficients was kept."""

    is_primal: bool  # pyright: ignore[reportIncompatibleVariableOverride]

    @classmethod
    def of(cls, fit: Fit) -> "CoefficientsOnly":
        """What is left of a fit."""
        return cls(
            fit.coefficients,
            fit.ridge,
            fit.residual,
            fit.message,
            fit.is_primal,
            converged=fit.converged,
            steps=fit.steps,
        )

    def halves(self, k: Float[Tensor, "n m"]) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """Not to be had.

        Raises:
            InputError: always.
        """
        raise InputError(
            "a portable machine kept no decomposition",
            expected="predictions without deviations",
            hint="the machine it came from",
        )


class WeightedOperator(TransformedOperator):
    """diag(r) K diag(r) of an operator K.

    Args:
        base: K.
        roots: r.
    """

    def __init__(self, base: Operator, roots: Float[Tensor, " n"]) -> None:
        super().__init__(base)
        self.roots = roots

    def block(self, rows: slice, cols: slice) -> Float[Tensor, "n m"]:
        """The block of the base, weighted."""
        return self.roots[rows, None] * self.base.block(rows, cols) * self.roots[cols]

    def _product(self, V: Float[Tensor, "m c"], memory: Memory) -> Float[Tensor, "n c"]:
        return self.roots[:, None] * self.base.product(self.roots[:, None] * V, memory=memory)

    def _diagonal(self, memory: Memory) -> Float[Tensor, " r"]:
        return self.roots.square() * self.base.diagonal(memory=memory)


def fit_cholesky(K: Operator, Y: Float[Tensor, "n q"], *, ridge: float, method: Cholesky) -> CholeskyFit:
    """By Cholesky, with as much jitter and memory as the method allows.

    Raises:
        NumericalError: K + ridge I is not positive definite; with the smallest eigenvalue and a ridge that would do.
        BudgetError: K is beyond the memory budget.
    """
    fit = attempt_cholesky(K, Y, ridge=ridge, method=method)
    if fit is None:
        raise not_positive(K.dense(K.nbytes), ridge=ridge, hint='solver="eigh" for the pseudo-inverse')
    return fit


def attempt_cholesky(
    K: Operator, Y: Float[Tensor, "n q"], *, ridge: float, method: Cholesky
) -> CholeskyFit | None:
    """By Cholesky, or None where K + ridge I is not positive definite to working precision."""
    shifted = K.shift(ridge) if ridge else K
    factor = method.factorize(shifted.dense(method.memory))
    if factor is None:
        return None
    alpha, jitter = factor.solve(Y), factor.jitter
    residual = float(relative_residuals(shifted, alpha, Y).max())
    # The method is stable: a residual that can be seen tells of the matrix. A NaN is no convergence.
    converged = residual <= rounding(Y.dtype) ** 0.5
    trouble = (
        "" if converged else ", but K is singular to working precision; try a ridge, float64 or solver='eigh'"
    )
    added = f" with a jitter of {jitter:.3g} on the diagonal" if jitter else ""
    return CholeskyFit(
        alpha, ridge, residual, f"residual {residual:.1e}{added}{trouble}", factor, converged=converged
    )


def fit_eigen(K: Operator, Y: Float[Tensor, "n q"], *, ridge: float, method: Eigen) -> DecomposedFit:
    """By the pseudo-inverse: of all fits with the least residual, the one of least norm.

    K may have been computed in another precision than it has: without a cut-off of the caller's its eigenvalues below
    zero tell how far rounding goes.

    Raises:
        BudgetError: K is beyond the memory budget.
    """
    matrix = K.dense(method.memory)
    # A ridge may be far above the rounding of a matrix in float32 and far below that of its eigenvalues.
    double = in_working_precision(matrix) if ridge else matrix
    pairs = decompose(double, cutoff=method.rtol, made_in=matrix.dtype)
    if method.rtol is None:
        pairs = pairs.of_positive(below_zero(matrix.dtype))
    parts, shifted = pairs.at(ridge), K.shift(ridge) if ridge else K
    alpha = parts.dual(Y.to(double), ridge=ridge)
    residual = float(relative_residuals(shifted, alpha.to(Y), Y).max())
    message = f"solved on {len(parts.values)} of {K.shape[0]} eigenvectors"
    if 0 < pairs.zero == 2 * pairs.below:
        message += f"; eigenvalues of {-pairs.below:.1e} show its rounding, and up to twice as far they count as zero"
    if 0 < ridge <= parts.zero:
        message += f"; ridge={ridge:g} counts as none, being below what may be rounding, {parts.zero:.2g}"
    return DecomposedFit(alpha, ridge, residual, message, parts, pairs)


def fit_features(
    Phi: Float[Tensor, "n d"], Y: Float[Tensor, "n q"], *, ridge: float, cutoff: float | None
) -> FeaturesFit:
    """By QR and SVD of the features."""
    parts = decompose_features(Phi, cutoff=cutoff)
    gamma = parts.primal(Y, ridge=ridge).to(Phi)
    used = int((parts.gains(ridge) != 0).sum())
    message = f"solved on {used} of {min(Phi.shape)} singular vectors"
    return FeaturesFit(gamma, ridge, largest_ratio(Phi @ gamma - Y, Y), message, parts)


def fit_normal(
    Phi: Float[Tensor, "n d"], Y: Float[Tensor, "n q"], *, ridge: float, weights: Float[Tensor, " n"] | None
) -> NormalFit:
    """By the normal equations, summed in float64 over blocks of samples; Φ is not copied.

    Raises:
        NumericalError: Φᵀ Φ + ridge I is singular to working precision.
    """
    double = in_working_precision(Phi[:0]).dtype
    is_rough = Phi.dtype != double and covers_rounding(ridge, Phi, Phi.dtype)
    A, B = normal_equations(in_strips(Phi, dtype=Phi.dtype if is_rough else double), Y, weights)
    A.diagonal().add_(ridge)  # in place: it may be large
    factor = factorize(A)
    if factor is None:
        A.diagonal().sub_(ridge)
        raise not_positive(A, ridge=ridge, hint='solver="features" for the pseudo-inverse')
    del A
    gamma = factor.solve(B)
    for _ in range(CORRECTIONS if is_rough else 0):
        change = factor.solve(residual(Phi, Y, gamma, ridge=ridge, weights=weights)[0])
        gamma += change
        if largest_ratio(change, gamma) <= torch.finfo(Phi.dtype).eps:
            break
    gamma = gamma.to(Phi)
    # What is judged is what is kept, against the equations themselves and not their factor.
    left, squares = residual(Phi, Y, gamma.to(factor.L), ridge=ridge, weights=weights)
    error, misfit = largest_ratio(left, B), _share(squares, Y, weights)
    converged = error <= rounding(Phi.dtype)
    trouble = "" if converged else "; they are too ill conditioned; try a larger ridge, or solver='features'"
    message = f"solved {Phi.shape[1]} normal equations, residual {error:.1e}{trouble}"
    return NormalFit(gamma, ridge, misfit, message, factor, converged=converged)


def _share(
    squares: Float[Tensor, " q"], Y: Float[Tensor, "n q"], weights: Float[Tensor, " n"] | None
) -> float:
    """√(Σ w e² / Σ w y²) of the column where it is largest."""
    Y = in_working_precision(Y)
    sizes = (Y.square() if weights is None else weights[:, None].to(Y) * Y.square()).sum(0)
    return float((squares / sizes.where(sizes > 0, 1.0)).sqrt().max())


def fit_iteratively(K: Operator, Y: Float[Tensor, "n q"], *, ridge: float, method: Method) -> IterativeFit:
    """By a method that needs products only, such as conjugate gradients.

    Raises:
        NumericalError: K + ridge I has a negative eigenvalue, so that the method found nothing.
    """
    solution = method.solve(K, Y, ridge=ridge)
    verdict = "" if solution.converged else judged_by_products(K, ridge=ridge)
    return IterativeFit(
        solution.value,
        ridge,
        solution.residual,
        solution.message + verdict,
        K,
        method,
        converged=solution.converged,
        steps=solution.steps,
    )
