"""Falkon: kernel regression on landmarks by conjugate gradients (Rudi, Carratino, Rosasco 2017).

With C = k(X, landmarks) (n, m), M = k(landmarks, landmarks) = Tᵀ T and V the weights of the landmarks, the equations
(Cᵀ W C + ridge M) α = Cᵀ W y have a matrix near Tᵀ (n/m T V Tᵀ + ridge I) T = Tᵀ Aᵀ A T. So with α = T⁻¹ A⁻¹ β

    (A⁻ᵀ T⁻ᵀ Cᵀ W C T⁻¹ A⁻¹ + ridge A⁻ᵀ A⁻¹) β = A⁻ᵀ T⁻ᵀ Cᵀ W y

is well conditioned. All is computed in float64, also where C is held in float32.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.linalg import solve_triangular

from tangentkit.core.errors import NumericalError
from tangentkit.linalg import Operator
from tangentkit.linalg.operators.operator import Memory
from tangentkit.linalg.solvers.factor import Factor, factorize
from tangentkit.linalg.solvers.positivity import not_positive
from tangentkit.machines.solvers.normal_equations import normal_equations, products_of_columns
from tangentkit.machines.solvers.row_strips import Strips

MOST_JITTER = 1e-4
"""Of the mean diagonal of M: what is added to it for the sake of rounding, at most."""


class FalkonOperator(Operator):
    """The matrix of the preconditioned system, by its products.

    Args:
        strips: C.
        T: the upper triangular root of M.
        weights: w, or None for ones.
        landmarks: their indices.
        ridge: above 0.
        memory: the budget; C is in memory if half of it is enough.
    """

    def __init__(
        self,
        strips: Strips,
        T: Float[Tensor, "m m"],
        weights: Float[Tensor, " n"] | None,
        *,
        landmarks: Int[Tensor, " m"],
        ridge: float,
        memory: Memory,
    ) -> None:
        super().__init__(T.shape, dtype=T.dtype, device=T.device, symmetric=True)
        n, m = strips.shape
        inner = products_of_columns((T if weights is None else T * weights[landmarks].sqrt()).T)
        inner.mul_(n / m).diagonal().add_(ridge)
        self.A = _factor(inner, ridge).L.T
        del inner  # freed before C is made
        self.strips, self.root, self.weights, self.ridge = strips.within(memory), T, weights, ridge

    def block(self, rows: slice, cols: slice) -> Float[Tensor, "n m"]:
        """Columns of the matrix, by products with unit vectors."""
        units = torch.eye(self.shape[0], dtype=self.dtype, device=self.device)[:, cols]
        return self._product(units, None)[rows]

    def forward(self, beta: Float[Tensor, "m q"]) -> Float[Tensor, "m q"]:
        """α = T⁻¹ A⁻¹ β."""
        return solve_triangular(self.root, solve_triangular(self.A, beta, upper=True), upper=True)

    def backward(self, v: Float[Tensor, "m q"]) -> Float[Tensor, "m q"]:
        """A⁻ᵀ T⁻ᵀ v."""
        return solve_triangular(self.A.T, solve_triangular(self.root.T, v, upper=False), upper=False)

    def right_hand_side(self, Y: Float[Tensor, "n q"]) -> Float[Tensor, "m q"]:
        """A⁻ᵀ T⁻ᵀ Cᵀ W Y."""
        return self.backward(self.strips.transposed_times(Y, self.weights))

    def _product(self, V: Float[Tensor, "m c"], memory: Memory) -> Float[Tensor, "n c"]:  # noqa: ARG002
        u = solve_triangular(self.A, V, upper=True)
        alpha = solve_triangular(self.root, u, upper=True)
        data = self.backward(self.strips.gram_times(alpha, self.weights))
        return data + self.ridge * solve_triangular(self.A.T, u, upper=False)


def solve_directly(
    strips: Strips,
    Y: Float[Tensor, "n q"],
    T: Float[Tensor, "m m"],
    weights: Float[Tensor, " n"] | None,
    *,
    ridge: float,
) -> Float[Tensor, "m q"]:
    """α = T⁻¹ (T⁻ᵀ Cᵀ W C T⁻¹ + ridge I)⁻¹ T⁻ᵀ Cᵀ W y, from one pass over the strips."""
    # Whitened before they are multiplied: Cᵀ W C whitened afterwards would lose its positivity to rounding.
    whitened = ((rows, solve_triangular(T, strip.to(T), upper=True, left=False)) for rows, strip in strips)
    inner, right = normal_equations(whitened, Y, weights)
    inner.diagonal().add_(ridge)
    return solve_triangular(T, _factor(inner.to(T), ridge).solve(right.to(T)), upper=True)


def _factor(inner: Float[Tensor, "m m"], ridge: float) -> Factor:
    """Of a matrix that a ridge has made positive.

    Raises:
        NumericalError: the ridge is below rounding.
    """
    factor = factorize(inner)
    if factor is None:
        raise not_positive(inner, ridge=None, hint=f"a ridge above {ridge:.3g}, which is below rounding")
    return factor


def upper_root(M: Float[Tensor, "m m"], *, jitter: float) -> Float[Tensor, "m m"]:
    """T with Tᵀ T = M + jitter diag(M), the jitter larger where it must be.

    A landmark has a share of its own k(x, x) added, so that a large one is no ridge for all others.

    Raises:
        NumericalError: M is not positive semi-definite, with its smallest eigenvalue.
    """
    sizes = M.diagonal().clamp_min(0).sqrt()
    sizes = sizes.where(sizes > 0, 1.0)
    factor = factorize(M / sizes / sizes[:, None], least=jitter, most=MOST_JITTER)
    if factor is not None:
        return factor.L.T * sizes
    scale = float(M.diagonal().mean())
    smallest = float(torch.linalg.eigvalsh(M)[0])
    raise NumericalError(
        "the kernel is not positive definite on the landmarks",
        expected=f"a smallest eigenvalue above -{MOST_JITTER:.0e} of the mean diagonal {scale:.3g}",
        got=f"{smallest:.3g}",
        hint=f"a kernel with {-2 * smallest:.3g} more on its diagonal, or another kernel"
        if smallest < 0
        else "a kernel that is not zero on the landmarks",
    )
