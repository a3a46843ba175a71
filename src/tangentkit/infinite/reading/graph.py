"""What the rules for single operations need of the traced graph that is being read."""

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import fx, nn
from torch.fx.node import map_arg

from tangentkit.infinite.reading.builder import Builder
from tangentkit.infinite.reading.calls import function_name, reason_against
from tangentkit.infinite.reading.fields import Hidden, Refusal


class Graph(Protocol):
    """What is known of the nodes before one."""

    builder: Builder
    hidden: dict[str, Hidden]
    """The tensors that depend on weights, by the name of their node."""
    parts: dict[str, list[Hidden]]
    """Likewise, where a node gives several."""
    modules: dict[str, nn.Module]
    seen: dict[str, Any]
    """Shapes of tensors and values of everything else."""
    dtypes: dict[str, torch.dtype]
    varies: set[str]
    """Nodes whose values depend on the number of samples."""

    def field(self, argument: fx.Node, channel: int) -> Hidden:
        """A hidden tensor, or one that no weight touched as a source with that axis of channels."""
        ...

    def gaussian(self, node: fx.Node) -> Hidden | None:
        """The field of a node, if it is hidden and Gaussian."""
        ...

    def number(self, argument: Any) -> float | None:
        """The number that an argument is; None if it is no constant."""
        ...


Rule = Callable[[Graph, fx.Node], Hidden]
"""What a call makes of the hidden tensors that it takes."""


def other_arguments(graph: Graph, node: fx.Node) -> tuple[tuple, dict[str, Any]]:
    """The arguments of a call beside its first one, all of which must be known: places, and names."""

    def value(argument: fx.Node) -> Any:
        if argument.name in graph.dtypes:
            raise Refusal("one of its options is a tensor")
        if argument.name in graph.varies:
            raise Refusal("it depends on the number of samples")
        return graph.seen[argument.name]

    options = {name: option for name, option in node.kwargs.items() if name != "input"}
    return map_arg(node.args[1:], value), map_arg(options, value)


def hidden_input(graph: Graph, node: fx.Node) -> tuple[Hidden, torch.Size]:
    """The first argument of a call and its shape, which must depend on weights."""
    first = node.args[0] if node.args else next(iter(node.kwargs.values()), None)
    if not isinstance(first, fx.Node) or first.name not in graph.hidden:
        raise Refusal(
            reason_against(function_name(node))
            or "its first argument does not depend on the weights, but another does"
        )
    return graph.hidden[first.name], graph.seen[first.name]
