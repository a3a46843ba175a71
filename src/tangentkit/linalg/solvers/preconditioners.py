"""Preconditioners: a few approximate eigenpairs of K, with which conjugate gradients converge faster.

All give K ≈ U Λ Uᵀ of rank r with orthonormal U. With μ the ridge and λ_r the smallest value kept,

    P⁻¹ = (λ_r + μ) U (Λ + μ I)⁻¹ Uᵀ + I - U Uᵀ

maps the r largest eigenvalues of K + μ I to about λ_r + μ and leaves the others as they are
(Frangella, Tropp, Udell 2023).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from tangentkit.core.errors import InputError
from tangentkit.core.seeds import Key
from tangentkit.linalg.operators.checks import check_finite
from tangentkit.linalg.operators.operator import Operator
from tangentkit.linalg.operators.probes import gaussian
from tangentkit.linalg.operators.times import times


class Preconditioner(ABC):
    """A low-rank approximation of a positive semi-definite operator, at hand as a preconditioner."""

    @abstractmethod
    def root(self, K: Operator) -> Float[Tensor, "n r"]:
        """A matrix L with K ≈ L Lᵀ; without columns where K shows no positive part."""

    def prepare(self, K: Operator, *, ridge: float) -> Callable[[Tensor], Tensor]:
        """The map R ↦ P⁻¹ R for K + ridge I."""
        U, S, _ = torch.linalg.svd(self.root(K), full_matrices=False)
        kept = _stands_out(S.square())
        U, values = U[:, kept], S[kept].square()
        gains = (values[-1:] + ridge) / (values + ridge)
        return lambda R: R + times(U, (gains - 1)[:, None] * times(U.T, R))


@dataclass(frozen=True)
class Nystrom(Preconditioner):
    """Randomized Nyström: K ≈ (K Ω)(Ωᵀ K Ω)⁺(K Ω)ᵀ with r random directions Ω, at the price of r products."""

    rank: int
    """The number r of directions."""
    key: Key
    """The address of the random directions."""

    def __post_init__(self) -> None:
        _check_rank(self.rank)

    def root(self, K: Operator) -> Float[Tensor, "n r"]:
        """(K Ω) S Λ^(-1/2) with Ωᵀ K Ω = S Λ Sᵀ."""
        omega, _ = torch.linalg.qr(gaussian(K, min(self.rank, K.shape[0]), key=self.key.fold("nystrom")))
        sketch = K @ omega
        check_finite(sketch, "product with the operator")
        core = omega.T @ sketch
        values, S = torch.linalg.eigh((core + core.T) / 2)
        kept = _stands_out(values)
        return sketch @ S[:, kept] * values[kept].rsqrt()


@dataclass(frozen=True)
class PivotedCholesky(Preconditioner):
    """Cholesky columns of the r pivots with most of the diagonal left: reads the diagonal and r columns."""

    rank: int
    """The number r of pivots."""

    def __post_init__(self) -> None:
        _check_rank(self.rank)

    def root(self, K: Operator) -> Float[Tensor, "n r"]:
        """The first r columns of the factor, fewer where the diagonal is used up before."""
        n = K.shape[0]
        left = K.diagonal().clone()
        enough = n * torch.finfo(K.dtype).eps * float(left.max())
        L = left.new_zeros(n, min(self.rank, n))
        for j in range(L.shape[1]):
            pivot = int(left.argmax())
            if not left[pivot] > max(enough, 0.0):
                return L[:, :j]
            column = K[:, pivot] - L[:, :j] @ L[pivot, :j]
            L[:, j] = column / left[pivot].sqrt()
            left = left - L[:, j].square()
            left[pivot] = 0.0
        return L


def _stands_out(values: Float[Tensor, " r"]) -> Tensor:
    """Which values are positive beyond rounding."""
    if not len(values):
        return values > 0
    return values > max(0.0, len(values) * torch.finfo(values.dtype).eps * float(values.max()))


def _check_rank(rank: int) -> None:
    if rank < 1:
        raise InputError("bad rank of a preconditioner", expected="an integer >= 1", got=rank)
