"""Scalar functions that a forward pass writes out: `h * torch.sigmoid(h)`, `torch.maximum(h, 0.1 * h)`.

Whatever is done entry by entry to one Gaussian field, in however many steps, is one scalar function of it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from tangentkit.infinite.duals.closed_forms import Rectifier, Sign
from tangentkit.infinite.duals.dual import Dual
from tangentkit.infinite.duals.piecewise_linear import PiecewiseLinear
from tangentkit.infinite.duals.pointwise import Pointwise


def as_number(x: Tensor, *_: Any, **__: Any) -> Tensor:
    """What a conversion to another type is here: comparisons become 0 and 1, numbers stay as exact as they are."""
    return x.to(torch.float64)


def maximum(input: Tensor | float, other: Tensor | float) -> Tensor:
    """torch.maximum that takes numbers too."""
    return torch.maximum(*(torch.as_tensor(x, dtype=torch.float64) for x in (input, other)))


def minimum(input: Tensor | float, other: Tensor | float) -> Tensor:
    """torch.minimum that takes numbers too."""
    return torch.minimum(*(torch.as_tensor(x, dtype=torch.float64) for x in (input, other)))


MEETINGS = {
    *("clamp", "clip", "clamp_min", "clamp_max", "maximum", "minimum", "max", "min", "fmax", "fmin"),
    *("gt", "ge", "lt", "le", "greater", "greater_equal", "less", "less_equal"),
}
"""Steps that bend or jump where their first argument meets one of the others."""
STEPS: dict[str, Callable | None] = {
    **dict.fromkeys(("add", "radd", "iadd", "sub", "rsub", "isub", "subtract", "neg", "negative")),
    **dict.fromkeys(("mul", "multiply", "rmul", "imul", "div", "divide", "truediv", "rtruediv", "itruediv")),
    **dict.fromkeys(("pow", "ipow", "rpow", "square", "where", "masked_fill")),
    **dict.fromkeys(("and", "or", "xor", "invert", "logical_and", "logical_or", "logical_not")),
    **dict.fromkeys(("zeros_like", "ones_like", "full_like")),
    **dict.fromkeys(("to", "float", "double", "type", "type_as"), as_number),
    **dict.fromkeys(MEETINGS),
    **dict.fromkeys(("maximum", "max", "fmax"), maximum),
    **dict.fromkeys(("minimum", "min", "fmin"), minimum),
}
"""Steps that act entry by entry and bend nowhere else, and what to call instead of them."""
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
        arguments = [_value(part, u) for part in self.arguments]
        options = {name: _value(part, u) for name, part in self.options}
        if isinstance(self.function, str):
            return getattr(arguments[0], self.function)(*arguments[1:], **options)
        return self.function(*arguments, **options)

    @property
    def terms(self) -> list["Variable | Expression | float"]:
        """The arguments that are functions of u or numbers."""
        every = (*self.arguments, *(value for _, value in self.options))
        return [part for part in every if isinstance(part, (Variable, Expression, int, float))]

    def kinks(self) -> tuple[float, ...]:
        """Where the function bends or jumps: where its parts do, where the last step does, and where parts meet."""
        found = {kink for part in self.terms if isinstance(part, Expression) for kink in part.kinks()}
        varying = next(part for part in self.terms if isinstance(part, (Variable, Expression)))
        for bend in self.bends:
            found |= set(_solutions(varying, bend))
        if self.__name__.strip("_") in MEETINGS:
            first, *others = self.terms
            for other in others:
                found |= set(_solutions(first, other))
        return tuple(sorted(found))

    def dual(self) -> Dual:
        """Its dual: of a piecewise linear function if it is one, by quadrature otherwise."""
        if self(torch.zeros(1, dtype=torch.float64)).dtype == torch.bool:
            return Expression(as_number, (self,)).dual()
        return _piecewise_linear(self) or Pointwise(self, self.kinks())


def _value(part: Any, u: Tensor) -> Any:
    return part(u) if isinstance(part, (Variable, Expression)) else part


def bends_of(dual: Dual) -> tuple[float, ...]:
    """Where a function bends or jumps."""
    if isinstance(dual, (Rectifier, Sign)):
        return (0.0,)
    return dual.kinks if isinstance(dual, (Pointwise, PiecewiseLinear)) else ()


def _solutions(first: Any, second: Any) -> list[float]:
    """Where a function of u takes a value, or that of another one, to rounding."""
    if not isinstance(first, (Variable, Expression)):
        first, second = second, first
    if isinstance(first, Variable) and not isinstance(second, (Variable, Expression)):
        return [float(second)]
    far = math.asinh(FARTHEST)
    u = torch.linspace(-far, far, 20_001, dtype=torch.float64).sinh()

    def sign(u: Tensor) -> Tensor:
        return (_value(first, u) - _value(second, u)).sign()

    signs = sign(u)
    found = u[signs == 0].tolist() if int((signs == 0).sum()) < 10 else []
    low, high = u[:-1], u[1:]
    crossing = signs[:-1] != signs[1:]
    low, high, side = low[crossing], high[crossing], signs[:-1][crossing]
    for _ in range(80):
        middle = (low + high) / 2
        left = sign(middle) == side
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
