"""Normal equations Φᵀ W Φ and Φᵀ W Y of tall features, in one pass over strips of rows."""

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor

ROWS = 16384
"""Samples of one product: few enough for sums in float32 to keep their digits."""


def normal_equations(
    strips: Iterable[tuple[slice, Float[Tensor, "b d"]]],
    Y: Float[Tensor, "n q"],
    weights: Float[Tensor, " n"] | None,
) -> tuple[Float[Tensor, "d d"], Float[Tensor, "d q"]]:
    """Φᵀ W Φ and Φᵀ W Y, summed in float64 over strips of rows of Φ."""
    A = B = torch.zeros(())
    for rows, phi in strips:
        y = Y[rows].to(phi)
        if weights is not None:
            roots = weights[rows, None].to(phi).sqrt()
            phi, y = roots * phi, roots * y
        a, b = products_of_columns(phi), phi.T @ y
        A, B = (A.add_(a), B.add_(b)) if A.ndim else (a.double(), b.double())
    return A, B


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
