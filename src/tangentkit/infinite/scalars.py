"""The scalar function that a call in a traced graph is: `F.leaky_relu(x, 0.2)`, `x.tanh()`, `torch.sin(x)`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tangentkit.core.errors import ModelError
from tangentkit.infinite.duals import MODULES, Dual, dual_of

OPTIONS = {**dict(MODULES.values()), "pow": ("exponent",)}
"""Options of functions, in the order in which torch takes them."""


def scalar_function(target: Callable | str, rest: Sequence[Any], options: Mapping[str, Any]) -> Dual:
    """The dual of a function or method that is called with some options beside its tensor.

    Raises:
        ModelError: it has none.

    Example:
        >>> scalar_function(F.leaky_relu, (0.2,), {}), scalar_function("relu_", (), {"inplace": True})
        (Rectifier(slope=0.2), Rectifier(slope=0.0))
    """
    name = target if isinstance(target, str) else getattr(target, "__name__", str(target))
    name = name.strip("_").removeprefix("i") if name in ("__ipow__", "ipow") else name.strip("_")
    named = {key: value for key, value in options.items() if key not in ("input", "inplace")}
    places = OPTIONS.get(name, ())
    # What comes after the options in a function's signature is `inplace`.
    named |= dict(zip(places, rest, strict=False))
    if len(rest) > len(places) + 1 or any(isinstance(value, torch.fx.Node) for value in named.values()):
        raise ModelError(f"{name} with these arguments is not a function of one number")
    if name == "pow" and isinstance(named.get("exponent"), float) and named["exponent"].is_integer():
        named["exponent"] = int(named["exponent"])
    for place in (torch, F, Tensor):
        if callable(function := getattr(place, name, None)):
            return dual_of(function, **named)
    return dual_of(target, **named)
