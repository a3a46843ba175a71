"""Tables of normalized Gaussian expectations: Chebyshev interpolation in the angle and both standard deviations.

For fixed variances E[φ(u) φ(v)] is a smooth function of the angle θ between u and v, whether φ has kinks or not,
and divided by sqrt(E[φ(u)²] E[φ(v)²]) it is a smooth function, of order one, of s = log(1 + std) of u and v:

    E[φ(u) φ(v)] / sqrt(E[φ(u)²] E[φ(v)²])  =  Σ_kpq  c_kpq  T_k(2θ/π - 1) T_p(s_u) T_q(s_v)

Quadrature gives the values at some hundreds or thousands of Chebyshev points; an entry then costs a few dozen
products of what is known of u and of v.

Kinks elsewhere than at 0 are the exception: where κ/std of u nears λ/std of v, and θ nears 0 or π, the expectation
bends as sharply as the function. There the table is of what remains without the pieces P at the kinks,
E[φ(u) φ(v)] - E[P(u) P(v)], from Hermite coefficients of φ and P.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor

from tangentkit.infinite.duals.dual import Steps
from tangentkit.infinite.duals.hermite import hermite_coefficients
from tangentkit.infinite.duals.kinks import Pieces, pieces_of
from tangentkit.infinite.duals.quadrature import (
    Functions,
    angle_between,
    grid_expectations,
    norm,
    on_rays,
    refined,
    refined_line,
)

FINE, ANYWHERE = (1e-10, 180, 257, 65), (1e-9, 180, 257, 1)
SPLIT, COARSE, DOUBTFUL = (1e-8, 122, 129, 65), (1e-6, 54, 65, 17), 1e-6
"""What a table aims at relative to sqrt(E[φ(u)²] E[φ(v)²]), and its most nodes, points in θ and in each std.

All but the first hold for kinks elsewhere than at 0: for single variances, and for many without the pieces at the
kinks. If the error is then doubtful, as where stds of tens of kinks make the pieces far larger than the function, the
whole is tried: every pair of variances needs nodes of its own, and a finer table would take minutes."""
ANGLES, STDS = 17, 9
"""Chebyshev points to begin with."""
ROOTS = 33
"""Chebyshev points for what depends on one std alone."""
PROBES = (0.01, 0.4, 1.4, 2.4, 3.1)
"""Angles at which the other sizes of a table are chosen."""
ORDER, LARGEST = 5, 1e3
"""Derivatives whose jumps are taken out, and how much larger than the function the pieces may be that do it."""
DEGREES = 1024
"""Hermite coefficients of what remains: as smooth as that is, they fall like n^(-15/4)."""
HARD = (0.0, 0.1, 3.1), (1.0, 1.03, 2.0)
"""Angles, and ratios of stds, where a table without the pieces is compared with quadrature."""


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

    Intervals begin and end at multiples of a quarter of the least 2^i that is not shorter: a table takes the longer
    to make the further it reaches. Variances that agree but for rounding are single if `single` allows it.

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
    step = max(0.5, 2.0 ** math.ceil(math.log2(max(most - least, 0.5)))) / 4
    return Region(math.floor(least / step) * step, math.ceil(most / step) * step)


@dataclass(frozen=True, eq=False)
class Terms:
    """A symmetric table of one function as few products: Σ_k T_k(t) Σ_r ±f_kr(s_u) f_kr(s_v).

    Each matrix of coefficients c_k is taken apart into its eigenvectors.
    """

    ranks: tuple[int, ...]
    """How many products each degree k has."""
    vectors: Float[Tensor, "f k"]
    """Chebyshev coefficients of the f_kr, degree by degree."""
    signs: Float[Tensor, " f"]

    @staticmethod
    def of(coefficients: Float[Tensor, "t k k"], tolerance: float) -> "Terms":
        """The terms without those that are, all together, below the tolerance everywhere."""
        values, vectors = torch.linalg.eigh((coefficients + coefficients.mT) / 2)
        # |T_p| <= 1, so no product is larger than this anywhere.
        bounds = (values.abs() * vectors.abs().sum(1).square()).flatten()
        order = bounds.argsort()
        kept = torch.ones(len(bounds), dtype=torch.bool)
        kept[order[bounds[order].cumsum(0) <= tolerance]] = False
        kept = kept.reshape(values.shape)
        rows = (vectors * values.abs().sqrt()[:, None]).mT[kept]
        ranks = kept.sum(1).tolist()
        while len(ranks) > 1 and not ranks[-1]:
            ranks.pop()
        return Terms(tuple(ranks), rows, values[kept].sign())

    def features(self, polynomials: Float[Tensor, "k ..."]) -> Float[Tensor, "f ..."]:
        """f_kr, given T_p(s)."""
        return torch.tensordot(self.vectors.to(polynomials), polynomials, dims=1)

    def sum(self, left: Float[Tensor, "f ..."], t: Tensor, right: Float[Tensor, "f ..."]) -> Tensor:
        """Σ_kr T_k(t) left_kr right_kr by Clenshaw's recursion; even and odd functions take every other degree."""
        step = Steps(left, t, right)
        odd, even = any(self.ranks[1::2]), any(self.ranks[0::2])
        stride, first = (1, 0) if odd and even else (2, int(odd))
        argument = t if stride == 1 else 2 * t * t - 1
        ends = torch.tensor(self.ranks).cumsum(0).tolist()
        ahead = last = None
        for degree in reversed(range(first, max(len(self.ranks), first + 1), stride)):
            here = slice(ends[degree] - self.ranks[degree], ends[degree])
            new = _products_minus(step, last, left[here], right[here], t)
            ahead, last = new if ahead is None else step.addcmul(new, argument, ahead, value=2), ahead
        assert ahead is not None
        if first:
            return step.mul(ahead if last is None else step.sub(ahead, last), t)
        return ahead if last is None else step.addcmul(ahead, argument, last, value=-1)


