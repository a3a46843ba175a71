"""From a scalar function, module or name to its dual.

`dual_of` knows torch's activations as modules (`nn.GELU()`), functions (`F.gelu`, `torch.tanh`) and names
("gelu"); what has no closed form becomes a `Pointwise` with its kinks in the right places.
"""

import difflib
import math
import re
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tangentkit.core.errors import ModelError
from tangentkit.infinite.duals.closed_forms import Erf as Erf
from tangentkit.infinite.duals.closed_forms import Exponential as Exponential
from tangentkit.infinite.duals.closed_forms import Gelu as Gelu
from tangentkit.infinite.duals.closed_forms import Monomial as Monomial
from tangentkit.infinite.duals.closed_forms import Rectifier as Rectifier
from tangentkit.infinite.duals.closed_forms import Sign as Sign
from tangentkit.infinite.duals.closed_forms import Sine as Sine
from tangentkit.infinite.duals.dual import Dual as Dual
from tangentkit.infinite.duals.piecewise_linear import PiecewiseLinear as PiecewiseLinear
from tangentkit.infinite.duals.pointwise import Pointwise as Pointwise


@dataclass(frozen=True)
class Applied:
    """A function with its options filled in, comparable, unlike a lambda or functools.partial.

    Example:
        >>> Applied(F.elu, alpha=0.5) == Applied(F.elu, alpha=0.5)
        True
        >>> Applied(F.elu, alpha=0.5)
        elu(alpha=0.5)
    """

    function: Callable[..., Tensor]
    options: tuple[tuple[str, Any], ...]

    def __init__(self, function: Callable[..., Tensor], **options: Any):
        object.__setattr__(self, "function", function)
        object.__setattr__(self, "options", tuple(sorted(options.items())))

    def __call__(self, u: Tensor) -> Tensor:
        """The function at u."""
        return self.function(u, **dict(self.options))

    def __repr__(self) -> str:
        words = ", ".join(f"{name}={value!r}" for name, value in self.options)
        return f"{self.function.__name__}({words})" if words else self.function.__name__


def _gelu(approximate: str = "none") -> Dual:
    return Gelu() if approximate == "none" else Pointwise(Applied(F.gelu, approximate=approximate))


def _softplus(beta: float = 1.0, threshold: float = 20.0) -> Dual:
    # Beyond the threshold torch returns u itself, which differs by less than exp(-threshold): no kink to see.
    kinks = () if threshold >= 20 else (threshold / beta,)
    return Pointwise(Applied(F.softplus, beta=beta, threshold=threshold), kinks)


def _hardtanh(min_val: float = -1.0, max_val: float = 1.0) -> Dual:
    return PiecewiseLinear((float(min_val), float(max_val)), (0.0, 1.0, 0.0), float(min_val))


def _softshrink(lambd: float = 0.5) -> Dual:
    return (
        PiecewiseLinear((-float(lambd), float(lambd)), (1.0, 0.0, 1.0), float(lambd))
        if lambd
        else Monomial(1)
    )


def _rrelu(lower: float = 1 / 8, upper: float = 1 / 3) -> Dual:
    return Rectifier((lower + upper) / 2)  # in evaluation, where the slope is not random


def _prelu(slopes: Tensor) -> Dual:
    if bool((slopes != slopes.flatten()[0]).any()):
        raise ModelError(
            "PReLU has slopes that differ from channel to channel",
            expected="one slope, as at initialization",
            got=f"{slopes.min().item():.3g} to {slopes.max().item():.3g}",
        )
    return Rectifier(slopes.flatten()[0].item())


def _threshold(threshold: float, value: float) -> Dual:
    return Pointwise(Applied(F.threshold, threshold=threshold, value=value), (threshold,))


def _pointwise(
    function: Callable[..., Tensor], kinks: Callable[..., tuple] = lambda **_: ()
) -> Callable[..., Dual]:
    """A maker of duals by quadrature, given the options of the function."""
    return lambda **options: Pointwise(Applied(function, **options), kinks(**options))


MAKERS: dict[str, Callable[..., Dual]] = {
    "relu": lambda: Rectifier(),
    "leaky_relu": lambda negative_slope=0.01: Rectifier(negative_slope),
    "rrelu": _rrelu,
    "abs": lambda: Rectifier(-1.0),
    "erf": lambda: Erf(),
    "gelu": _gelu,
    "sin": lambda: Sine(),
    "cos": lambda: Sine(phase=math.pi / 2),
    "sign": lambda: Sign(),
    "exp": lambda: Exponential(),
    "identity": lambda: Monomial(1),
    "square": lambda: Monomial(2),
    "pow": lambda exponent: Monomial(exponent),
    "tanh": _pointwise(torch.tanh),
    "sigmoid": _pointwise(torch.sigmoid),
    "silu": _pointwise(F.silu),
    "mish": _pointwise(F.mish),
    "softplus": _softplus,
    "logsigmoid": _pointwise(F.logsigmoid),
    "tanhshrink": _pointwise(F.tanhshrink),
    "softsign": _pointwise(F.softsign, lambda **_: (0,)),
    "elu": _pointwise(F.elu, lambda **_: (0,)),
    "celu": _pointwise(F.celu, lambda **_: (0,)),
    "selu": _pointwise(F.selu, lambda **_: (0,)),
    "relu6": lambda: PiecewiseLinear((0.0, 6.0), (0.0, 1.0, 0.0)),
    "hardtanh": _hardtanh,
    "hardsigmoid": lambda: PiecewiseLinear((-3.0, 3.0), (0.0, 1 / 6, 0.0)),
    "hardswish": _pointwise(F.hardswish, lambda **_: (-3, 3)),
    "softshrink": _softshrink,
    "hardshrink": _pointwise(F.hardshrink, lambda lambd=0.5: (-lambd, lambd)),
    "threshold": _threshold,
    "sinh": _pointwise(torch.sinh),
    "atan": _pointwise(torch.atan),
}
"""How to make the dual of a function of this name, given its options."""

