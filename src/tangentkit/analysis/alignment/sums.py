"""Inner products of kernel matrices on the same samples, centered in two ways, from their tiles.

All of it follows from three sums over entries, to which each tile adds its part: the matrices themselves need not be
in memory. Of few features not even tiles are needed.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from tangentkit.core.memory import memory_budget
from tangentkit.linalg.operators.matrices import FactorOperator
from tangentkit.linalg.operators.operator import Memory, Operator

LEAST_DEBIASED = 4
"""Samples that the debiased form needs: it divides by n - 3."""

COPIES = 8
"""Tiles of a kernel in its own precision that its tile in float64, without the diagonal and flat, is as large as."""


class KernelSums:
    """Sums over the entries of k kernel matrices (n, n), in float64.

    Args:
        kernels: k.
        samples: n.
        like: of the device of the tiles.
    """

    def __init__(self, kernels: int, samples: int, *, like: Tensor):
        def zeros(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.float64, device=like.device)

        self.n = samples
        self.products, self.rows = zeros(kernels, kernels), zeros(kernels, samples)
        """Σ_{i≠j} K_ij L_ij of all pairs, and Σ_{j≠i} K_ij of all rows."""
        self.diagonals = zeros(kernels, samples)

    def add(self, rows: slice, cols: slice, tiles: Float[Tensor, "k a b"]) -> None:
        """Adds a tile of every kernel; of tiles off the diagonal only one of the two triangles comes."""
        tiles = tiles.double()
        twice = 1 if rows == cols else 2
        if rows == cols:
            diagonal = tiles.diagonal(dim1=1, dim2=2)
            self.diagonals[:, rows] = diagonal
            tiles = tiles - torch.diag_embed(diagonal)
        else:
            self.rows[:, cols] += tiles.sum(1)
        self.rows[:, rows] += tiles.sum(2)
        flat = tiles.flatten(1)
        self.products.addmm_(flat, flat.T, alpha=twice)

    def only(self, kernels: Sequence[int]) -> "KernelSums":
        """Those of some of the kernels."""
        found = KernelSums(len(kernels), self.n, like=self.products)
        chosen = list(kernels)
        found.products, found.rows = self.products[chosen][:, chosen], self.rows[chosen]
        found.diagonals = self.diagonals[chosen]
        return found

    def raw(self) -> Float[Tensor, "k k"]:
        """<K, L> = Σ_ij K_ij L_ij."""
        return self.products + self.diagonals @ self.diagonals.T

    def centered(self) -> Float[Tensor, "k k"]:
        """<H K H, H L H> with H = I - 1 1ᵀ / n."""
        rows = self.rows + self.diagonals
        total = rows.sum(1)
        return self.raw() - 2 / self.n * rows @ rows.T + torch.outer(total, total) / self.n**2

    def debiased(self) -> Float[Tensor, "k k"]:
        """n (n - 3) times the unbiased estimate of HSIC (Song et al. 2012), where no K_ii counts.

        Σ_{i≠j} K_ij L_ij - 2/(n-2) Σ_i K_i L_i + (Σ_i K_i)(Σ_i L_i) / ((n-1)(n-2)), K_i being the sums of rows. Of a
        kernel with itself it is a sum of squares.
        """
        n, total = self.n, self.rows.sum(1)
        return (
            self.products
            - 2 / (n - 2) * self.rows @ self.rows.T
            + torch.outer(total, total) / ((n - 1) * (n - 2))
        )


def sums_of(kernels: Sequence[Operator], memory: Memory = None) -> tuple[KernelSums, list[float]]:
    """The sums of symmetric operators on the same samples, each over its scale; and these scales.

    They come from features where all are few, else from tiles. Sums over the entries themselves could leave the range
    of numbers.
    """
    first = kernels[0]
    scales = [_scale(kernel) for kernel in kernels]
    features = [
        kernel.A.double() / scale**0.5
        for kernel, scale in zip(kernels, scales, strict=True)
        if isinstance(kernel, FactorOperator) and kernel.symmetric
    ]
    if len(features) == len(kernels) and sum(A.shape[1] for A in features) < first.shape[0]:
        return _sums_of_features(features), scales
    found = KernelSums(len(kernels), first.shape[0], like=torch.empty(0, device=first.device))
    budget = memory_budget(memory, device=first.device) // (len(kernels) * COPIES)
    for rows, cols in first.tiles(budget):
        if rows.start <= cols.start:
            tiles = [k.block(rows, cols).double() / scale for k, scale in zip(kernels, scales, strict=True)]
            found.add(rows, cols, torch.stack(tiles))
    return found, scales


def _scale(kernel: Operator) -> float:
    """The largest entry of the diagonal, beyond which no entry of a positive kernel is; 1 where it is zero."""
    return float(kernel.diagonal().double().abs().max()) or 1.0


def _sums_of_features(features: Sequence[Float[Tensor, "n d"]]) -> KernelSums:
    """The sums of kernels A Aᵀ without any entry of them off the diagonal: Σ_ij K_ij L_ij = ‖Aᵀ B‖²."""
    found = KernelSums(len(features), len(features[0]), like=features[0])
    for k, A in enumerate(features):
        found.diagonals[k] = A.square().sum(1)
        found.rows[k] = A @ A.sum(0) - found.diagonals[k]
        for m, B in enumerate(features[: k + 1]):
            found.products[k, m] = found.products[m, k] = (A.T @ B).square().sum()
    found.products -= found.diagonals @ found.diagonals.T
    return found
