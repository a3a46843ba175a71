"""Cholesky: the direct solver of positive definite systems."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from tangentkit.core.errors import NumericalError
from tangentkit.linalg.checks import check_finite, rounding
from tangentkit.linalg.operator import Memory, Operator
from tangentkit.linalg.solution import Method, Solution, relative_residuals


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
        found = self.factor(matrix)
        if found is None:
            raise _not_positive(matrix, ridge)
        factor, jitter = found
        return _solution(shifted, Y, torch.cholesky_solve(Y, factor), jitter)

    def factor(self, matrix: Float[Tensor, "n n"]) -> tuple[Float[Tensor, "n n"], float] | None:
        """L and the jitter that made the matrix positive definite, or None where none that is allowed did."""
        scale = float(matrix.diagonal().mean())
        for relative in self._jitters(matrix.dtype):
            jitter = relative * scale
            factor, failed = torch.linalg.cholesky_ex(_add_to_diagonal(matrix, jitter) if jitter else matrix)
            if not failed:
                return factor, jitter
        return None

    def _jitters(self, dtype: torch.dtype) -> Iterator[float]:
        largest = rounding(dtype) if self.max_jitter is None else self.max_jitter
        yield 0.0
        jitter = 10 * torch.finfo(dtype).eps
        while jitter < largest:
            yield jitter
            jitter *= 10
        if largest > 0:
            yield largest


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


def _not_positive(matrix: Tensor, ridge: float) -> NumericalError:
    values = torch.linalg.eigvalsh(matrix)
    smallest, size = float(values[0]), float(values.abs().max())
    enough = ridge + 2 * max(-smallest, 0.0) + 10 * len(values) * torch.finfo(matrix.dtype).eps * size
    return NumericalError(
        "the kernel matrix is not positive definite",
        expected="a smallest eigenvalue above 0",
        got=f"{smallest:.3g}" + (f" with ridge={ridge:.3g}" if ridge else "") + f" (largest {size:.3g})",
        hint=f"ridge={enough:.3g}, or method=Eigen() for the pseudo-inverse",
    )


def _add_to_diagonal(matrix: Tensor, number: float) -> Tensor:
    out = matrix.clone()
    out.diagonal().add_(number)
    return out
