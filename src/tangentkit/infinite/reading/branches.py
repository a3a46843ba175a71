"""Sums, scaled sums and concatenations of branches, as a forward pass writes them."""

from collections.abc import Sequence

from torch import fx

from tangentkit.infinite.reading.calls import argument_of, depends_on_input, function_name, hidden_arguments
from tangentkit.infinite.reading.fields import Hidden, Refusal
from tangentkit.infinite.reading.graph import Graph, Rule

SHIFTS = "a constant that is added to a hidden layer shifts its mean"


def added(graph: Graph, node: fx.Node) -> Hidden:
    """a + alpha · b."""
    return _sum(graph, node, 1.0)


def subtracted(graph: Graph, node: fx.Node) -> Hidden:
    """a - alpha · b."""
    return _sum(graph, node, -1.0)


def negated(graph: Graph, node: fx.Node) -> Hidden:
    """-a."""
    (source,) = hidden_arguments(node, graph.hidden)
    return graph.builder.scale(graph.hidden[source.name], -1.0)


def scaled(graph: Graph, node: fx.Node) -> Hidden:
    """A hidden tensor times or through a constant number."""
    first, second = _two(node)
    divides = "div" in function_name(node)
    if node.kwargs.get("rounding_mode"):
        raise Refusal("it rounds")
    for one, other in ((first, second), (second, first)):
        number = graph.number(other)
        if isinstance(one, fx.Node) and one.name in graph.hidden and number is not None:
            if divides and one is second:
                raise Refusal("it divides by a hidden layer")
            if divides and number == 0:
                raise Refusal("it divides by zero")
            return graph.builder.scale(graph.hidden[one.name], 1 / number if divides else number)
    if len(hidden_arguments(node, graph.hidden)) > 1:
        raise Refusal(
            "products of branches are not Gaussian (an activation that is written as a product can be a module "
            "with an attribute `dual`, such as tangentkit.infinite.Pointwise(function))"
        )
    raise Refusal("it scales a hidden layer by numbers that differ from entry to entry")


def concatenated(graph: Graph, node: fx.Node) -> Hidden:
    """Channels side by side."""
    parts = node.args[0] if node.args else node.kwargs["tensors"]
    axis = argument_of(node, 1, "dim", node.kwargs.get("axis", 0)) % len(graph.seen[node.name])
    if isinstance(parts, fx.Node):
        return graph.builder.concatenate(graph.parts[parts.name], axis)
    assert isinstance(parts, Sequence)
    return graph.builder.concatenate([graph.field(part, axis) for part in parts], axis)  # pyright: ignore


def _two(node: fx.Node) -> tuple:
    rest = node.args[1] if len(node.args) > 1 else node.kwargs["other"]
    return node.args[0] if node.args else node.kwargs["input"], rest


def _sum(graph: Graph, node: fx.Node, sign: float) -> Hidden:
    first, second = _two(node)
    if function_name(node) == "rsub":
        first, second = second, first
    alpha = graph.number(node.kwargs.get("alpha", 1))
    factor = sign * (1.0 if alpha is None else alpha)
    for one, other, scale in ((first, second, 1.0), (second, first, factor)):
        if graph.number(other) == 0 and isinstance(one, fx.Node):
            return graph.builder.scale(graph.hidden[one.name], scale)
    if not isinstance(first, fx.Node) or not isinstance(second, fx.Node):
        raise Refusal(SHIFTS)
    known = graph.hidden.get(first.name) or graph.hidden[second.name]
    channel = known.groups[0].axis_of("c")
    if len({graph.seen[n.name] for n in (first, second)}) > 1 or channel is None:
        raise Refusal("its branches differ in shape: one would be stretched over the other")
    for n in (first, second):
        if n.name not in graph.hidden and not depends_on_input(n):
            raise Refusal(SHIFTS)
    return graph.builder.sum(graph.field(first, channel), graph.field(second, channel), factor)


BRANCHES: dict[str, Rule] = {
    **dict.fromkeys(("add", "iadd", "radd"), added),
    **dict.fromkeys(("sub", "isub", "subtract", "rsub"), subtracted),
    **dict.fromkeys(("neg", "negative"), negated),
    **dict.fromkeys(("mul", "imul", "multiply", "truediv", "itruediv", "div", "divide"), scaled),
    **dict.fromkeys(("cat", "concat", "concatenate"), concatenated),
}
"""The rule for each function of this name."""