ALIASES = {"swish": "silu", "arctan": "atan", "absolute": "abs"}
MODULES: dict[type[nn.Module], tuple[str, tuple[str, ...]]] = {
    nn.ReLU: ("relu", ()),
    nn.LeakyReLU: ("leaky_relu", ("negative_slope",)),
    nn.RReLU: ("rrelu", ("lower", "upper")),
    nn.GELU: ("gelu", ("approximate",)),
    nn.Identity: ("identity", ()),
    nn.Tanh: ("tanh", ()),
    nn.Sigmoid: ("sigmoid", ()),
    nn.SiLU: ("silu", ()),
    nn.Mish: ("mish", ()),
    nn.Softplus: ("softplus", ("beta", "threshold")),
    nn.LogSigmoid: ("logsigmoid", ()),
    nn.Tanhshrink: ("tanhshrink", ()),
    nn.Softsign: ("softsign", ()),
    nn.ELU: ("elu", ("alpha",)),
    nn.CELU: ("celu", ("alpha",)),
    nn.SELU: ("selu", ()),
    nn.ReLU6: ("relu6", ()),
    nn.Hardtanh: ("hardtanh", ("min_val", "max_val")),
    nn.Hardsigmoid: ("hardsigmoid", ()),
    nn.Hardswish: ("hardswish", ()),
    nn.Softshrink: ("softshrink", ("lambd",)),
    nn.Hardshrink: ("hardshrink", ("lambd",)),
    nn.Threshold: ("threshold", ("threshold", "value")),
}
"""The name, and the attributes that are options, of each module."""


def _functions() -> dict[Callable, str]:
    """The same functions as torch, torch.special, torch.nn.functional and tensors call them."""
    found = {}
    for name in [*MAKERS, *ALIASES]:
        for place in (torch, torch.special, F, Tensor):
            for spelling in (name, f"{name}_"):
                if name != "threshold" and callable(function := getattr(place, spelling, None)):
                    found[function] = ALIASES.get(name, name)
    return found


FUNCTIONS = _functions()


def dual_of(function: object, **options: Any) -> Dual:
    """The dual of a torch activation given as module, function or name; a `Dual` is returned as it is.

    Options of a function are given as torch names them: dual_of(F.elu, alpha=0.5). Powers are named
    "monomial_3", or dual_of(torch.pow, exponent=3). For a function of your own write
    `Pointwise(function, kinks=...)`.

    Raises:
        ModelError: naming the function, when it has no dual here.

    Example:
        >>> dual_of(nn.LeakyReLU(0.2))
        Rectifier(slope=0.2)
        >>> dual_of(torch.relu) == dual_of("relu") == dual_of(nn.ReLU(inplace=True))
        True
        >>> dual_of(nn.ELU(0.5)).name
        'elu(alpha=0.5)'
    """
    if isinstance(function, Dual):
        return function
    if isinstance(function, nn.PReLU):
        return _prelu(function.weight)
    if isinstance(function, nn.Module):
        for kind in type(function).__mro__:
            if kind in MODULES and type(function).forward is kind.forward:
                name, attributes = MODULES[kind]
                return MAKERS[name](**{attribute: getattr(function, attribute) for attribute in attributes})
        raise _unknown(type(function).__name__)
    if isinstance(function, str) and (power := re.fullmatch(r"monomial_(\d+)", function)):
        return Monomial(int(power[1]))
    name = ALIASES.get(function, function) if isinstance(function, str) else _name_of(function)
    if name not in MAKERS:
        raise _unknown(str(name))
    try:
        return MAKERS[name](**{key: value for key, value in options.items() if key != "inplace"})
    except TypeError as problem:
        raise ModelError(f"{name} does not have these options", got=options) from problem


def _name_of(function: object) -> str:
    known = FUNCTIONS.get(function) if callable(function) and isinstance(function, Hashable) else None
    return (
        known
        or f"{getattr(function, '__module__', None) or ''}.{getattr(function, '__name__', repr(function))}".lstrip(
            "."
        )
    )


def _unknown(name: str) -> ModelError:
    near = difflib.get_close_matches(name.lower(), [*MAKERS, *ALIASES], n=2)
    return ModelError(
        f"no dual is known for {name}",
        hint=(f"{' or '.join(map(repr, near))}, or " if near else "")
        + "Pointwise(function, kinks=...) for a function that acts entry by entry",
    )
