"""Gaussian expectations of products φ(u) φ(v) by quadrature, uniformly accurate in the correlation.

In polar coordinates of the standard normal plane,

    u = sqrt(xx) r cos ϑ,     v = sqrt(yy) r cos(ϑ - θ),     cos θ = correlation,
    E[φ(u) φ(v)] = (1/2π) ∫ dϑ ∫ dr  r exp(-r²/2) φ(u) φ(v).

The lines u = 0 and v = 0, near which activations bend, are rays: they bound four sectors of angle θ, π - θ, θ,
π - θ, and nothing degenerates as θ → 0 or π. Kinks elsewhere split every ray where it crosses them, and the
sectors where two of their lines cross. On each piece stands a Gauss-Legendre rule under the map
x → x² (3 - 2x), which crowds nodes at the ends of the piece: a function that bends at u ~ 1 is, on the scale of
a large variance, one that bends at the ray u = 0. The error falls exponentially in the number of nodes.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

Functions = Callable[[Tensor], tuple[Tensor, ...]]
"""Scalar functions that share their work: u -> (φ(u), ψ(u), ...), each of the shape of u."""

REACH = 10.0
"""The radius, in standard deviations, where the integrals end: exp(-REACH²/2) = 2e-22."""
FEWEST, MOST = 24, 180
"""Nodes per piece of the first and of the last refinement."""
EVALUATIONS = 2**18
"""Function values in memory at a time: the memory of a rule does not depend on the number of entries."""
BEND = 30.0
"""Activations bend nearer to 0 than this: at a large variance a small part of the line, with nodes of its own."""
SMALLEST = 1e-100
"""Stands for a zero standard deviation, so that kinks at 0 are still seen from both sides."""


def expectations(
    functions: Functions, xx: Tensor, xy: Tensor, yy: Tensor, *, kinks: Sequence[float] = (), nodes: int
) -> tuple[Tensor, ...]:
    """E[φ(u) φ(v)] for each φ of `functions`, entry by entry, with a fixed number of nodes per piece.

    Example:
        >>> one = torch.ones(1, dtype=torch.float64)
        >>> value, = expectations(lambda u: (u.abs(),), one, 0 * one, one, nodes=32)
        >>> abs(value.item() - 2 / math.pi) < 1e-9                # (E|u|)²
        True
    """
    xx, xy, yy = torch.broadcast_tensors(xx, xy, yy)
    entries = torch.stack([xx.flatten(), xy.flatten(), yy.flatten()]).cpu().double()
    away = [kink for kink in kinks if kink != 0]
    rule = (4 + len(away) ** 2) * nodes * (1 + 2 * len(away)) * nodes
    chunks = entries.split(max(1, EVALUATIONS // rule), dim=1)
    parts = [_polar(functions, *chunk, kinks=away, nodes=nodes) for chunk in chunks]
    return tuple(
        torch.cat(values).reshape(xx.shape).to(xx.device, xx.dtype) for values in zip(*parts, strict=True)
    )


def on_rays(kinks: Sequence[float]) -> bool:
    """Whether all kinks are at 0, so that pieces of the rule do not depend on the variances."""
    return all(kink == 0 for kink in kinks)


def grid_expectations(
    functions: Functions,
    xx: Float[Tensor, " k"],
    theta: Float[Tensor, " t"],
    yy: Float[Tensor, " q"],
    *,
    kinks: Sequence[float] = (),
    nodes: int,
    symmetric: bool,
) -> tuple[Float[Tensor, "t k q"], ...]:
    """E[φ(u) φ(v)] for all angles and pairs of variances; only half is computed if xx = yy (`symmetric`).

    Where the kinks allow, all pairs of variances share their nodes: the sum over nodes is a matrix product, and
    φ is evaluated once per variance and not once per pair.
    """
    if on_rays(kinks):
        per_angle = [_shared(functions, xx, angle, yy, nodes=nodes) for angle in theta]
        return tuple(torch.stack(values) for values in zip(*per_angle, strict=True))
    i, j = (
        torch.triu_indices(len(xx), len(yy))
        if symmetric
        else torch.cartesian_prod(torch.arange(len(xx)), torch.arange(len(yy))).T
    )
    x, y = xx[i], yy[j]
    xy = torch.cos(theta)[:, None] * x.sqrt() * y.sqrt()
    results = []
    for values in expectations(functions, x, xy, y, kinks=kinks, nodes=nodes):
        full = values.new_empty(len(theta), len(xx), len(yy))
        full[:, i, j] = values
        if symmetric:
            full[:, j, i] = values
        results.append(full)
    return tuple(results)


def _shared(
    functions: Functions,
    xx: Float[Tensor, " k"],
    theta: Float[Tensor, ""],
    yy: Float[Tensor, " q"],
    *,
    nodes: int,
) -> list[Float[Tensor, "k q"]]:
    right = math.pi / 2
    axes = [0 * theta - right, theta - right, 0 * theta + right, theta + right, 0 * theta + 3 * right]
    direction, arc = _pieces(axes, nodes)
    r, weights = _pieces([0 * theta, 0 * theta + REACH], nodes)
    symmetric = torch.equal(xx, yy)
    if symmetric:
        # ϑ -> θ - ϑ exchanges u and v: directions from the middle of one sector to that of its opposite do.
        half = slice(nodes + nodes // 2, 3 * nodes + (nodes + 1) // 2)
        direction, arc = direction[half], arc[half].clone()
        arc[[0, -1]] /= 1 + nodes % 2
    weights = (arc[:, None] * (weights * r * torch.exp(-r * r / 2))).flatten() / (2 * math.pi)
    u, v = ((torch.cos(angle)[:, None] * r).flatten() for angle in (direction, direction - theta))
    at_u, at_v = functions(_std(xx)[:, None] * u), functions(_std(yy)[:, None] * v)
    found = [(f * weights) @ g.T for f, g in zip(at_u, at_v, strict=True)]
    return [value + value.T for value in found] if symmetric else found


def line_expectations(
    functions: Functions, xx: Float[Tensor, " n"], *, kinks: Sequence[float] = (), nodes: int
) -> tuple[Float[Tensor, " n"], ...]:
    """E[φ(u)²] for each φ, u ~ N(0, xx): the same rule on the line, split at 0, ±BEND and at the kinks.

    Differentiable in xx.
    """
    std = _std(xx)
    zero = torch.zeros_like(std)
    edges = [zero - REACH, zero, zero + REACH]
    edges += [(kink / std).clamp(-REACH, REACH) for kink in (-BEND, BEND, *kinks) if kink != 0]
    z, weights = _pieces(edges, nodes)
    weights = weights * torch.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    return tuple((values * values * weights).sum(-1) for values in functions(std[..., None] * z))


def _polar(
    functions: Functions, xx: Tensor, xy: Tensor, yy: Tensor, *, kinks: Sequence[float], nodes: int
) -> list[Tensor]:
    sx, sy, theta = _std(xx), _std(yy), angle_between(xx, xy, yy)
    right, cos, sin = math.pi / 2, torch.cos(theta), torch.sin(theta)
    edges = [0 * theta - right, theta - right, 0 * theta + right, theta + right, 0 * theta + 3 * right]
    for first in kinks:
        for second in kinks:
            crossing = torch.atan2(second / sy - cos * (first / sx), sin * (first / sx))
            edges.append(torch.where(crossing < -right, crossing + 2 * math.pi, crossing))
    direction, arc = _pieces(edges, nodes)
    along = [sx[:, None] * torch.cos(direction), sy[:, None] * torch.cos(direction - theta[:, None])]

    zero = torch.zeros_like(direction)
    stops = [zero, zero + REACH]
    for slope in along:
        stops += [torch.where(kink * slope > 0, kink / slope, REACH).clamp(max=REACH) for kink in kinks]
    r, weights = _pieces(stops, nodes)
    weights = weights * r * torch.exp(-r * r / 2) * (arc / (2 * math.pi))[..., None]
    at_u, at_v = (functions(slope[..., None] * r) for slope in along)
    return [(f * g * weights).sum((1, 2)) for f, g in zip(at_u, at_v, strict=True)]


def angle_between(xx: Tensor, xy: Tensor, yy: Tensor) -> Tensor:
    """θ = arctan2(sqrt(xx yy - xy²), xy), exactly 0 for xx = xy = yy, and π/2 where a variance is 0."""
    tiny = torch.finfo(xx.dtype).tiny
    rest = torch.addcmul(yy, xy, xy / xx.clamp(min=tiny), value=-1)
    return math.pi / 2 - torch.atan2(xy, rest.clamp_(min=0).sqrt_().mul_(xx.sqrt()))


def _pieces(edges: list[Tensor], nodes: int) -> tuple[Tensor, Tensor]:
    """Nodes and weights of the rule between neighboring edges, along a new last axis."""
    x, w = (torch.from_numpy(part).to(edges[0]) for part in unit_rule(nodes))
    sorted_edges = torch.stack(edges, -1).sort(-1).values
    widths = sorted_edges.diff(dim=-1)[..., None]
    return (sorted_edges[..., :-1, None] + widths * x).flatten(-2), (widths * w).flatten(-2)


@cache
def unit_rule(nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights on [0, 1], crowded at both ends."""
    x, w = np.polynomial.legendre.leggauss(nodes)
    x = (x + 1) / 2
    return x * x * (3 - 2 * x), 3 * w * x * (1 - x)


