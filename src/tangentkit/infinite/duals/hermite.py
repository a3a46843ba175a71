"""Hermite coefficients of functions of a Gaussian variable, hundreds of them.

With the orthonormal Hermite polynomials h_n of z ~ N(0, 1) and (u, v) = (s z, s' z'), Mehler's formula is

    a_n(s) = E[φ(s z) h_n(z)],        E[φ(u) φ(v)] = Σ_n a_n(s) a_n(s') cosⁿ θ,        cos θ = correlation.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float
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
    rule = (x + 1) / 2, w / 2
    panels = torch.arange(-REACH, REACH, PANEL, dtype=torch.float64)
    z, weights = _nodes(panels, torch.full_like(panels, PANEL), rule)
    crossed, starts, widths = _around_kinks(panels, std, [kink for kink in kinks if kink != 0])
    # All standard deviations share the polynomials on the panels that no kink is in.
    weights = weights * (~crossed).repeat_interleave(len(x), 1)
    found = _integrals(functions, std, z, weights, count)
    if widths.any():
        found = found + _integrals(functions, std, *_nodes(starts, widths, rule), count)
    return tuple(found.permute(1, 2, 0))


def _around_kinks(
    panels: Float[Tensor, " p"], std: Float[Tensor, " k"], kinks: Sequence[float]
) -> tuple[Bool[Tensor, "k p"], Float[Tensor, "k i"], Float[Tensor, "k i"]]:
    """Which panels have a kink in them; and starts and widths of the intervals that these are cut into."""
    crossed = torch.zeros(len(std), len(panels), dtype=torch.bool)
    cuts = [torch.full_like(std, -REACH)]
    for kink in kinks:
        place = (kink / std).clamp(-REACH, REACH)
        panel = _panel(place, panels)
        crossed[torch.arange(len(std)), panel] = True
        cuts += [panels[panel], place, panels[panel] + PANEL]
    edges = torch.stack(cuts, 1).sort(1).values
    starts, widths = edges[:, :-1], edges.diff(dim=1)
    # Between two of these panels lie others, which are whole.
    inside = crossed.gather(1, _panel(starts + widths / 2, panels))
    return crossed, starts, widths * inside


def _panel(z: Tensor, panels: Float[Tensor, " p"]) -> Tensor:
    """The number of the panel that each z is in."""
    return ((z + REACH) / PANEL).long().clamp(0, len(panels) - 1)


def _nodes(
    starts: Float[Tensor, "... i"], widths: Float[Tensor, "... i"], rule: tuple[Tensor, Tensor]
) -> tuple[Float[Tensor, "... z"], Float[Tensor, "... z"]]:
    """Nodes and weights of the rule on all intervals."""
    x, w = rule
    return (starts[..., None] + widths[..., None] * x).flatten(-2), (widths[..., None] * w).flatten(-2)


def _integrals(
    functions: Functions,
    std: Float[Tensor, " k"],
    z: Float[Tensor, "*k z"],
    weights: Float[Tensor, "*k z"],
    count: int,
) -> Float[Tensor, "k f n"]:
    """Σ_z weight φ(std z) h_n(z) density(z) for each φ and n < count; nodes may be shared by all std."""
    here = torch.exp(-z * z / 4)
    weights = weights * here / math.sqrt(2 * math.pi)
    values = torch.stack([f * weights for f in functions(std[:, None] * z)], 1)
    found, last = [], torch.zeros_like(z)
    for start in range(0, count, BLOCK):
        block = []
        for n in range(start, min(start + BLOCK, count)):
            block.append(here)
            last, here = here, (z * here - math.sqrt(n) * last) / math.sqrt(n + 1)
        found.append(values @ torch.stack(block, -2).mT)
    return torch.cat(found, -1)
