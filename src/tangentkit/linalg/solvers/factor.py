"""The Cholesky factor of a positive matrix, with as much jitter as rounding needs: one policy for all."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

GROWTH = 10.0
"""The factor from one jitter to the next."""
TRIES = 12
"""How often a shift may grow."""


@dataclass(frozen=True)
class Factor:
    """L with L Lᵀ = M + jitter I.

    Example:
        >>> M = torch.tensor([[4.0, 2.0], [2.0, 2.0]])
        >>> factor = factorize(M)
        >>> factor.L, factor.jitter
        (tensor([[2., 0.],
                [1., 1.]]), 0.0)
        >>> torch.allclose(M @ factor.solve(torch.ones(2, 1)), torch.ones(2, 1))
        True
    """

    L: Float[Tensor, "n n"]
    jitter: float

    def solve(self, Y: Float[Tensor, "n q"]) -> Float[Tensor, "n q"]:
        """(L Lᵀ)⁻¹ Y."""
        return torch.cholesky_solve(Y, self.L)

    def whiten(self, Y: Float[Tensor, "n q"]) -> Float[Tensor, "n q"]:
        """L⁻¹ Y."""
        return torch.linalg.solve_triangular(self.L, Y, upper=False)

    def inverse(self) -> Float[Tensor, "n n"]:
        """(L Lᵀ)⁻¹."""
        return torch.cholesky_inverse(self.L)


def factorize(matrix: Float[Tensor, "n n"], *, least: float = 0.0, most: float = 0.0) -> Factor | None:
    """The factor of a symmetric matrix; None where no jitter that is allowed makes it positive definite.

    Args:
        matrix: its lower triangle is read.
        least: the jitter that is tried first, relative to the mean of the diagonal.
        most: the largest; between them it grows by tens, from ten roundings on.
    """
    scale = float(matrix.diagonal().mean())
    for relative in _jitters(least, most, torch.finfo(matrix.dtype).eps):
        jitter = relative * scale
        shifted = matrix.diagonal_scatter(matrix.diagonal() + jitter) if jitter else matrix
        L, failed = torch.linalg.cholesky_ex(shifted)
        if not failed:
            return Factor(L, jitter)
    return None


def invert_in_place(shifted: Callable[[float], Tensor], shift: float) -> tuple[Tensor, float] | None:
    """The inverse of a matrix that is positive but for rounding, in its own memory; None where no shift makes it so.

    Args:
        shifted: gives the matrix with a shift along its diagonal, in memory of its own.
        shift: the first that is tried; it grows as a jitter does.

    Returns:
        The inverse, and the shift that it was made with.
    """
    for _ in range(TRIES):
        # LAPACK counts in columns: of the transposed view it works in place.
        N = shifted(shift).T
        failed = torch.empty((), dtype=torch.int32, device=N.device)
        torch.linalg.cholesky_ex(N, out=(N, failed))
        if not failed:
            return torch.cholesky_inverse(N, out=N), shift
        shift *= GROWTH
    return None


def _jitters(least: float, most: float, eps: float) -> Iterator[float]:
    yield least
    jitter = GROWTH * max(least, eps)
    while jitter < most:
        yield jitter
        jitter *= GROWTH
    if most > least:
        yield most
