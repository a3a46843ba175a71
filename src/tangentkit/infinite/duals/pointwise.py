"""The dual of any scalar function, by quadrature and tables of it."""

import copy
import math
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from tangentkit.core.errors import InputError
from tangentkit.infinite.duals.dual import Dual, Sides, widened
from tangentkit.infinite.duals.kinks import Pieces
from tangentkit.infinite.duals.quadrature import angle_between, on_rays, refined, refined_line
from tangentkit.infinite.duals.table import Region, Table, region_of, signed, tabulate

FEW = 256
"""Up to so many entries are integrated one by one: a table would cost more."""
FEW_WITH_KINKS, AS_GOOD = 32, 1e-8
"""The same for kinks elsewhere than at 0, and the error of a table that is then as good as quadrature."""
ALARM = 1e-5
"""Estimated relative error above which a warning is given."""
NARROW = 1e-3
"""Angle below which the gradient of the derivative is taken as at this angle."""


@dataclass(frozen=True, init=False)
class Pointwise(Dual):
    """The dual of any scalar function; its derivative comes from autograd.

    Relative errors, measured by sqrt(E[φ(u)²] E[φ(v)²]), are about 1e-10 where the function is smooth but for
    kinks at 0, and 1e-9 with kinks elsewhere, or 1e-8 if the pieces between them are no polynomials (a piecewise
    linear function is faster as `PiecewiseLinear`). `error` estimates them at given entries, and where they
    exceed 1e-5 a warning says so: at standard deviations of thousands, where tanh and sigmoid are all but steps.

    Gradients of `__call__` are those of the expectation; gradients of `derivative` come from the interpolant,
    with errors up to about 1e-5 near correlations ±1, where those of a function with kinks grow without bound
    and are cut off.

    Args:
        function: acts on each entry of a tensor of any shape; it will see float64 on the CPU.
        kinks: where the function, or a derivative of it of any order, jumps. Zero may be left out.

    Raises:
        InputError: the function does not act entry by entry, or a kink is not finite.

    Example:
        >>> dual = Pointwise(torch.nn.functional.hardtanh, kinks=(-1, 1))
        >>> one = torch.ones((), dtype=torch.float64)
        >>> round(dual.derivative_diag(one).item(), 6)                     # P(|u| < 1)
        0.682689
    """

    function: Callable[[Tensor], Tensor]
    kinks: tuple[float, ...]

    def __init__(self, function: Callable[[Tensor], Tensor], kinks: Iterable[float] = ()):
        object.__setattr__(self, "function", function)
        object.__setattr__(self, "kinks", tuple(sorted({float(kink) for kink in kinks})))
        if not all(math.isfinite(kink) for kink in self.kinks):
            raise InputError("bad kinks", expected="finite numbers", got=self.kinks)
        probe = torch.linspace(-2, 3, 6, dtype=torch.float64).reshape(2, 3)
        values = _in_double(function)(probe.clone())
        if not isinstance(values, Tensor) or values.shape != probe.shape:
            got = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
            raise InputError(f"{self.name} does not act entry by entry", expected=tuple(probe.shape), got=got)

    @property
    def name(self) -> str:
        """The name of the function."""
        return getattr(self.function, "__name__", None) or repr(self.function)

    def both(self, xx: Tensor, xy: Tensor, yy: Tensor) -> tuple[Tensor, Tensor]:
        """Both by interpolation, or for few entries by quadrature."""
        xy = widened(xx, xy, yy)
        if torch.is_grad_enabled() and (xx.requires_grad or xy.requires_grad or yy.requires_grad):
            pieces = self._table(xx, yy, single=False).pieces if xy.numel() else None
            return _with_pieces(pieces, _Recorded.apply(self, xx, xy, yy), xx, xy, yy)  # pyright: ignore
        if xy.numel() and self._integrates(xx, yy, xy.numel()):
            found = refined(self._functions, xx, xy, yy, kinks=self.kinks)
            _warn_of_error(self, found.worst, torch.stack([xx.max(), yy.max()]))
            kernel, derivative = found.values
            return kernel, derivative
        if xy.numel() == 0:
            return torch.zeros_like(xy), torch.zeros_like(xy)
        sides = self._tabulated(*_aligned(xx, yy, xy))
        kernel, derivative = sides(sides.left, xy, sides.right, slope=True)
        return kernel, derivative

    def diag(self, xx: Tensor) -> Tensor:
        """E[φ(u)²] by quadrature on the line."""
        return refined_line(self._functions, xx, kinks=self.kinks)[0]

    def derivative_diag(self, xx: Tensor) -> Tensor:
        """E[φ'(u)²] by quadrature on the line."""
        return refined_line(self._functions, xx, kinks=self.kinks)[1]

    def error(self, xx: Tensor, xy: Tensor, yy: Tensor) -> tuple[Tensor, Tensor]:
        """Estimated absolute errors of `both`: its distance from finer and finer quadrature.

        Costs tens of thousands of function values per entry: ask for a sample of the entries.
        """
        finest = refined(
            self._functions, xx.double(), xy.double(), yy.double(), kinks=self.kinks, tolerance=0
        )
        kernel, derivative = (
            (found - value).abs() + change
            for found, value, change in zip(self.both(xx, xy, yy), finest.values, finest.changes, strict=True)
        )
        return kernel, derivative

    def sides(self, xx: Tensor, yy: Tensor) -> Sides:
        """What the table needs to know of each variance, unless there are few, or gradients are wanted."""
        watched = torch.is_grad_enabled() and (xx.requires_grad or yy.requires_grad)
        if watched or self._integrates(xx, yy, xx.numel() * yy.numel()):
            return super().sides(xx, yy)
        return self._tabulated(xx, yy)

    def _integrates(self, xx: Tensor, yy: Tensor, entries: int) -> bool:
        """Whether so few entries are better integrated one by one; kinks elsewhere than at 0 make that slow."""
        if entries > FEW or on_rays(self.kinks):
            return entries <= FEW
        return entries <= FEW_WITH_KINKS or _built(self, region_of(xx, yy), 0.0).error > AS_GOOD

    def _table(self, xx: Tensor, yy: Tensor, *, single: bool = True) -> Table:
        # In float32 a table as fine as in float64 would only cost time.
        least = 0.0 if xx.dtype == torch.float64 else 1e-7
        return _table(self, region_of(xx, yy, single=single), least)

    def _tabulated(self, xx: Tensor, yy: Tensor, *, single: bool = True) -> "Tabulated":
        table = self._table(xx, yy, single=single)

        def features(variance: Tensor) -> list[Tensor]:
            exact = variance.double()
            watched = torch.is_grad_enabled() and exact.requires_grad
            roots = table.root_norms(exact) if exact.numel() > FEW and not watched else None
            if roots is None:
                roots = map(_root, refined_line(self._functions, exact, kinks=self.kinks))
            return [f * root for f, root in zip(table.features(exact), roots, strict=True)]

        left = features(xx)
        right = [g * signed(terms.signs, g) for terms, g in zip(table.terms, features(yy), strict=True)]
        # Pieces and what remains may both be larger than their sum, which float32 would not bear.
        dtype = xx.dtype if table.pieces is None else torch.float64
        return Tabulated(
            self, torch.cat([xx[None], *left]).to(dtype), torch.cat([yy[None], *right]).to(dtype), table
        )

    def _interpolated(self, xx: Tensor, theta: Tensor, yy: Tensor) -> tuple[Tensor, Tensor]:
        """What the table holds of both, differentiable in all arguments."""
        if theta.numel() == 0:
            return torch.zeros_like(theta), torch.zeros_like(theta)
        sides = self._tabulated(*_aligned(xx, yy, theta), single=False)
        kernel, derivative = sides.at_angle(sides.left, theta.to(sides.left), sides.right, slope=True)
        return kernel, derivative

    def _functions(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """φ(u) and φ'(u)."""
        watched = torch.is_grad_enabled() and u.requires_grad
        with torch.enable_grad():
            u = u if watched else u.detach().requires_grad_()
            # A clone, since an in-place activation would write into what is still needed.
            value = _in_double(self.function)(u.clone())
            slope = None
            if value.requires_grad:
                (slope,) = torch.autograd.grad(value.sum(), u, create_graph=watched, allow_unused=True)
        slope = torch.zeros_like(u) if slope is None else slope
        return (value, slope) if watched else (value.detach(), slope.detach())


@dataclass(frozen=True, eq=False)
class Tabulated(Sides):
    """Variances, and for each the features of φ and of φ' in a table, scaled by sqrt(E[φ(u)²])."""

    table: Table

    def __call__(self, left: Tensor, xy: Tensor, right: Tensor, *, slope: bool) -> tuple[Tensor, ...]:
        """E[φ(u) φ(v)], and with `slope` E[φ'(u) φ'(v)]."""
        exact = xy.to(left)
        found = self.at_angle(left, angle_between(left[0], exact, right[0]), right, slope=slope)
        return _with_pieces(self.table.pieces, found, left[0], xy, right[0])

    def at_angle(self, left: Tensor, theta: Tensor, right: Tensor, *, slope: bool) -> tuple[Tensor, ...]:
        """What the table holds of them, given the angle between u and v."""
        t, start, found = theta * (2 / math.pi) - 1, 1, []
        for terms in self.table.terms if slope else self.table.terms[:1]:
            here = slice(start, start + len(terms.signs))
            found.append(terms.sum(left[here], t, right[here]))
            start = here.stop
        return tuple(found)


class _Recorded(torch.autograd.Function):
    """What the table holds of `Pointwise.both`, with gradients.

    ∂/∂xy is E[φ' φ'] by Price's theorem, not a derivative of the table's.

    With the angle held fixed, xy moves along as cos θ sqrt(xx yy); what xy does beyond that is added. So no
    derivative of θ, infinite at correlations ±1, is ever taken.
    """

    @staticmethod
    def forward(dual: Pointwise, xx: Tensor, xy: Tensor, yy: Tensor) -> tuple[Tensor, Tensor]:
        return dual._interpolated(xx, angle_between(xx, xy, yy), yy)

    @staticmethod
    def setup_context(ctx, inputs: tuple, output: tuple) -> None:
        ctx.dual, *saved = inputs
        ctx.save_for_backward(*saved, output[1])

    @staticmethod
    @once_differentiable
    def backward(
        ctx, kernel_weight: Tensor, derivative_weight: Tensor
    ) -> tuple[None, Tensor, Tensor, Tensor]:
        xx, xy, yy, slope = ctx.saved_tensors
        theta = angle_between(xx, xy, yy)
        with torch.enable_grad():
            safe = theta.clamp(NARROW, math.pi - NARROW).requires_grad_()
            (turn,) = torch.autograd.grad(ctx.dual._interpolated(xx, safe, yy)[1].sum(), safe)
            spread = (xx.sqrt() * yy.sqrt() * torch.sin(safe)).detach()
            curvature = torch.where(spread > 0, -turn / spread.clamp(min=torch.finfo(spread.dtype).tiny), 0)

            leaves = xx, xy, yy = [leaf.detach().requires_grad_() for leaf in (xx, xy, yy)]
            kernel, derivative = ctx.dual._interpolated(xx, theta, yy)
            beyond = xy - torch.cos(theta) * (_root(xx) * _root(yy))
            total = kernel_weight * (kernel + slope * beyond) + derivative_weight * (
                derivative + curvature * beyond
            )
            x, between, y = torch.autograd.grad(total.sum(), leaves)
        return None, x, between, y


@lru_cache(maxsize=256)
def _built(dual: Pointwise, region: Region, least: float) -> Table:
    return tabulate(dual._functions, region, kinks=dual.kinks, least=least)


@lru_cache(maxsize=256)
def _table(dual: Pointwise, region: Region, least: float) -> Table:
    table = _built(dual, region, least)
    _warn_of_error(dual, table.error, torch.cat(region.variances(4)))
    return table


def _warn_of_error(dual: Pointwise, error: float, variances: Tensor) -> None:
    """Warns if an error, relative to sqrt(E[φ(u)²] E[φ(v)²]) and the same of φ', is too large for K or for Θ."""
    # Θ of the layer before, about as large as its variance, multiplies E[φ' φ'] and is added to E[φ φ].
    value, slope = refined_line(dual._functions, variances, kinks=dual.kinks)
    weight = (variances * slope / value.clamp(min=torch.finfo(value.dtype).tiny)).max()
    error *= max(1.0, float(weight))
    if error > ALARM:
        warnings.warn(
            f"the dual of {dual.name} has an estimated relative error of {min(error, 1.0):.0e}: "
            "normalize its inputs, or name all kinks of a function of your own (Pointwise(function, kinks=...))",
            stacklevel=3,
        )


def _with_pieces(
    pieces: Pieces | None, found: tuple[Tensor, ...], xx: Tensor, xy: Tensor, yy: Tensor
) -> tuple[Tensor, ...]:
    """The sum of what a table holds and of the pieces that it was made without."""
    if pieces is None:
        return found
    both = pieces.both(xx, xy, yy)[: len(found)]
    return tuple((rest + part).to(xy.dtype) for rest, part in zip(found, both, strict=True))


def _aligned(xx: Tensor, yy: Tensor, full: Tensor) -> tuple[Tensor, ...]:
    """Variances with as many axes as the full shape has."""
    return tuple(v.reshape((1,) * (full.ndim - v.ndim) + v.shape) for v in (xx, yy))


def _in_double(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    if isinstance(function, nn.Module):
        return copy.deepcopy(function).to("cpu", torch.float64).requires_grad_(False)
    return function


def _root(x: Tensor) -> Tensor:
    # The gradient at 0 is infinite; there it counts as 0.
    return torch.where(x > 0, torch.where(x > 0, x, 1).sqrt(), 0)
