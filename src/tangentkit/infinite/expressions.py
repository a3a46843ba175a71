"""Scalar functions that a forward pass writes out: `h * torch.sigmoid(h)`, `torch.relu(h) ** 2`, `h.clamp(-1, 1)`.

Whatever is done entry by entry to one Gaussian field, in however many steps, is one scalar function of it.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from tangentkit.infinite.closed_forms import Rectifier, Sign
from tangentkit.infinite.dual import Dual
from tangentkit.infinite.pointwise import Pointwise
from tangentkit.infinite.pointwise_linear import PiecewiseLinear

ARITHMETIC = {
    *("add", "radd", "iadd", "sub", "rsub", "isub", "mul", "multiply", "rmul", "imul"),
    *("div", "divide", "truediv", "rtruediv", "itruediv", "neg", "negative", "pow", "ipow", "rpow", "square"),
}
"""Operations that bend nowhere by themselves."""
BOUNDS = {"clamp", "clip", "clamp_min", "clamp_max"}
"""Operations that bend where a value meets one of their other arguments."""
FARTHEST = 1e3
"""Where the search for kinks ends."""


@dataclass(frozen=True)
class Variable:
    """The argument u itself."""

    def __call__(self, u: Tensor) -> Tensor:
        """A copy, since a step may be in place."""
        return u.clone()


@dataclass(frozen=True)
class Expression:
    """A function of one number, made of steps.

    Example:
        >>> swish = Expression(torch.mul, (Variable(), Expression(torch.sigmoid, (Variable(),))))
        >>> swish(torch.zeros(2) + 1)
        tensor([0.7311, 0.7311])
    """

    function: Callable | str
    """A function, or the name of a tensor's method."""
    arguments: tuple[Any, ...]
    options: tuple[tuple[str, Any], ...] = ()
    bends: tuple[float, ...] = ()
    """The values of its first hidden argument at which the last step bends or jumps."""

    @property
    def __name__(self) -> str:
        return (
            self.function
            if isinstance(self.function, str)
            else getattr(self.function, "__name__", "function")
        )

    def __call__(self, u: Tensor) -> Tensor:
        """The value, entry by entry."""
        arguments = [part(u) if isinstance(part, (Variable, Expression)) else part for part in self.arguments]
        options = dict(self.options)
        if isinstance(self.function, str):
            return getattr(arguments[0], self.function)(*arguments[1:], **options)
        return self.function(*arguments, **options)

    @property
    def parts(self) -> Iterator["Variable | Expression"]:
        """The arguments that depend on u."""
        return (part for part in self.arguments if isinstance(part, (Variable, Expression)))

    def kinks(self) -> tuple[float, ...]:
        """Where the function bends or jumps: where its parts do, and where a part takes a value that it bends at."""
        found = {kink for part in self.parts if isinstance(part, Expression) for kink in part.kinks()}
        for bend in self.bends:
            found |= set(_solutions(next(self.parts), bend))
        return tuple(sorted(found))

    def dual(self) -> Dual:
        """Its dual: of a piecewise linear function if it is one, by quadrature otherwise."""
        return _piecewise_linear(self) or Pointwise(self, self.kinks())


def bends_of(dual: Dual) -> tuple[float, ...]:
    """Where a function bends or jumps."""
    if isinstance(dual, (Rectifier, Sign)):
        return (0.0,)
    return dual.kinks if isinstance(dual, (Pointwise, PiecewiseLinear)) else ()


def _solutions(part: "Variable | Expression", value: float) -> list[float]:
    """Where a part takes a value, to rounding."""
    if isinstance(part, Variable):
        return [value]
    far = math.asinh(FARTHEST)
    u = torch.linspace(-far, far, 20_001, dtype=torch.float64).sinh()
    signs = (part(u) - value).sign()
    found = u[signs == 0].tolist() if int((signs == 0).sum()) < 10 else []
    low, high = u[:-1], u[1:]
    crossing = signs[:-1] != signs[1:]
    low, high, side = low[crossing], high[crossing], signs[:-1][crossing]
    for _ in range(80):
        middle = (low + high) / 2
        left = (part(middle) - value).sign() == side
        low, high = torch.where(left, middle, low), torch.where(left, high, middle)
    # A grid point and the crossings on both sides of it are one.
    merged: list[float] = []
    for kink in sorted([*found, *low.tolist()]):
        if not merged or kink - merged[-1] > 1e-9 * (1 + abs(kink)):
            merged.append(kink if abs(kink) > 1e-12 else 0.0)
    return merged


def _piecewise_linear(function: Expression) -> PiecewiseLinear | None:
    kinks = function.kinks()
    ends = [min(kinks, default=0.0) - 8, *kinks, max(kinks, default=0.0) + 8]
    slopes, heights = [], []
    for low, high in pairwise(ends):
        u = low + (high - low) * torch.linspace(0, 1, 9, dtype=torch.float64)
        # Inside of the piece: at a jump the ends belong to a neighbor.
        inside, values = u[1:-1], function(u[1:-1])
        slope = float((values[-1] - values[0]) / (inside[-1] - inside[0]))
        height = float(values[0] - slope * inside[0])
        scale = 1e-12 * (1 + float(values.abs().max()))
        if bool((values - (height + slope * inside)).abs().max() > scale):
            return None
        if heights and abs(height + slope * low - (heights[-1] + slopes[-1] * low)) > 10 * scale:
            return None
        slopes.append(slope)
        heights.append(height)
    return PiecewiseLinear(tuple(kinks), tuple(slopes), heights[0])
