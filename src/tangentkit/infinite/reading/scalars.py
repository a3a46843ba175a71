"""The scalar function that calls in a traced graph are: `F.leaky_relu(x, 0.2)`, `x * torch.sigmoid(x)`."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F
from torch.nn.modules.dropout import _DropoutNd

from tangentkit.core.errors import ModelError
from tangentkit.infinite.duals.registry import MODULES, Dual, dual_of
from tangentkit.infinite.reading.calls import function_name, hidden_arguments
from tangentkit.infinite.reading.expressions import STEPS, Expression, Variable, bends_of
from tangentkit.infinite.reading.fields import Hidden
from tangentkit.infinite.reading.graph import Graph

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
    # Two nodes can be one field, as one and the same after dropout in evaluation mode.
    if len(found) < len(inner) or len({graph.hidden[base.name] for base, _ in found}) != 1:
        return itself
    parts = {source: part for source, (_, part) in zip(inner, found, strict=True)}
    arguments = [parts[a] if a in parts else _constant(a, graph) for a in node.args]  # pyright: ignore
    options = {
        key: parts[a] if a in parts else _constant(a, graph)  # pyright: ignore
        for key, a in node.kwargs.items()
        if key != "inplace"
    }
    if Varying in (*arguments, *options.values()):
        return itself
    function: Any = STEPS.get(function_name(node)) or node.target
    if node.op == "call_module":
        function = copy.deepcopy(graph.modules[str(node.target)]).to("cpu", torch.float64)
    return found[0][0], Expression(function, tuple(arguments), tuple(options.items()), bends)


def _bends(node: fx.Node, graph: Graph) -> tuple[float, ...] | None:
    """Where a step bends by itself, if it acts entry by entry."""
    try:
        if node.op == "call_module":
            module = graph.modules[str(node.target)]
            return () if isinstance(module, SILENT) else bends_of(dual_of(module))
        if (name := function_name(node)) in STEPS:
            # torch.max(h) and torch.max(h, 1) are maxima over axes.
            return None if name in ("max", "min") and len(node.all_input_nodes) < 2 else ()
        return bends_of(scalar_function(node.target, node.args[1:], node.kwargs))  # pyright: ignore
    except ModelError:
        return None


class Varying:
    """Stands for an argument that is not the same for all entries."""


def _constant(argument: Any, graph: Graph) -> Any:
    """An argument of a step that is no field: a number, a word, a dtype, a device or nothing."""
    known = graph.seen[argument.name] if isinstance(argument, fx.Node) else argument
    if known is None or isinstance(known, (bool, str, torch.dtype, torch.device)):
        return known
    number = graph.number(argument)
    return Varying if number is None else number