def _std(variance: Tensor) -> Tensor:
    # The square root's gradient at 0 is infinite; there it counts as 0.
    positive = variance > SMALLEST**2
    return torch.where(positive, torch.where(positive, variance, 1).sqrt(), SMALLEST)


@dataclass(frozen=True)
class Refined:
    """Expectations, with what the last refinement changed."""

    values: tuple[Tensor, ...]
    changes: tuple[Tensor, ...]
    """Estimates (and while convergence is exponential, far above) the absolute errors of the values."""
    worst: float
    """The largest change relative to sqrt(E[φ(u)²] E[φ(v)²])."""
    nodes: int
    """Nodes per piece before the last refinement: with them the errors are about `changes`."""


def refined(
    functions: Functions,
    xx: Tensor,
    xy: Tensor,
    yy: Tensor,
    *,
    kinks: Sequence[float] = (),
    tolerance: float = 1e-12,
    most: int = MOST,
) -> Refined:
    """`expectations` with half as many nodes again until the relative change is within the tolerance.

    Each entry takes as many as it needs, and it ends with `most` nodes per piece in any case.
    """
    norms = zip(*(refined_line(functions, variance, kinks=kinks) for variance in (xx, yy)), strict=True)
    xx, xy, yy, *scales = torch.broadcast_tensors(xx, xy, yy, *(norm(x, y) for x, y in norms))
    shape, entries = xy.shape, [entry.flatten() for entry in (xx, xy, yy)]
    scales = torch.stack([scale.flatten() for scale in scales])
    nodes, values = FEWEST, torch.stack(expectations(functions, *entries, kinks=kinks, nodes=FEWEST))
    changes, open_ = torch.full_like(values, math.inf), torch.arange(values.shape[1], device=values.device)
    while True:
        more = nodes * 3 // 2
        finer = torch.stack(
            expectations(functions, *(entry[open_] for entry in entries), kinks=kinks, nodes=more)
        )
        changes[:, open_] = (finer - values[:, open_]).abs()
        values[:, open_] = finer
        worst = (changes / scales).amax(0)
        open_ = (worst > tolerance).nonzero()[:, 0]
        if not len(open_) or more >= most:
            break
        nodes = more
    found, changed = (tuple(part.reshape(shape) for part in parts) for parts in (values, changes))
    return Refined(found, changed, float(worst.max()), nodes)