@dataclass(frozen=True, eq=False)
class Table:
    """The normalized expectations of several functions over a region."""

    region: Region
    terms: tuple[Terms, ...]
    error: float
    """Estimated, relative to sqrt(E[φ(u)²] E[φ(v)²]): the quadrature's and the interpolation's."""
    roots: tuple[Float[Tensor, " k"], ...] | None = None
    """Chebyshev coefficients of sqrt(E[φ(u)²]) in s, where they are as good as the quadrature."""
    pieces: Pieces | None = None
    """What must be added to what the table holds: E[P(u) P(v)], and E[P'(u) P'(v)]."""

    def __call__(self, xx: Tensor, theta: Tensor, yy: Tensor) -> tuple[Tensor, ...]:
        """The normalized expectations for variances xx, yy and angles θ (of the full shape)."""
        t = theta * (2 / math.pi) - 1
        x, y = (self.features(v.reshape((1,) * (t.ndim - v.ndim) + v.shape)) for v in (xx, yy))
        return tuple(
            terms.sum(f, t, g * signed(terms.signs, g)) for terms, f, g in zip(self.terms, x, y, strict=True)
        )

    def features(self, variance: Tensor) -> list[Float[Tensor, "f ..."]]:
        """For each function what its terms need of a variance."""
        count = max(terms.vectors.shape[1] for terms in self.terms)
        polynomials = _polynomials(self._places(variance), count)
        return [terms.features(polynomials[: terms.vectors.shape[1]]) for terms in self.terms]

    def root_norms(self, variance: Tensor) -> list[Tensor] | None:
        """sqrt(E[φ(u)²]) of each function, if the table has it."""
        if self.roots is None:
            return None
        polynomials = _polynomials(self._places(variance), len(self.roots[0]))
        return [torch.tensordot(c, polynomials, dims=1) for c in self.roots]

    def _places(self, variance: Tensor) -> Tensor:
        """Where in [-1, 1] the table holds these variances."""
        if self.region.single:
            return variance
        # The square root's gradient at 0 is infinite; there it counts as 0.
        std = torch.where(variance > 0, torch.where(variance > 0, variance, 1).sqrt(), 0)
        low, high = self.region.low, self.region.high
        return (torch.log1p(std) - low) * (2 / (high - low)) - 1


def signed(signs: Float[Tensor, " f"], features: Float[Tensor, "f ..."]) -> Tensor:
    """The signs in a shape that multiplies features."""
    return signs.to(features).reshape(-1, *(1,) * (features.ndim - 1))


