"""Eigen: the pseudo-inverse of symmetric systems, singular and indefinite ones included."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from tangentkit.linalg.operators.checks import check_finite
from tangentkit.linalg.operators.operator import Memory, Operator
from tangentkit.linalg.solvers.decomposition import decompose
from tangentkit.linalg.solvers.solution import Method, Solution, relative_residuals


@dataclass(frozen=True)
class Eigen(Method):
    """x = V Λ⁺ Vᵀ y with K = V Λ Vᵀ: of all x that minimize ‖K x - y‖, the shortest.

    Eigenvalues with |λ| <= rtol max |λ| count as zero. The solution says how many are left
    (`details["rank"]`); its residual is the part of y that K cannot reach, so it need not be small.
    """

    rtol: float | None = None
    """The cut-off, relative to the largest |λ|; None takes n ε of the dtype."""
    memory: Memory = None
    """The most bytes the dense form of K may take."""

    def solve(self, K: Operator, Y: Float[Tensor, "n c"], *, ridge: float) -> Solution:
        """Solves (K + ridge I) X = Y in the least squares sense."""
        shifted = K.shift(ridge) if ridge else K
        matrix = shifted.dense(self.memory)
        check_finite(matrix, "kernel matrix")
        parts, n = decompose(matrix, cutoff=self.rtol).at(0.0), len(matrix)
        X = parts.dual(Y, ridge=0.0)

        residuals = relative_residuals(shifted, X, Y)
        rank, cutoff, residual = len(parts.values), parts.zero, float(residuals.max())
        message = f"solved on {rank} of {n} eigenvectors"
        if rank < n:
            message += (
                f" (|λ| > {cutoff:.3g}); the residual {residual:.1e} is the part of y outside their span"
            )
        details = {"rank": rank, "cutoff": cutoff, "residuals": residuals}
        return Solution(X, True, residual, 0, message, details)
