"""Inner products of kernel matrices on the same samples, centered in two ways, from their tiles.

All of it follows from three sums over entries, of which each pair of tiles adds its part: the matrices themselves
need not be in memory.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from tangentkit.linalg.operator import Memory, Operator

LEAST_DEBIASED = 4
"""Samples that the debiased form needs: it divides by n - 3."""


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


def sums_of(kernels: Sequence[Operator], memory: Memory = None) -> KernelSums:
    """The sums of symmetric operators on the same samples, read in tiles of one triangle."""
    first = kernels[0]
    found = KernelSums(len(kernels), first.shape[0], like=torch.empty(0, device=first.device))
    for rows, cols in first.tiles(memory):
        if rows.start <= cols.start:
            found.add(rows, cols, torch.stack([kernel.block(rows, cols).double() for kernel in kernels]))
    return found
