"""Tables of normalized Gaussian expectations: Chebyshev interpolation in the angle and both standard deviations.

For fixed variances E[φ(u) φ(v)] is a smooth function of the angle θ between u and v, whether φ has kinks or not,
and divided by sqrt(E[φ(u)²] E[φ(v)²]) it is a smooth function, of order one, of s = log(1 + std) of u and v:

    E[φ(u) φ(v)] / sqrt(E[φ(u)²] E[φ(v)²])  =  Σ_kpq  c_kpq  T_k(2θ/π - 1) T_p(s_u) T_q(s_v)

Quadrature gives the values at some hundreds or thousands of Chebyshev points; an entry then costs a few dozen
terms.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor

from tangentkit.infinite.closed_forms import Steps
from tangentkit.infinite.quadrature import (
    Functions,
    grid_expectations,
    norm,
    on_rays,
    refined,
    refined_line,
)

FINE, ANYWHERE, COARSE = (1e-10, 180, 257, 65), (1e-9, 180, 257, 1), (1e-6, 54, 65, 17)
"""What a table aims at relative to sqrt(E[φ(u)²] E[φ(v)²]), and its most nodes, points in θ and in each std.

The others hold for kinks elsewhere than at 0, for single variances and for many: then every pair of variances
needs nodes of its own, and a finer table would take minutes."""
ANGLES, STDS = 17, 9
"""Chebyshev points to begin with."""
PROBES = (0.01, 0.4, 1.4, 2.4, 3.1)
"""Angles at which the other sizes of a table are chosen."""


@dataclass(frozen=True)
class Region:
    """Where a table must hold: an interval of log(1 + std), or two single variances."""

    low: float
    high: float
    single: bool = False
    """Whether low and high are the variances of u and of v, and the only ones."""

    def variances(self, points: int) -> tuple[Float[Tensor, " k"], Float[Tensor, " k"]]:
        """The variances of u and of v at Chebyshev points (few), or the single ones."""
        if self.single:
            left, right = torch.tensor([[self.low], [self.high]], dtype=torch.float64)
            return left, right
        grid = (self.low + (self.high - self.low) * (_chebyshev_points(points) + 1) / 2).expm1().square()
        return grid, grid


def region_of(xx: Tensor, yy: Tensor, *, single: bool = True) -> Region:
    """The region of these variances, from a small family, so that tiles of one matrix share their tables.

    Intervals have lengths 2^i and begin at multiples of a quarter of that. Variances that
    agree but for rounding are single if `single` allows it.

    Example:
        >>> region_of(torch.tensor([0.5, 2.0]), torch.tensor([1.0]))
        Region(low=0.5, high=1.0, single=False)
    """
    (x0, x1), (y0, y1) = (
        [float(bound) for bound in torch.aminmax(variance.detach())] for variance in (xx, yy)
    )
    noise = 8 * torch.finfo(xx.dtype).eps
    if single and x1 - x0 <= noise * x1 and y1 - y0 <= noise * y1:
        digits = 14 if xx.dtype == torch.float64 else 7
        return Region(float(f"{x1:.{digits}g}"), float(f"{y1:.{digits}g}"), single=True)
    least, most = (math.log1p(math.sqrt(max(bound, 0.0))) for bound in (min(x0, y0), max(x1, y1)))
    size = 0.5
    while most > (low := math.floor(least / (size / 4)) * (size / 4)) + size:
        size *= 2
    return Region(low, low + size)


@dataclass(frozen=True, eq=False)
class Table:
    """Chebyshev coefficients of the normalized expectations of several functions over a region."""

    region: Region
    coefficients: tuple[Float[Tensor, "t k k"], ...]
    error: float
    """Estimated, relative to sqrt(E[φ(u)²] E[φ(v)²]): the quadrature's and the interpolation's."""

    def __call__(self, xx: Tensor, theta: Tensor, yy: Tensor) -> tuple[Tensor, ...]:
        """The normalized expectations for variances xx, yy and angles θ (of the full shape)."""
        t = theta * (2 / math.pi) - 1
        x, y = (self._places(v.reshape((1,) * (t.ndim - v.ndim) + v.shape)) for v in (xx, yy))
        return tuple(
            _chebyshev_sum(c.to(t), _polynomials(x, c.shape[1]), t, _polynomials(y, c.shape[1]))
            for c in self.coefficients
        )

    def _places(self, variance: Tensor) -> Tensor:
        """Where in [-1, 1] the table holds these variances."""
        if self.region.single:
            return variance
        # The square root's gradient at 0 is infinite; there it counts as 0.
        std = torch.where(variance > 0, torch.where(variance > 0, variance, 1).sqrt(), 0)
        low, high = self.region.low, self.region.high
        return (torch.log1p(std) - low) * (2 / (high - low)) - 1


def tabulate(functions: Functions, region: Region, *, kinks: Sequence[float] = ()) -> Table:
    """The table of E[φ(u) φ(v)] for each φ of `functions`, as fine as its aim asks and its limits allow."""
    tolerance, most_nodes, most_angles, most_stds = (
        FINE if on_rays(kinks) else ANYWHERE if region.single else COARSE
    )
    left, right = region.variances(3)
    probes = torch.tensor(PROBES, dtype=torch.float64)
    xx, yy = left[:, None, None], right[:, None]
    xy = torch.cos(probes) * xx.sqrt() * yy.sqrt()
    trial = refined(functions, xx, xy, yy, kinks=kinks, tolerance=tolerance / 10, most=most_nodes)
    source = _Source(functions, region, kinks, trial.nodes)

    angles, stds = ANGLES, 1 if region.single else STDS
    while True:
        coefficients = [_coefficients(value) for value in source(*region.variances(stds), _angles(angles))]
        in_angle = max(float(c[-3:].abs().amax((1, 2)).sum()) for c in coefficients)
        in_std = 0.0 if stds == 1 else max(float(c[:, -2:].abs().amax((0, 2)).sum()) for c in coefficients)
        finer_angles = in_angle > tolerance and angles < most_angles
        finer_stds = in_std > tolerance and stds < most_stds
        if not (finer_angles or finer_stds):
            break
        angles = 2 * angles - 1 if finer_angles else angles
        stds = 2 * stds - 1 if finer_stds else stds
    table = Table(region, tuple(_trimmed(c, tolerance / 10) for c in coefficients), trial.worst)
    # The last coefficients overstate the error by far; what counts is seen between the points of the table.
    between = region.variances(4)
    found = table(
        between[0][:, None], probes[:, None, None].expand(-1, len(between[0]), len(between[1])), between[1]
    )
    misses = [float((f - v).abs().max()) for f, v in zip(found, source(*between, probes), strict=True)]
    return replace(table, error=trial.worst + 2 * max(misses))


@dataclass(frozen=True)
class _Source:
    """The normalized expectations themselves, on grids of variances and angles, by quadrature."""

    functions: Functions
    region: Region
    kinks: Sequence[float]
    nodes: int

    def __call__(
        self, xx: Float[Tensor, " k"], yy: Float[Tensor, " k"], theta: Float[Tensor, " t"]
    ) -> list[Float[Tensor, "t k k"]]:
        """Of shape (angles, variances of u, variances of v)."""
        same = not self.region.single
        values = grid_expectations(
            self.functions, xx, theta, yy, kinks=self.kinks, nodes=self.nodes, symmetric=same
        )
        norms = (refined_line(self.functions, variance, kinks=self.kinks) for variance in (xx, yy))
        return [value / norm(x[:, None], y) for value, x, y in zip(values, *norms, strict=True)]


def _coefficients(values: Float[Tensor, "t k k"]) -> Float[Tensor, "t k k"]:
    angles, stds = _transform(values.shape[0]), _transform(values.shape[1])
    return torch.einsum("ta,abc,pb,qc->tpq", angles, values, stds, stds)


def _trimmed(coefficients: Float[Tensor, "t k k"], tolerance: float) -> Float[Tensor, "t k k"]:
    """Without the last degrees, as far as all together they are below the tolerance."""
    sizes = coefficients.abs()
    angles, stds = (
        max(1, int((part.flip(0).cumsum(0).flip(0) > tolerance).sum()))
        for part in (sizes.sum((1, 2)), sizes.sum((0, 1)))
    )
    return coefficients[:angles, :stds, :stds].contiguous()


def _chebyshev_points(points: int) -> Float[Tensor, " k"]:
    return torch.cos((torch.arange(points, dtype=torch.float64) + 0.5) * (math.pi / points))


def _angles(points: int) -> Float[Tensor, " t"]:
    return (_chebyshev_points(points) + 1) * (math.pi / 2)


@cache
def _transform(points: int) -> Float[Tensor, "k k"]:
    """From values at the Chebyshev points to coefficients."""
    k, j = torch.arange(points, dtype=torch.float64)[:, None], torch.arange(points, dtype=torch.float64)
    rows = torch.cos(k * (j + 0.5) * (math.pi / points)) * (2 / points)
    rows[0] /= 2
    return rows


def _polynomials(place: Tensor, count: int) -> Float[Tensor, "k ..."]:
    rows = [torch.ones_like(place), place]
    while len(rows) < count:
        rows.append(2 * place * rows[-1] - rows[-2])
    return torch.stack(rows[:count])


def _chebyshev_sum(
    coefficients: Float[Tensor, "t k k"], x: Float[Tensor, "k ..."], t: Tensor, y: Float[Tensor, "k ..."]
) -> Tensor:
    """Σ_kpq c_kpq T_k(t) x_p y_q by Clenshaw's recursion in t."""
    step = Steps(x, t, y)
    rows = torch.tensordot(coefficients, y, dims=1)
    outer = _as_matrices if t.ndim > 1 and x.shape[-1] == 1 and y.shape[-2] == 1 else _term_by_term
    ahead, last = torch.zeros_like(t), torch.zeros_like(t)
    for row in rows[1:].flip(0):
        new = step.addcmul(step.add(step.neg(last), outer(x, row)), t, ahead, value=2)
        ahead, last = new, ahead
    return step.addcmul(step.add(step.neg(last), outer(x, rows[0])), t, ahead)


def _as_matrices(x: Float[Tensor, "k ... n 1"], row: Float[Tensor, "k ... 1 m"]) -> Tensor:
    return x.squeeze(-1).movedim(0, -1) @ row.squeeze(-2).movedim(0, -2)


def _term_by_term(x: Float[Tensor, "k ..."], row: Float[Tensor, "k ..."]) -> Tensor:
    total = x[0] * row[0]
    for p in range(1, len(x)):
        total = torch.addcmul(total, x[p], row[p])
    return total
