"""The coordinates of a sketch, where the parts of all parameters are summed."""

import torch
from torch import Tensor

REDUCED = (torch.float16, torch.bfloat16)
"""Types in which sums over millions of entries and Fourier transforms are not done."""


def working_dtype(dtype: torch.dtype) -> torch.dtype:
    """The type in which features of a model are summed."""
    return torch.float32 if dtype in REDUCED else dtype


class Coordinates:
    """Sums of sketches of n samples into `dim` coordinates.

    What is cheap to add differs: chunks of a gradient land as windows anywhere on a circle, so `wide` is the circle
    cut open, twice round; products of sketches are sums of `waves`, in the frequency domain.
    """

    WIDTH = 3
    """Numbers that are kept for a coordinate: two on the open circle, one as a wave."""

    def __init__(self, n: int, dim: int, *, like: Tensor):
        dtype = working_dtype(like.dtype)
        self.dim = dim
        self.wide = torch.zeros(n, 2 * dim, dtype=dtype, device=like.device)
        self.waves = torch.zeros(n, dim // 2 + 1, dtype=dtype.to_complex(), device=like.device)

    def rows(self, samples: slice) -> "Coordinates":
        """The coordinates of some samples; adding to them adds here."""
        some = object.__new__(Coordinates)
        some.dim, some.wide, some.waves = self.dim, self.wide[samples], self.waves[samples]
        return some

    def sums(self) -> Tensor:
        """The sums of all that was added, (n, dim)."""
        circle = self.wide[:, : self.dim] + self.wide[:, self.dim :]
        return circle + torch.fft.irfft(self.waves, n=self.dim)
