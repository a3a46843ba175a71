"""Normal equations (Φᵀ W Φ + ridge I) γ = Φᵀ W Y of tall features, in one pass over strips of rows.

Sums over strips are in float64. A strip is multiplied in float64 as well, but for features in float32 with a ridge
that covers their rounding: then in float32, at half the cost, and what that loses is put right by residuals in
float64.
"""

from collections.abc import Iterable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from tangentkit.linalg.operators.spans import spans

ROWS = 16384
"""Samples of one product."""
CACHED = 2**19
"""Numbers of a strip that stays in the cache while it is turned to float64 and used twice."""


def normal_equations(
    strips: Iterable[tuple[slice, Float[Tensor, "b d"]]],
    Y: Float[Tensor, "n q"],
    weights: Float[Tensor, " n"] | None,
) -> tuple[Float[Tensor, "d d"], Float[Tensor, "d q"]]:
    """Φᵀ W Φ and Φᵀ W Y, summed in float64 over strips of rows of Φ, which are multiplied in their own dtype."""
    A = B = torch.zeros(())
    for rows, phi in strips:
        y = Y[rows].to(phi)
        if weights is not None:
            roots = weights[rows, None].to(phi).sqrt()
            phi, y = roots * phi, roots * y
        a, b = products_of_columns(phi), phi.T @ y
        A, B = (A.add_(a), B.add_(b)) if A.ndim else (a.double(), b.double())
    return A, B


def covers_rounding(ridge: float, Phi: Float[Tensor, "n d"], dtype: torch.dtype) -> bool:
    """Whether rounding of Φᵀ Φ in a dtype is below the ridge: then its larger condition number costs little."""
    return ridge >= torch.finfo(dtype).eps * float(Phi.norm()) ** 2


def in_strips(
    Phi: Float[Tensor, "n d"], *, dtype: torch.dtype, rows: int = ROWS
) -> Iterator[tuple[slice, Float[Tensor, "b d"]]]:
    """Φ in strips of rows, in a dtype."""
    return ((span, Phi[span].to(dtype)) for span in spans(len(Phi), rows))


def residual(
    Phi: Float[Tensor, "n d"],
    Y: Float[Tensor, "n q"],
    gamma: Float[Tensor, "d q"],
    *,
    ridge: float,
    weights: Float[Tensor, " n"] | None,
) -> tuple[Float[Tensor, "d q"], Float[Tensor, " q"]]:
    """Φᵀ W (Y - Φ γ) - ridge γ and Σ w (y - Φ γ)² of every column, in the dtype of γ."""
    left, squares = -ridge * gamma, gamma.new_zeros(gamma.shape[1])
    for rows, phi in in_strips(Phi, dtype=gamma.dtype, rows=max(1, CACHED // Phi.shape[1])):
        errors = Y[rows].to(gamma) - phi @ gamma
        weighted = errors if weights is None else weights[rows, None].to(gamma) * errors
        left += phi.T @ weighted
        squares += (weighted * errors).sum(0)
    return left, squares


def products_of_columns(phi: Float[Tensor, "n d"]) -> Float[Tensor, "d d"]:
    """φᵀ φ.

    Example:
        >>> products_of_columns(torch.tensor([[1.0, 2.0], [0.0, 3.0]]))
        tensor([[ 1.,  2.],
                [ 2., 13.]])
    """
    if phi.device.type != "cpu":
        return phi.T @ phi
    # numpy sees that both factors are one matrix, and lets BLAS compute one triangle; torch does not.
    rows = phi.detach().numpy()
    return torch.from_numpy(rows.T @ rows)
