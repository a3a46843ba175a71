"""Cholesky: the direct solver of positive definite systems."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from tangentkit.linalg.operators.checks import check_finite, rounding
from tangentkit.linalg.operators.operator import Memory, Operator
from tangentkit.linalg.solvers.factor import Factor, factorize
from tangentkit.linalg.solvers.positivity import not_positive
from tangentkit.linalg.solvers.solution import Method, Solution, relative_residuals


@dataclass(frozen=True)
class Cholesky(Method):
    """x = L⁻ᵀ L⁻¹ y with K = L Lᵀ, for positive definite K that fit in memory.

    Where rounding makes K lose positivity, a growing jitter is added to the diagonal. The solution says how
    much (`details["jitter"]`), and its residual is that of the system without jitter.
    """

    max_jitter: float | None = None
    """The largest jitter, relative to the mean of the diagonal; None takes √ε of the dtype, 0 forbids it."""
    memory: Memory = None
    """The most bytes the dense form of K may take."""

    def solve(self, K: Operator, Y: Float[Tensor, "n c"], *, ridge: float) -> Solution:
        """Solves (K + ridge I) X = Y.

        Raises:
            NumericalError: K + ridge I is not positive definite; with the smallest eigenvalue and a ridge
                that would do.
        """
        shifted = K.shift(ridge) if ridge else K
        matrix = shifted.dense(self.memory)
        check_finite(matrix, "kernel matrix")
        found = self.factorize(matrix)
        if found is None:
            raise not_positive(K.dense(K.nbytes), ridge=ridge, hint="method=Eigen() for the pseudo-inverse")
        return _solution(shifted, Y, found.solve(Y), found.jitter)

    def factorize(self, matrix: Float[Tensor, "n n"]) -> Factor | None:
        """The factor, or None where no jitter that is allowed makes the matrix positive definite."""
        return factorize(matrix, most=rounding(matrix.dtype) if self.max_jitter is None else self.max_jitter)


def _solution(K: Operator, Y: Tensor, X: Tensor, jitter: float) -> Solution:
    residuals = relative_residuals(K, X, Y)
    residual = float(residuals.max())
    # Not `residual > ...`: a NaN is no convergence.
    converged = residual <= rounding(Y.dtype)
    message = f"solved with a jitter of {jitter:.3g} on the diagonal" if jitter else "solved without jitter"
    if not converged:
        message += (
            f", but the residual is {residual:.1e}: K is singular to working precision; "
            "try a ridge, float64, or method=Eigen()"
        )
    return Solution(X, converged, residual, 0, message, {"jitter": jitter, "residuals": residuals})
