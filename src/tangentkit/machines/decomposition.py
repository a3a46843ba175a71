"""Decompositions: one of a kernel matrix, from which every ridge is a division.

With K = U diag(λ) Uᵀ, U (n, r) orthonormal, and y = U Uᵀ y + y_⊥,

    (K + μ I)⁺ y = U (λ + μ)⁻¹ Uᵀ y + y_⊥ / μ        (without the last term for μ = 0).
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from tangentkit.core.errors import NumericalError


@dataclass(frozen=True)
class Decomposition:
    """The eigenpairs of a symmetric matrix K that do not vanish."""

    values: Float[Tensor, " r"]
    """The eigenvalues λ."""
    vectors: Float[Tensor, "n r"]
    """The orthonormal eigenvectors U, as columns."""
    directions: Float[Tensor, "d r"] | None = None
    """Where K = Φ Φᵀ came from features: the right singular vectors V of Φ = U diag(√λ) Vᵀ."""

    @property
    def is_complete(self) -> bool:
        """Whether no eigenvalue vanishes."""
        return len(self.values) == self.vectors.shape[0]

    def gains(self, ridge: float) -> Float[Tensor, " r"]:
        """1 / (λ + ridge)."""
        return 1 / (self.values + ridge)

    def dual(self, Y: Float[Tensor, "n q"], *, ridge: float) -> Float[Tensor, "n q"]:
        """(K + ridge I)⁺ Y."""
        parts = self.vectors.T @ Y
        alpha = self.vectors @ (self.gains(ridge)[:, None] * parts)
        return alpha if ridge == 0 or self.is_complete else alpha + (Y - self.vectors @ parts) / ridge

    def primal(self, Y: Float[Tensor, "n q"], *, ridge: float) -> Float[Tensor, "d q"]:
        """The coefficients γ = Φᵀ (K + ridge I)⁺ Y of the features."""
        assert self.directions is not None
        shrunk = self.values.sqrt() * self.gains(ridge)
        return self.directions @ (shrunk[:, None] * (self.vectors.T @ Y))

    def misfit(self, Y: Float[Tensor, "n q"], *, ridge: float) -> float:
        """‖y - K (K + ridge I)⁺ y‖ / ‖y‖, of several columns the largest."""
        kept = (self.values * self.gains(ridge))[:, None] * (self.vectors.T @ Y)
        return largest_ratio(Y - self.vectors @ kept, Y)

    def leave_one_out(
        self, Y: Float[Tensor, "n q"], *, ridge: float, blocks: int = 1
    ) -> Float[Tensor, "n q"]:
        """y_i - f_(-i)(x_i), f_(-i) being fitted without sample i, from this one decomposition.

        With H = K (K + ridge I)⁺ the errors are (I - H)_ii⁻¹ (y - H y)_i, and (K⁻¹)_ii⁻¹ (K⁻¹ y)_i where H = I. A
        sample is `blocks` consecutive rows.

        Raises:
            NumericalError: without some sample the fit is not determined.
        """
        parts = self.vectors.T @ Y
        U = self.vectors.unflatten(0, (-1, blocks))
        interpolates = ridge == 0 and self.is_complete
        left = self.gains(0.0) if interpolates else ridge * self.gains(ridge)
        residuals = self.vectors @ (left[:, None] * parts)
        M = torch.einsum("iar,r,ibr->iab", U, left, U)
        if not interpolates:
            # What no eigenvector reaches is left as it is.
            residuals = residuals + Y - self.vectors @ parts
            M = M + torch.eye(blocks, dtype=U.dtype, device=U.device) - torch.einsum("iar,ibr->iab", U, U)
        return divide_blocks(residuals, M)


def decompose(matrix: Float[Tensor, "n n"], *, cutoff: float | None = None) -> Decomposition:
    """Of a symmetric matrix, with |λ| above the cut-off times the largest |λ|; n ε where it is None."""
    values, vectors = torch.linalg.eigh(matrix)
    rtol = len(values) * torch.finfo(matrix.dtype).eps if cutoff is None else cutoff
    kept = values.abs() > rtol * values.abs().max()
    return Decomposition(values[kept], vectors[:, kept])


def decompose_features(Phi: Float[Tensor, "n d"], *, cutoff: float | None = None) -> Decomposition:
    """Of Φ Φᵀ, from Φ itself by QR and SVD: the condition number is that of Φ and not its square.

    Args:
        Phi: the features Φ.
        cutoff: singular values up to this times the largest count as zero; None takes max(n, d) ε.
    """
    n, d = Phi.shape
    Q, R = torch.linalg.qr(Phi if n >= d else Phi.T)
    left, s, right = torch.linalg.svd(R, full_matrices=False)
    U, V = (Q @ left, right.T) if n >= d else (right.T, Q @ left)
    rtol = max(n, d) * torch.finfo(Phi.dtype).eps if cutoff is None else cutoff
    kept = s > rtol * s.max()
    return Decomposition(s[kept].square(), U[:, kept], V[:, kept])


def divide_blocks(residuals: Float[Tensor, "nb q"], M: Float[Tensor, "n b b"]) -> Float[Tensor, "nb q"]:
    """M_i⁻¹ r_i for every sample i.

    Raises:
        NumericalError: an M_i is singular: sample i alone fixes some direction, so that the fit without it is not
            determined.
    """
    smallest = torch.linalg.eigvalsh(M)[:, 0]
    lost = smallest <= len(M) * torch.finfo(M.dtype).eps * M.abs().max()
    if lost.any():
        bad = lost.nonzero().flatten().tolist()
        raise NumericalError(
            "no leave-one-out error: without the sample the fit is not determined",
            expected="a leverage below 1",
            got=f"1 for samples {bad[:5]} ({len(bad)} in all)",
            hint="a ridge above 0",
        )
    return torch.linalg.solve(M, residuals.unflatten(0, M.shape[:2])).flatten(0, 1)


def largest_ratio(errors: Float[Tensor, "n q"], Y: Float[Tensor, "n q"]) -> float:
    """‖e‖ / ‖y‖ of the column where it is largest."""
    size = Y.norm(dim=0)
    return float((errors.norm(dim=0) / size.where(size > 0, 1.0)).max())
