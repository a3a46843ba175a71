"""TensorSketch: the count-sketch of a sum of outer products from its factors, by Fourier transforms."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from tangentkit.core.seeds import Key
from tangentkit.linalg.operators.spans import spans
from tangentkit.sketch.methods.coordinates import Coordinates
from tangentkit.sketch.methods.hashes import as_distinct_places, as_signs, words, words_of_signs

PIECE_ENTRIES = 2**20
"""Entries transformed at a time: near the cache."""


@dataclass(frozen=True)
class Placement:
    """Each of k entries, with its sign, at a place of its own among `dim`."""

    source: Tensor
    """(dim,): which entry comes here, 0 where none does."""
    signs: Tensor
    """(dim,): its sign, 0 where none comes."""

    @classmethod
    def draw(cls, key: Key, k: int, dim: int) -> "Placement":
        """A random one, of k <= dim entries."""
        drawn = words(key, dim + words_of_signs(k))
        where = as_distinct_places(drawn[:dim], k)
        source, factors = torch.zeros(dim, dtype=torch.int64), torch.zeros(dim, dtype=torch.int8)
        source[where], factors[where] = torch.arange(k), as_signs(drawn[dim:], k)
        return cls(source, factors)

    def part(self, start: int, stop: int) -> "Placement":
        """The placement of some of the entries, the others left out."""
        inside = (self.source >= start) & (self.source < stop)
        return Placement(torch.where(inside, self.source - start, 0), self.signs * inside)

    def waves(self, values: Tensor) -> Tensor:
        """Fourier transform of the placed values (..., k)."""
        placed = values.index_select(-1, self.source.to(values.device))
        return torch.fft.rfft(placed.mul_(self.signs.to(placed)))


@dataclass(frozen=True)
class GradientBlock:
    """Entries of the outgoing gradients that are placed together: some directions, or a part of one."""

    number: int
    directions: slice
    """Among those at hand."""
    entries: slice
    """Of each direction."""
    placed: slice
    """Where these entries stand among all that the block's placement knows."""


class TensorSketch:
    """The sketch of Σ_s g_s ⊗ a_s in all output directions, from the factors; no gradient is built.

    With placements A of a and G of g on a circle of `dim` places, the entry (j, i) of g ⊗ a goes to the sum of the
    places of j and i: a circular convolution, which is a product in the frequency domain, where positions s and
    layers are summed too. Places within a placement are distinct. Independent ones, as TensorSketch has them, let
    the pairs (j, i) and (j', i) meet for all i at once, which costs up to three times the variance of a Gaussian
    sketch; here (j, i) and (j', i') meet, with probability 1/(dim - 1), only if both differ. Factors longer than
    `dim` are cut into blocks, and each pair of blocks has placements of its own.

    Args:
        key: of the parameter and the half.
        dim: number of coordinates.
        p: length of a.
        q: length of g in one direction.
    """

    def __init__(self, key: Key, dim: int, *, p: int, q: int):
        self.key, self.dim, self.p, self.q = key, dim, p, q
        self._placements: dict[tuple[str | int, ...], Placement] = {}

    def add(self, out: Coordinates, g: Tensor, a: Tensor, *, first: int) -> None:
        """Adds the sketches of n samples.

        Args:
            out: where to.
            g: outgoing gradients (n, h, r, s, q) of r directions.
            a: inputs (n, h, s, p).
            first: number of the first direction among all.
        """
        n, heads, r, s, _ = g.shape
        positions = max(1, min(s, PIECE_ENTRIES // self.dim))
        samples = max(1, PIECE_ENTRIES // (self.dim * positions))
        g, a = (factor.to(out.wide.dtype) for factor in (g, a))
        for head in range(heads):
            for columns, block, of_a, of_g in self._pairs(head, first, r):
                for rows in spans(n, samples):
                    for some in spans(s, positions):
                        right = g[rows, head, block.directions, some, block.entries]
                        # (n, r, s, q) -> (n, s, r q): the directions of a block are one long vector.
                        waves = of_g.waves(right.transpose(1, 2).flatten(2))
                        waves *= of_a.waves(a[rows, head, some, columns])
                        out.waves[rows] += waves[:, 0] if waves.shape[1] == 1 else waves.sum(1)

    def add_core(self, out: Coordinates, g: Tensor, a: Tensor, core: Tensor) -> None:
        """Adds the sketches of Σ_ij core_ij g_i ⊗ a_j, in all directions and of one head.

        Args:
            out: where to.
            g: outgoing gradients (k, r, q).
            a: inputs (l, p).
            core: coefficients (n, k, l).
        """
        dtype = out.wide.dtype
        g, a, core = g.to(dtype), a.to(dtype), core.to(dtype)
        for columns, block, of_a, of_g in self._pairs(0, 0, g.shape[1]):
            left = of_g.waves(g[:, block.directions, block.entries].flatten(1))
            # Coefficients are real: a product with real and imaginary parts side by side.
            right = torch.view_as_real(of_a.waves(a[:, columns])).flatten(1)
            for rows in spans(len(core), max(1, PIECE_ENTRIES // left.numel())):
                mixed = torch.view_as_complex((core[rows] @ right).unflatten(2, (-1, 2)))
                out.waves[rows] += mixed.mul_(left).sum(1)

    def _pairs(
        self, head: int, first: int, r: int
    ) -> Iterator[tuple[slice, GradientBlock, Placement, Placement]]:
        """(entries of a, of g, their placements) that cover the factors of r directions."""
        for part, columns in enumerate(spans(self.p, self.dim)):
            for block in gradient_blocks(first, r, self.q, self.dim):
                yield columns, block, *self._pair(head, part, columns, block)

    def _pair(
        self, head: int, part: int, columns: slice, block: GradientBlock
    ) -> tuple[Placement, Placement]:
        # Several short directions share a block, as many as it holds, whether or not all are at hand.
        length = max(1, self.dim // self.q) * self.q if self.q <= self.dim else block.placed.stop
        path = ("head", head, "inputs", part, "outputs", block.number)
        of_a = self._placement((*path, "a"), columns.stop - columns.start)
        return of_a, self._placement((*path, "g"), length).part(block.placed.start, block.placed.stop)

    def _placement(self, path: tuple[str | int, ...], k: int) -> Placement:
        if path not in self._placements:
            self._placements[path] = Placement.draw(self.key.fold(*path), k, self.dim)
        return self._placements[path]


def gradient_blocks(first: int, r: int, q: int, dim: int) -> Iterator[GradientBlock]:
    """How the gradients of directions first ... first + r - 1 are cut; the same direction falls into the same block.

    Example:
        >>> [block.number for block in gradient_blocks(2, 3, 8, 16)]
        [1, 2]
    """
    if q > dim:
        parts = list(spans(q, dim))
        for k in range(r):
            for i, entries in enumerate(parts):
                placed = slice(0, entries.stop - entries.start)
                yield GradientBlock((first + k) * len(parts) + i, slice(k, k + 1), entries, placed)
        return
    together = dim // q
    for number in range(first // together, (first + r - 1) // together + 1):
        start, stop = max(number * together, first), min((number + 1) * together, first + r)
        placed = slice((start - number * together) * q, (stop - number * together) * q)
        yield GradientBlock(number, slice(start - first, stop - first), slice(0, q), placed)
