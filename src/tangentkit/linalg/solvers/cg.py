"""CG: preconditioned conjugate gradients, for positive definite systems of any size."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tangentkit.core.errors import InputError
from tangentkit.core.text import counted
from tangentkit.linalg.operators.checks import check_finite, rounding
from tangentkit.linalg.operators.matrices import in_memory
from tangentkit.linalg.operators.operator import Memory, Operator
from tangentkit.linalg.solvers.preconditioners import Preconditioner
from tangentkit.linalg.solvers.solution import Method, Solution, relative_residuals

MARGIN = 0.5
"""The share of the tolerance that the recurrence aims at, since its residual drifts from the true one."""


@dataclass(frozen=True)
class CG(Method):
    """Conjugate gradients: one product with K a step, all right-hand sides at once, each to its own end.

    The residual that is reported and judged is the true one, computed from the solution; the recurrence's own
    drifts away from it by rounding.
    """

    rtol: float | None = None
    """‖K x - y‖ / ‖y‖ to reach for every column; None takes √ε of the dtype."""
    max_steps: int = 1000
    """The most steps in all."""
    preconditioner: Preconditioner | None = None
    """`Nystrom(rank, key)`, `PivotedCholesky(rank)`, or none."""
    memory: Memory = None
    """A matrix within this budget is held, so that it is read once and not at every step."""

    def __post_init__(self) -> None:
        if self.rtol is not None and not self.rtol > 0:
            raise InputError("bad tolerance", expected="rtol > 0", got=self.rtol)
        if self.max_steps < 0:
            raise InputError("bad number of steps", expected="max_steps >= 0", got=self.max_steps)

    def solve(self, K: Operator, Y: Float[Tensor, "n c"], *, ridge: float) -> Solution:
        """Solves (K + ridge I) X = Y.

        Raises:
            NumericalError: a product with K is not finite.
        """
        K = in_memory(K, self.memory)
        precondition = self.preconditioner.prepare(K, ridge=ridge) if self.preconditioner else torch.clone
        A = K.shift(ridge) if ridge else K
        rtol = rounding(K.dtype) if self.rtol is None else self.rtol
        X, steps, indefinite = _iterate(
            A, Y, precondition, target=MARGIN * rtol * Y.norm(dim=0), max_steps=self.max_steps
        )
        residuals = relative_residuals(A, X, Y)
        residual, taken = float(residuals.max()), int(steps.max())
        details = {"residuals": residuals, "converged": residuals <= rtol, "steps": steps}
        if residual <= rtol:
            return Solution(X, True, residual, taken, f"converged in {counted(taken, 'step')}", details)
        cause = _cause(indefinite=bool(indefinite.any()), out_of_steps=taken >= self.max_steps)
        missed = f"residual {residual:.1e}, wanted {rtol:.1e}"
        message = f"not converged after {counted(taken, 'step')} ({missed}): {cause}"
        return Solution(X, False, residual, taken, message, details)


def _iterate(
    A: Operator,
    R: Float[Tensor, "n c"],
    precondition: Callable[[Tensor], Tensor],
    *,
    target: Float[Tensor, " c"],
    max_steps: int,
) -> tuple[Float[Tensor, "n c"], Int[Tensor, " c"], Bool[Tensor, " c"]]:
    """Steps from zero towards A X = R until ‖r‖ <= target in every column.

    Returns:
        X, the steps that each column took, and which met a direction p with pᵀ A p <= 0.
    """
    X, R = torch.zeros_like(R), R.clone()
    P = precondition(R)
    rho = (R * P).sum(0)
    steps = torch.zeros_like(rho, dtype=torch.long)
    indefinite = torch.zeros_like(rho, dtype=torch.bool)
    for _ in range(max_steps):
        live = (R.norm(dim=0) > target) & ~indefinite
        if not live.any():
            break
        p = P[:, live]
        Ap = A @ p
        curvature = (p * Ap).sum(0)
        check_finite(curvature, "product with the operator")
        indefinite[live] = curvature <= 0
        alpha = (rho[live] / curvature).where(curvature > 0, 0.0)
        X[:, live] += alpha * p
        R[:, live] -= alpha * Ap
        z = precondition(R[:, live])
        rho_next = (R[:, live] * z).sum(0)
        P[:, live] = z + rho_next / rho[live] * p
        rho[live] = rho_next
        steps[live] += 1
    return X, steps, indefinite


def _cause(*, indefinite: bool, out_of_steps: bool) -> str:
    if indefinite:
        return (
            "K is not positive definite, or not to working precision; try a larger ridge, or method=Eigen()"
        )
    if out_of_steps:
        return "K is ill conditioned; try a ridge, preconditioner=Nystrom(rank, key), or more max_steps"
    return "rounding stops the progress; try float64, a ridge, or a larger rtol"