def tabulate(
    functions: Functions, region: Region, *, kinks: Sequence[float] = (), least: float = 0.0
) -> Table:
    """The table of E[φ(u) φ(v)] for each φ of `functions`, as fine as its aim asks and its limits allow.

    Args:
        functions: whose expectations.
        region: where.
        kinks: of the functions.
        least: errors below this do not matter, where numbers have fewer digits.
    """
    if region.single or on_rays(kinks):
        table = _tabulate_whole(functions, region, kinks, least, FINE if on_rays(kinks) else ANYWHERE)
    else:
        table = _tabulate_rest(functions, region, kinks, least)
        if table.error > DOUBTFUL:
            whole = _tabulate_whole(functions, region, kinks, least, COARSE)
            table = min(table, whole, key=lambda table: table.error)
    return replace(table, roots=_roots(functions, region, kinks))


def _tabulate_whole(
    functions: Functions,
    region: Region,
    kinks: Sequence[float],
    least: float,
    limits: tuple[float, int, int, int],
) -> Table:
    aim, most_nodes, *most = limits
    tolerance = max(aim, least)
    left, right = region.variances(3)
    probes = torch.tensor(PROBES, dtype=torch.float64)
    xx, yy = left[:, None, None], right[:, None]
    xy = torch.cos(probes) * xx.sqrt() * yy.sqrt()
    trial = refined(functions, xx, xy, yy, kinks=kinks, tolerance=tolerance / 10, most=most_nodes)
    table = _fitted(_Whole(functions, region, kinks, trial.nodes), region, tolerance, *most)
    return replace(table, error=trial.worst + table.error)


def _tabulate_rest(functions: Functions, region: Region, kinks: Sequence[float], least: float) -> Table:
    aim, most_nodes, *most = SPLIT
    tolerance = max(aim, least)
    pieces = _pieces(functions, region, kinks)
    table = replace(_fitted(_Rest(functions, pieces, kinks), region, tolerance, *most), pieces=pieces)

    angles, ratios = (torch.tensor(values, dtype=torch.float64) for values in HARD)
    xx = region.variances(4)[0][[0, 1, 2], None, None]
    least_variance, most_variance = (math.expm1(s) ** 2 for s in (region.low, region.high))
    yy = (xx * ratios.square()[:, None]).clamp(least_variance, most_variance)
    xy = torch.cos(angles) * xx.sqrt() * yy.sqrt()
    xx, xy, yy = (x.flatten() for x in torch.broadcast_tensors(xx, xy, yy))
    direct = refined(functions, xx, xy, yy, kinks=kinks, tolerance=tolerance / 10, most=most_nodes)
    norms = zip(*(refined_line(functions, variance, kinks=kinks) for variance in (xx, yy)), strict=True)
    parts = zip(table(xx, angle_between(xx, xy, yy), yy), pieces.both(xx, xy, yy), norms, strict=True)
    misses = [
        float((rest + (piece - value) / norm(*squares)).abs().max())
        for (rest, piece, squares), value in zip(parts, direct.values, strict=True)
    ]
    return replace(table, error=direct.worst + max(4 * max(misses), table.error))


def _pieces(functions: Functions, region: Region, kinks: Sequence[float]) -> Pieces:
    """The pieces at the kinks, of the highest order for which they do not dwarf the function itself."""

    def function(u: Tensor) -> Tensor:
        return functions(u)[0]

    if 0 not in kinks and pieces_of(function, kinks=(0.0,), order=1).pieces:
        kinks = (*kinks, 0.0)
    widest = torch.tensor([math.expm1(region.high) ** 2], dtype=torch.float64)
    size = float(refined_line(functions, widest, kinks=kinks)[0].sqrt())
    for order in range(ORDER, 0, -1):
        pieces = pieces_of(function, kinks=kinks, order=order)
        if float(refined_line(pieces, widest, kinks=kinks)[0].sqrt()) <= LARGEST * size:
            break
    return pieces


