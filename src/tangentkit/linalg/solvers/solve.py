"""Linear systems: one verb, the method as an argument."""

from dataclasses import dataclass, replace
from typing import Any

from jaxtyping import Float
from torch import Tensor

from tangentkit.core.errors import InputError
from tangentkit.core.memory import memory_budget
from tangentkit.core.seeds import Key
from tangentkit.linalg.operators.checks import check_finite, check_symmetric
from tangentkit.linalg.operators.matrices import as_operator, as_tensor
from tangentkit.linalg.operators.operator import Memory, Operator
from tangentkit.linalg.solvers.cg import CG
from tangentkit.linalg.solvers.cholesky import Cholesky
from tangentkit.linalg.solvers.preconditioners import Nystrom
from tangentkit.linalg.solvers.solution import Method, Solution


@dataclass(frozen=True)
class Auto(Method):
    """Cholesky where three matrices of K's size fit the budget, else conjugate gradients with Nyström."""

    memory: Memory = None
    """The budget; None takes a share of what is free."""

    def choose(self, K: Operator) -> Method:
        """The method for an operator."""
        if memory_budget(self.memory, device=K.device).holds(K.nbytes, copies=3):
            return Cholesky(memory=K.nbytes)
        return CG(preconditioner=Nystrom(rank=100, key=Key(0)), memory=self.memory)

    def solve(self, K: Operator, Y: Float[Tensor, "n c"], *, ridge: float) -> Solution:
        """Solves (K + ridge I) X = Y by the chosen method."""
        return self.choose(K).solve(K, Y, ridge=ridge)


AUTO = Auto()


def solve(K: Any, y: Any, *, ridge: float = 0.0, method: Method = AUTO) -> Solution:
    """Solves (K + ridge I) x = y for a symmetric K.

    A method that does not converge says so in the solution; it does not raise.

    Args:
        K: an operator, a tensor or an array (n, n).
        y: right-hand sides (n,) or (n, c), of the dtype of K.
        ridge: the number added to the diagonal.
        method: `Cholesky()`, `Eigen()`, `CG()`, or `Auto()`, which picks by size.

    Returns:
        The solution, with its true residual and what the method has to say.

    Raises:
        InputError: shapes, dtypes or devices do not match, or the ridge is negative.
        NumericalError: K is not symmetric, not finite, or not positive where the method needs it.

    Example:
        >>> import torch
        >>> K = torch.tensor([[2.0, 1.0], [1.0, 2.0]], dtype=torch.float64)
        >>> solution = solve(K, torch.tensor([3.0, 0.0], dtype=torch.float64))
        >>> solution.value, solution.message
        (tensor([ 2.0000, -1.0000], dtype=torch.float64), 'solved without jitter')
    """
    K, y = as_operator(K), as_tensor(y, "right-hand side")
    if y.ndim not in (1, 2) or y.shape[0] != K.shape[0] or not y.numel():
        n = K.shape[0]
        raise InputError("bad right-hand side", expected=f"shape ({n},) or ({n}, c)", got=tuple(y.shape))
    if not 0 <= ridge < float("inf"):
        raise InputError("bad ridge", expected="a finite number >= 0", got=ridge)
    K.check_same_kind(y, "right-hand side")
    check_finite(y, "right-hand side")
    check_symmetric(K)
    solution = method.solve(K, y if y.ndim == 2 else y[:, None], ridge=float(ridge))
    return replace(solution, value=solution.value.reshape(y.shape))
