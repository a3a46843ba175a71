"""Sketches of gradients that are written down: count, Gaussian and Rademacher.

Each is a linear map of the flat gradient of one parameter in one output direction, given by a key alone.
"""

import abc
import math

import torch
from torch import Tensor

from tangentkit.core.seeds import Key
from tangentkit.sketch.bits import as_places, as_signs, normals, signs, words, words_of_signs
from tangentkit.sketch.coordinates import Coordinates

BLOCK = 1024
"""Entries of a gradient for which a dense sketch draws its numbers at once. Part of the seed contract."""


class WrittenSketch(abc.ABC):
    """A random linear map of the gradient (size,) of a parameter to `dim` coordinates, E[<Sx, Sy>] = <x, y>."""

    def __init__(self, key: Key, size: int, dim: int):
        self.key, self.size, self.dim = key, size, dim

    @abc.abstractmethod
    def add(self, out: Coordinates, gradients: Tensor) -> None:
        """Adds the sketches of gradients (n, size)."""


class CountSketch(WrittenSketch):
    """Every entry, with a random sign, is added to one random coordinate; the places come in chunks.

    The gradient is cut into chunks of `dim` entries, and each chunk is added as a whole after a random rotation:
    two entries of a chunk never meet, two of different chunks meet with probability 1/dim. With independent signs
    that is all an unbiased count-sketch needs, its variance is no larger, and the work is additions of contiguous
    numbers instead of scattered ones.

    Example:
        >>> sketch, out = CountSketch(Key(0), 40, 16), Coordinates(1, 16, like=torch.ones(()))
        >>> sketch.add(out, torch.ones(1, 40))
        >>> out.sums().shape
        torch.Size([1, 16])
    """

    def __init__(self, key: Key, size: int, dim: int):
        super().__init__(key, size, dim)
        self._drawn: tuple[Tensor, Tensor] | None = None

    def draw(self) -> tuple[Tensor, Tensor]:
        """Where the first entry of each chunk goes, and the sign of each entry (int8)."""
        if self._drawn is None:
            chunks = -(-self.size // self.dim)
            drawn = words(self.key, chunks + words_of_signs(self.size))
            self._drawn = as_places(drawn[:chunks], self.dim), as_signs(drawn[chunks:], self.size)
        return self._drawn

    def forget(self) -> None:
        """Frees what was drawn; it is drawn again when it is needed."""
        self._drawn = None

    def add(self, out: Coordinates, gradients: Tensor) -> None:
        """Adds the sketches of gradients (n, size)."""
        rotations, drawn = self.draw()
        factors = drawn.to(out.wide)
        gradients = gradients.to(out.wide.dtype)
        for chunk, start in enumerate(rotations.tolist()):
            entries = slice(chunk * self.dim, min((chunk + 1) * self.dim, self.size))
            window = out.wide[:, start : start + entries.stop - entries.start]
            window.addcmul_(gradients[:, entries], factors[entries])

    def add_rows(self, out: Coordinates, rows: Tensor, gradients: Tensor) -> None:
        """Adds the sketches of gradients that are zero but for some rows of a table.

        Args:
            out: where to.
            rows: (n, s), -1 for none; a row may come several times.
            gradients: of these rows (n, s, q); the table is (size / q, q).
        """
        q, device = gradients.shape[-1], gradients.device
        rotations, drawn = (table.to(device) for table in self.draw())
        flat = rows.clamp_min(0)[..., None] * q + torch.arange(q, device=device)
        turned = flat % self.dim + rotations[flat // self.dim]
        values = gradients.to(out.wide.dtype) * drawn[flat] * (rows >= 0)[..., None]
        out.wide.scatter_add_(1, turned.flatten(1), values.flatten(1))


class DenseSketch(WrittenSketch):
    """A dense random matrix of independent entries with variance 1/dim, drawn block by block."""

    @abc.abstractmethod
    def draw(self, key: Key, n: int) -> Tensor:
        """n independent numbers of mean 0 and variance 1."""

    def add(self, out: Coordinates, gradients: Tensor) -> None:
        """Adds the sketches of gradients (n, size)."""
        sums = out.wide[:, : self.dim]
        for block, start in enumerate(range(0, self.size, BLOCK)):
            entries = slice(start, min(start + BLOCK, self.size))
            width = entries.stop - entries.start
            matrix = self.draw(self.key.fold("block", block), width * self.dim).view(width, self.dim)
            matrix = matrix.to(sums) / math.sqrt(self.dim)
            sums += gradients[:, entries].to(sums.dtype) @ matrix


class GaussianSketch(DenseSketch):
    """Independent normal entries: the reference of all sketches."""

    def draw(self, key: Key, n: int) -> Tensor:
        """Standard normal numbers."""
        return normals(key, n)


class RademacherSketch(DenseSketch):
    """Independent signs."""

    def draw(self, key: Key, n: int) -> Tensor:
        """Signs."""
        return signs(key, n)
