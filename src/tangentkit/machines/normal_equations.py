"""Normal equations Φᵀ W Φ and Φᵀ W Y of tall features, in one pass over strips of rows."""

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor

from tangentkit.linalg.spans import spans

ROWS, COLUMNS = 16384, 1024
"""Samples and columns of one product: half of a symmetric matrix, at the speed of large products."""


def normal_equations(
    strips: Iterable[tuple[slice, Float[Tensor, "b d"]]],
    Y: Float[Tensor, "n q"],
    weights: Float[Tensor, " n"] | None,
) -> tuple[Float[Tensor, "d d"], Float[Tensor, "d q"]]:
    """Φᵀ W Φ and Φᵀ W Y, summed in float64 over strips of rows of Φ; of the first one triangle is computed."""
    A = B = torch.zeros(())
    for rows, phi in strips:
        if not A.ndim:
            d = phi.shape[1]
            A, B = (torch.zeros(d, q, dtype=torch.float64, device=phi.device) for q in (d, Y.shape[1]))
        y = Y[rows].to(phi)
        if weights is not None:
            roots = weights[rows, None].to(phi).sqrt()
            phi, y = roots * phi, roots * y
        for cols in spans(len(A), COLUMNS):
            A[cols, cols] += _gram(phi[:, cols])
            if cols.stop < len(A):
                A[cols, cols.stop :] += phi[:, cols].T @ phi[:, cols.stop :]
        B += phi.T @ y
    # Below the diagonal stands what is above it.
    return A.triu_().add_(A.triu(1).T), B


def _gram(phi: Float[Tensor, "n d"]) -> Float[Tensor, "d d"]:
    """φᵀ φ."""
    # numpy sees that both factors are one matrix, and lets BLAS compute one triangle; torch does not.
    if phi.device.type != "cpu":
        return phi.T @ phi
    array = phi.detach().numpy()
    return torch.from_numpy(array.T @ array)
