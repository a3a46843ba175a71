"""Weights that stand behind a layer: what the network does with a layer's output before it puts something out."""

import math
import re
from collections.abc import Sequence

from tangentkit.empirical.reading.graph import Graph, parameter_side, signed

ENTRYWISE = re.compile(
    "(Add|Sub|Rsub|Mul|Div|Pow|Addcmul|Addcdiv|Lerp|Where|Maximum|Minimum|Fmax|Fmin|Clamp|MaskedFill|Cat|Stack|Copy"
    r"|CopySlices|Slice|PreluKernel|\w*LayerNorm|\w*BatchNorm|\w*GroupNorm|FusedRmsNorm)(Backward\d+)?"
)
"""Nodes that shift, scale or set beside each other what they get: with a weight as with a number."""
REPEATS = re.compile("Expand|Repeat")
FACTORS = re.compile(r"(Mul|Div|Addcmul|Addcdiv|\w*Norm)(Backward\d+)?")
"""Those of them after which a sum is one of products; what was added stays a shift."""
SUMS = re.compile(r"(Sum|Mean|Nansum)Backward\d+")


def mixing_behind(small: Graph, large: Graph, layer: int) -> str | None:
    """The name of an operation that mixes the entries of what a layer gave with a weight; None if none does.

    A bias, a temperature and a norm do not: they scale and shift entries one by one. Matrix products, convolutions,
    distances to learned points and sums of products do, however they are written.

    Args:
        small: the graph of a batch of one size.
        large: the graph of the same code for another size.
        layer: the node that made the layer's output.
    """
    weights = _weights(small, large)
    later = behind(large, layer)
    for i in sorted(later):
        edges = [edge for edge in large.edges[i] if edge is not None]
        sides = [edge for edge in edges if edge[0] == layer or edge[0] in later]
        factors = [edge for edge in edges if weights[edge[0]]]
        if not sides or not factors:
            continue
        name = large.nodes[i].name()
        entries = math.prod(large.shapes(i)[0])
        grown = not name.startswith(("Cat", "Stack")) and any(
            math.prod(large.shapes(j)[k]) < entries for j, k in sides
        )
        if not ENTRYWISE.fullmatch(name) or grown or _is_summed(large, i, factors):
            return re.sub(r"Backward\d+$", "", name)
    return None


def behind(graph: Graph, node: int) -> set[int]:
    """The nodes that work on what a node gave."""
    users: dict[int, list[int]] = {}
    for edge, found in graph.users.items():
        if edge is not None:
            users.setdefault(edge[0], []).extend(found)
    later, waiting = set(), [node]
    while waiting:
        new = {user for user in users.get(waiting.pop(), ()) if user not in later}
        later |= new
        waiting.extend(new)
    return later


def _weights(small: Graph, large: Graph) -> list[bool]:
    """Which nodes are made of parameters alone, also where these are repeated for every sample."""
    alone = parameter_side(small, large)
    found, changed = list(alone), True
    while changed:
        changed = False
        for i, edges in enumerate(large.edges):
            # A row that is looked up has the shape of samples too: it is theirs, not made of repeated weights.
            repeated = REPEATS.match(large.nodes[i].name()) or any(e and not alone[e[0]] for e in edges)
            if not found[i] and edges and repeated and all(e is not None and found[e[0]] for e in edges):
                found[i] = changed = True
    return found


def _is_summed(graph: Graph, product: int, factors: Sequence[tuple[int, int]]) -> bool:
    """Whether a product is summed over an axis along which one of its factors varies."""
    if not FACTORS.fullmatch(graph.nodes[product].name()):
        return False
    axes = len(graph.shapes(product)[0])
    varying = {
        axes - len(shape) + a
        for i, k in factors
        for shape in [graph.shapes(i)[k]]
        for a, size in enumerate(shape)
        if size > 1
    }
    for user in graph.users.get((product, 0), ()):
        node = graph.nodes[user]
        if SUMS.fullmatch(node.name()):
            dims = getattr(node, "_saved_dim", None)
            summed = set(range(axes)) if dims is None else {signed(d) % axes for d in dims}
            if varying & summed:
                return True
    return False
