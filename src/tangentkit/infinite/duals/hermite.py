"""Hermite coefficients of functions of a Gaussian variable, hundreds of them.

With the orthonormal Hermite polynomials h_n of z ~ N(0, 1) and (u, v) = (s z, s' z'), Mehler's formula is

    a_n(s) = E[φ(s z) h_n(z)],        E[φ(u) φ(v)] = Σ_n a_n(s) a_n(s') cosⁿ θ,        cos θ = correlation.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from tangentkit.infinite.duals.quadrature import Functions

REACH = 13.0
"""Where the integrals end, in standard deviations: the product of density and h_n is below exp(-REACH²/4) there."""
PANEL = 0.5
"""The greatest width of a piece of the rule."""
BLOCK = 32
"""Polynomials in memory at a time."""


def hermite_coefficients(
    functions: Functions, std: Float[Tensor, " k"], *, kinks: Sequence[float] = (), count: int
) -> tuple[Float[Tensor, "n k"], ...]:
    """a_0 ... a_{count-1} of each function at each standard deviation, by Gauss-Legendre rules between the kinks.

    Example:
        >>> one = torch.ones(1, dtype=torch.float64)
        >>> a, = hermite_coefficients(lambda u: (u * u,), one, count=4)           # u² = h_0 + √2 h_2
        >>> bool((a[:, 0] - torch.tensor([1, 0, 2**0.5, 0], dtype=a.dtype)).abs().max() < 1e-12)
        True
    """
    # h_n oscillates at most like sin(√n z).
    x, w = map(torch.from_numpy, np.polynomial.legendre.leggauss(16 + math.ceil(PANEL * math.sqrt(count))))
    fixed = torch.arange(-REACH, REACH + PANEL / 2, PANEL, dtype=torch.float64).expand(len(std), -1)
    moving = [(kink / std).clamp(-REACH, REACH)[:, None] for kink in kinks if kink != 0]
    edges = torch.cat([fixed, *moving], 1).sort(1).values
    widths = edges.diff(dim=1)[..., None]
    z = (edges[:, :-1, None] + widths * (x + 1) / 2).flatten(1)
    weights = (widths * w / 2).flatten(1) * torch.exp(-z * z / 4) / math.sqrt(2 * math.pi)
    values = torch.stack([f * weights for f in functions(std[:, None] * z)], 1)

    found, last, here = [], torch.zeros_like(z), torch.exp(-z * z / 4)
    for start in range(0, count, BLOCK):
        block = []
        for n in range(start, min(start + BLOCK, count)):
            block.append(here)
            last, here = here, (z * here - math.sqrt(n) * last) / math.sqrt(n + 1)
        found.append(values @ torch.stack(block, 1).mT)
    return tuple(torch.cat(found, -1).permute(1, 2, 0))