def refined_line(
    functions: Functions, xx: Tensor, *, kinks: Sequence[float] = (), tolerance: float = 1e-13
) -> tuple[Tensor, ...]:
    """`line_expectations` with the number of nodes doubled until nothing changes; differentiable in xx."""
    flat = xx.flatten().cpu().double()
    nodes, values = FEWEST, line_expectations(functions, flat.detach(), kinks=kinks, nodes=FEWEST)
    while nodes < 4 * MOST:
        nodes, old = 2 * nodes, values
        values = line_expectations(functions, flat.detach(), kinks=kinks, nodes=nodes)
        if all(bool(((a - b).abs() <= tolerance * a).all()) for a, b in zip(values, old, strict=True)):
            break
    if xx.requires_grad and torch.is_grad_enabled():
        values = line_expectations(functions, flat, kinks=kinks, nodes=nodes)
    return tuple(value.reshape(xx.shape).to(xx.device, xx.dtype) for value in values)


def norm(x: Tensor, y: Tensor) -> Tensor:
    """sqrt(x) sqrt(y), never 0: what an expectation with squares x and y is measured by."""
    tiny = torch.finfo(x.dtype).tiny
    return x.sqrt().clamp(min=tiny**0.5) * y.sqrt().clamp(min=tiny**0.5)
