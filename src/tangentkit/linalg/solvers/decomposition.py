"""Decompositions: one of a kernel matrix, from which every ridge is a division.

With K = U diag(λ) Uᵀ, U (n, r) orthonormal, and y = U Uᵀ y + y_⊥,

    (K + μ I)⁺ y = U (λ + μ)⁻¹ Uᵀ y + y_⊥ / μ        (without the last term where μ counts as zero).
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from tangentkit.linalg.solvers.precision import in_working_precision


@dataclass(frozen=True)
class Decomposition:
    """The eigenpairs of a symmetric matrix K that do not vanish."""

    values: Float[Tensor, " r"]
    """The eigenvalues λ."""
    vectors: Float[Tensor, "n r"]
    """The orthonormal eigenvectors U, as columns."""
    zero: float
    """What counts as zero: eigenvalues up to this were left out."""
    directions: Float[Tensor, "d r"] | None = None
    """Where K = Φ Φᵀ came from features: the right singular vectors V of Φ = U diag(√λ) Vᵀ."""

    @property
    def is_complete(self) -> bool:
        """Whether no eigenvalue vanishes."""
        return len(self.values) == self.vectors.shape[0]

    def gains(self, ridge: float) -> Float[Tensor, " r"]:
        """1 / (λ + ridge), and 0 where that counts as a division by zero."""
        shifted = self.values + ridge
        if self.directions is not None and ridge > 0:
            return 1 / shifted  # squares of singular values: however small, a ridge holds them
        return (1 / shifted).where(shifted.abs() > self.zero, 0.0)

    def reaches_beyond(self, ridge: float) -> bool:
        """Whether (K + ridge I)⁺ moves anything but the eigenvectors: the others have the eigenvalue `ridge`.

        One that counts as zero would blow up what was left out of K, and what rounding puts into k(z, X).
        """
        return ridge > self.zero and not self.is_complete

    def dual(self, Y: Float[Tensor, "n q"], *, ridge: float) -> Float[Tensor, "n q"]:
        """(K + ridge I)⁺ Y."""
        parts = self.vectors.T @ Y
        alpha = self.vectors @ (self.gains(ridge)[:, None] * parts)
        return alpha + (Y - self.vectors @ parts) / ridge if self.reaches_beyond(ridge) else alpha

    def primal(self, Y: Float[Tensor, "n q"], *, ridge: float) -> Float[Tensor, "d q"]:
        """The coefficients γ = Φᵀ (K + ridge I)⁺ Y of the features."""
        assert self.directions is not None
        shrunk = self.values.sqrt() * self.gains(ridge)
        return self.directions @ (shrunk[:, None] * (self.vectors.T @ Y.to(self.vectors)))

    def misfit(self, Y: Float[Tensor, "n q"], *, ridge: float) -> float:
        """‖y - K (K + ridge I)⁺ y‖ / ‖y‖, of several columns the largest."""
        Y = Y.to(self.vectors)
        kept = (self.values * self.gains(ridge))[:, None] * (self.vectors.T @ Y)
        return largest_ratio(Y - self.vectors @ kept, Y)

    def leave_one_out(
        self, Y: Float[Tensor, "n q"], *, ridge: float, blocks: int = 1
    ) -> Float[Tensor, "n q"]:
        """y_i - f_(-i)(x_i), f_(-i) being fitted without sample i, from this one decomposition.

        With P = I - U Uᵀ and R = U (λ + ridge)⁻¹ Uᵀ the errors solve (P + ridge R)_ii e_i = ((P + ridge R) y)_i.
        Without a ridge that says nothing of directions in which P_ii vanishes (all, where the fit interpolates):
        there R_ii e_i = (R y)_i, the limit of small ridges. A sample i is `blocks` consecutive rows.
        """
        rows, U, dtype = self.vectors, self.vectors.unflatten(0, (-1, blocks)), Y.dtype
        Y = Y.to(rows)
        gains, parts = self.gains(ridge), self.vectors.T @ Y
        eye = torch.eye(blocks, dtype=U.dtype, device=U.device)
        alphas, Q = torch.linalg.eigh(eye - torch.einsum("iar,ibr->iab", U, U))
        U = Q.mT @ U
        R = torch.einsum("iar,r,ibr->iab", U, gains, U)
        Ry = Q.mT @ (rows @ (gains[:, None] * parts)).unflatten(0, (-1, blocks))
        Py = Q.mT @ (Y - rows @ parts).unflatten(0, (-1, blocks))
        vanishes = (alphas <= len(rows) * torch.finfo(U.dtype).eps)[:, :, None]
        M = R.where(vanishes, torch.diag_embed(alphas) + ridge * R)
        return (Q @ torch.linalg.solve(M, Ry.where(vanishes, Py + ridge * Ry))).flatten(0, 1).to(dtype)


@dataclass(frozen=True)
class Eigenpairs:
    """All eigenpairs of a symmetric matrix K, from which each ridge takes those that it can tell from zero."""

    values: Float[Tensor, " n"]
    vectors: Float[Tensor, "n n"]
    zero: float
    """What counts as zero where it would be divided by."""
    noise: float
    """What counts as zero under a ridge: twice as far as eigenvalues of a positive K lie below zero."""

    def at(self, ridge: float) -> Decomposition:
        """Those that do not vanish; a ridge holds all that is more than noise, however small it is."""
        zero = self.noise if ridge else self.zero
        kept = self.values.abs() > zero
        return Decomposition(self.values[kept], self.vectors[:, kept], zero)

    @property
    def below(self) -> float:
        """How far eigenvalues lie below zero."""
        return max(0.0, -float(self.values.min()))

    def of_positive(self, most: float) -> "Eigenpairs":
        """Of a K that is positive but for rounding, which goes as far above zero as it is seen to go below.

        Args:
            most: the share of the largest |λ| up to which what lies below zero is rounding; beyond, nothing changes.
        """
        shown = 2 * self.below
        if shown <= self.zero or self.below > most * float(self.values.abs().max()):
            return self
        return replace(self, zero=shown, noise=shown)


def decompose(
    matrix: Float[Tensor, "n n"], *, cutoff: float | None = None, made_in: torch.dtype | None = None
) -> Eigenpairs:
    """Of a symmetric matrix.

    Args:
        matrix: K.
        cutoff: |λ| up to this times the largest |λ| counts as zero; n ε where it is None.
        made_in: the dtype that K was computed in, whose ε that is; None for its own.
    """
    values, vectors = torch.linalg.eigh(matrix)
    n, largest = len(values), float(values.abs().max())
    if cutoff is not None:
        return Eigenpairs(values, vectors, cutoff * largest, cutoff * largest)
    zero, rounding = (n * torch.finfo(kind).eps * largest for kind in (made_in or matrix.dtype, matrix.dtype))
    below = max(0.0, -float(values.min()))
    return Eigenpairs(values, vectors, zero, min(zero, 2 * below + rounding))


def decompose_features(Phi: Float[Tensor, "n d"], *, cutoff: float | None = None) -> Decomposition:
    """Of Φ Φᵀ, from Φ itself by QR and SVD: the condition number is that of Φ and not its square.

    All is computed in float64. Where a ridge holds them, singular values below the rounding of float32 features say
    what they say; without one they would be divided by, and count as zero.

    Args:
        Phi: the features Φ.
        cutoff: singular values up to this times the largest are left out; None leaves out those below the rounding of
            float64, and without a ridge counts those up to max(n, d) ε of the features' own precision as zero.
    """
    n, d = Phi.shape
    double = in_working_precision(Phi)
    Q, R = torch.linalg.qr(double if n >= d else double.T)
    left, s, right = torch.linalg.svd(R, full_matrices=False)
    U, V = (Q @ left, right.T) if n >= d else (right.T, Q @ left)
    largest, kinds = float(s.max()), (Phi.dtype, s.dtype)
    zero, least = (max(n, d) * torch.finfo(kind).eps * largest for kind in kinds)
    if cutoff is not None:
        zero = least = cutoff * largest
    kept = s > least
    return Decomposition(s[kept].square(), U[:, kept], zero**2, V[:, kept])


def largest_ratio(errors: Float[Tensor, "n q"], Y: Float[Tensor, "n q"]) -> float:
    """‖e‖ / ‖y‖ of the column where it is largest."""
    size = Y.norm(dim=0)
    return float((errors.norm(dim=0) / size.where(size > 0, 1.0)).max())
