"""The scalar function that calls in a traced graph are: `F.leaky_relu(x, 0.2)`, `x * torch.sigmoid(x)`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F
from torch.nn.modules.dropout import _DropoutNd

from tangentkit.core.errors import ModelError
from tangentkit.infinite.calls import function_name, hidden_arguments
from tangentkit.infinite.duals import MODULES, Dual, dual_of
from tangentkit.infinite.expressions import ARITHMETIC, BOUNDS, Expression, Variable, bends_of
from tangentkit.infinite.fields import Hidden

SILENT = (_DropoutNd, nn.Identity)
"""Modules that do nothing in evaluation mode."""

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


class Graph(Protocol):
    """What is known of the nodes before one."""

    hidden: dict[str, Hidden]
    modules: dict[str, nn.Module]

    def gaussian(self, node: fx.Node) -> Hidden | None:
        """The field of a node, if it is hidden and Gaussian."""
        ...

    def number(self, argument: Any) -> float | None:
        """A constant number."""
        ...


@dataclass(frozen=True)
class WrittenOut:
    """Several steps as one function of a Gaussian field."""

    field: Hidden
    expression: Expression


def written_out(node: fx.Node, graph: Graph) -> WrittenOut | None:
    """The function that a node is of one Gaussian field, entry by entry, if it is one."""
    found = _function_of(node, graph)
    base, expression = found or (node, None)
    return WrittenOut(graph.hidden[base.name], expression) if isinstance(expression, Expression) else None


def _function_of(node: fx.Node, graph: Graph) -> tuple[fx.Node, Variable | Expression] | None:
    """The field, as far back as steps act entry by entry, and the function of it."""
    itself = (node, Variable()) if graph.gaussian(node) else None
    inner, bends = hidden_arguments(node, graph.hidden), _bends(node, graph)
    if bends is None:
        return itself
    found = [pair for source in inner if (pair := _function_of(source, graph))]
    if len(found) < len(inner) or len({base for base, _ in found}) != 1:
        return itself
    parts = {source: part for source, (_, part) in zip(inner, found, strict=True)}
    arguments = [parts[a] if a in parts else _constant(a, graph) for a in node.args]  # pyright: ignore
    options = {key: _constant(a, graph) for key, a in node.kwargs.items() if key != "inplace"}
    if Varying in (*arguments, *options.values()):
        return itself
    function: Any = graph.modules[str(node.target)] if node.op == "call_module" else node.target
    return found[0][0], Expression(function, tuple(arguments), tuple(options.items()), bends)


def _bends(node: fx.Node, graph: Graph) -> tuple[float, ...] | None:
    """Where a step bends, if it acts entry by entry."""
    name = function_name(node)
    try:
        if node.op == "call_module":
            module = graph.modules[str(node.target)]
            return () if isinstance(module, SILENT) else bends_of(dual_of(module))
        if name in ARITHMETIC:
            return ()
        if name in BOUNDS:
            limits = (graph.number(a) for a in (*node.args[1:], *node.kwargs.values()) if a is not None)
            return tuple(limit for limit in limits if limit is not None)
        return bends_of(scalar_function(node.target, node.args[1:], node.kwargs))  # pyright: ignore
    except ModelError:
        return None


class Varying:
    """Stands for an argument that is not the same for all entries."""


def _constant(argument: Any, graph: Graph) -> Any:
    """An argument of a step that is no field: a number, a word or nothing."""
    if argument is None or isinstance(argument, (bool, str)):
        return argument
    number = graph.number(argument)
    return Varying if number is None else number
