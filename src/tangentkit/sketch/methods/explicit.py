"""Sketches of explicit gradients: count, Gaussian and Rademacher.

Each is a linear map of the flat gradient of one parameter in one output direction, given by a key alone.
"""

import abc
import math

import torch
from torch import Tensor

from tangentkit.core.seeds import Key
from tangentkit.linalg.operators.spans import spans
from tangentkit.sketch.methods.coordinates import Coordinates
from tangentkit.sketch.methods.hashes import as_places, as_signs, normals, signs, words, words_of_signs

BLOCK = 1024
"""Entries of a gradient for which a dense sketch draws its numbers at once. Part of the seed contract."""
RUN = 2**16
"""Entries of a gradient that are counted at a time: their signs stay near the cache."""
SHORT, FEW = 2**9, 2**13
"""Entries of a chunk, and those of all samples together, below which calls cost more than scattered additions."""


class ExplicitSketch(abc.ABC):
    """A random linear map of the gradient (size,) of a parameter to `dim` coordinates, E[<Sx, Sy>] = <x, y>."""

    def __init__(self, key: Key, size: int, dim: int):
        self.key, self.size, self.dim = key, size, dim

    @abc.abstractmethod
    def add(self, out: Coordinates, gradients: Tensor) -> None:
        """Adds the sketches of gradients (n, size)."""


class CountSketch(ExplicitSketch):
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

    def add(self, out: Coordinates, gradients: Tensor) -> None:
        """Adds the sketches of gradients (n, size)."""
        rotations, drawn = self.draw()
        starts = rotations.tolist()
        for run in spans(self.size, max(1, RUN // self.dim) * self.dim):  # whole chunks
            values, factors = gradients[:, run].to(out.wide.dtype), drawn[run].to(out.wide)
            if self.dim < SHORT and len(values) * self.dim < FEW:
                places = self._places(torch.arange(run.start, run.stop, device=out.wide.device))
                out.wide.scatter_add_(1, places.expand(len(values), -1), values * factors)
                continue
            for chunk in spans(run.stop - run.start, self.dim):
                start = starts[(run.start + chunk.start) // self.dim]
                window = out.wide[:, start : start + chunk.stop - chunk.start]
                window.addcmul_(values[:, chunk], factors[chunk])

    def add_rows(self, out: Coordinates, rows: Tensor, gradients: Tensor) -> None:
        """Adds the sketches of gradients that are zero but for some rows of a table.

        Args:
            out: where to.
            rows: (n, s), -1 for none; a row may come several times.
            gradients: of these rows (n, s, q); the table is (size / q, q).
        """
        q, device = gradients.shape[-1], gradients.device
        flat = rows.clamp_min(0)[..., None] * q + torch.arange(q, device=device)
        signs = self.draw()[1].to(device)[flat]
        values = gradients.to(out.wide.dtype) * signs * (rows >= 0)[..., None]
        out.wide.scatter_add_(1, self._places(flat).flatten(1), values.flatten(1))

    def _places(self, flat: Tensor) -> Tensor:
        """Where entries of the gradient go on the open circle."""
        return flat % self.dim + self.draw()[0].to(flat.device)[flat // self.dim]


class DenseSketch(ExplicitSketch):
    """A dense random matrix of independent entries with variance 1/dim, drawn block by block."""

    @abc.abstractmethod
    def draw(self, key: Key, n: int) -> Tensor:
        """n independent numbers of mean 0 and variance 1."""

    def add(self, out: Coordinates, gradients: Tensor) -> None:
        """Adds the sketches of gradients (n, size)."""
        sums = out.wide[:, : self.dim]
        for block, entries in enumerate(spans(self.size, BLOCK)):
            width = entries.stop - entries.start
            matrix = self.draw(self.key.fold("block", block), width * self.dim).view(width, self.dim)
            matrix = matrix.to(sums) / math.sqrt(self.dim)
            sums += gradients[:, entries].to(sums.dtype) @ matrix


class GaussianSketch(DenseSketch):
    """Independent normal entries: the reference of all sketches."""

    def draw(self, key: Key, n: int) -> Tensor:
        """Draws standard normal numbers."""
        return normals(key, n)


class RademacherSketch(DenseSketch):
    """A sketch by a dense matrix of independent signs."""

    def draw(self, key: Key, n: int) -> Tensor:
        """Draws independent signs."""
        return signs(key, n)