def _fitted(
    source: "_Whole | _Rest", region: Region, tolerance: float, most_angles: int, most_stds: int
) -> Table:
    """The table with as many points as the tolerance asks for; its error is that of the interpolation."""
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
    table = Table(region, tuple(Terms.of(c, tolerance / 10) for c in coefficients), math.inf)
    return replace(table, error=2 * _largest_miss(table, source, angles))


def _largest_miss(table: Table, source: "_Whole | _Rest", angles: int) -> float:
    """How far a table is from its source halfway between the angles of its points, and at 0 and π."""
    # The last coefficients overstate the error by far, and a few angles miss the peak of a narrow bump.
    ends = torch.tensor([math.pi, *_angles(angles), 0.0], dtype=torch.float64)
    theta = torch.cat([(ends[1:] + ends[:-1]) / 2, ends[[0, -1]]])
    xx, yy = table.region.variances(4)
    found = table(xx[:, None], theta[:, None, None].expand(-1, len(xx), len(yy)), yy)
    return max(float((f - v).abs().max()) for f, v in zip(found, source(xx, yy, theta), strict=True))


def _roots(functions: Functions, region: Region, kinks: Sequence[float]) -> tuple[Tensor, ...] | None:
    """Chebyshev coefficients of sqrt(E[φ(u)²]); None where it may vanish or bends too much for them."""
    if region.single or region.low <= 0:
        return None
    values = refined_line(functions, region.variances(ROOTS)[0], kinks=kinks)
    found = tuple(_transform(ROOTS) @ value.sqrt() for value in values)
    fits = all(float(c[-4:].abs().max()) <= 1e-13 * float(c.abs().max()) for c in found)
    return found if fits else None


@dataclass(frozen=True)
class _Whole:
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


@dataclass(frozen=True)
class _Rest:
    """What remains of the normalized expectations without the pieces: Σ_n (a_n a_n - p_n p_n) cosⁿ θ."""

    functions: Functions
    pieces: Pieces
    kinks: Sequence[float]

    def __call__(
        self, xx: Float[Tensor, " k"], yy: Float[Tensor, " k"], theta: Float[Tensor, " t"]
    ) -> list[Float[Tensor, "t k k"]]:
        """Of shape (angles, variances of u, variances of v), which must be the same."""
        assert torch.equal(xx, yy)
        coefficients = hermite_coefficients(
            lambda u: (*self.functions(u), *self.pieces(u)), xx.sqrt(), kinks=self.kinks, count=DEGREES
        )
        powers = torch.cos(theta)[:, None] ** torch.arange(DEGREES)
        squares = refined_line(self.functions, xx, kinks=self.kinks)
        found = []
        for a, p, square in zip(coefficients[:2], coefficients[2:], squares, strict=True):
            products = a[:, :, None] * a[:, None] - p[:, :, None] * p[:, None]
            found.append(torch.tensordot(powers, products, dims=1) / norm(square[:, None], square))
        return found


def _coefficients(values: Float[Tensor, "t k k"]) -> Float[Tensor, "t k k"]:
    angles, stds = _transform(values.shape[0]), _transform(values.shape[1])
    return torch.einsum("ta,abc,pb,qc->tpq", angles, values, stds, stds)


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


def _products_minus(
    step: Steps, last: Tensor | None, left: Float[Tensor, "r ..."], right: Float[Tensor, "r ..."], t: Tensor
) -> Tensor:
    """Σ_r left_r right_r - last, by matrix products where the shapes are (..., n, 1) and (..., 1, m)."""
    shapes = left.shape[-2:], right.shape[-2:]
    if len(left) and t.ndim > 1 and shapes == ((t.shape[-2], 1), (1, t.shape[-1])):
        a, b = left.squeeze(-1).movedim(0, -1), right.squeeze(-2).movedim(0, -2)
        a, b = (v.expand(*t.shape[:-2], *v.shape[-2:]).reshape(-1, *v.shape[-2:]) for v in (a, b))
        if last is None:
            return torch.bmm(a, b).reshape(t.shape)
        return step.baddbmm(last.reshape(-1, *t.shape[-2:]), a, b, beta=-1).reshape(t.shape)
    total = torch.zeros_like(t) if last is None else step.neg(last)
    for x, y in zip(left, right, strict=True):
        total = step.addcmul(total, x, y)
    return total
