"""The autograd graph behind an output: where parameters meet samples.

A network touches its parameters at few places, and autograd has written all of them down: from the output
back to each parameter stand nodes such as AddmmBackward0 with their saved inputs, inside attention, recurrent
cells and functional code alike. Nodes whose shape does not depend on the number of samples and that are made
of parameters alone are *parameter-side* (a transposed weight, a weight-normalized weight); the others are
*sample-side*. A *use* is an edge from a sample-side node to a parameter-side one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.autograd.graph import Node

Edge = tuple[int, int] | None
"""(index of a node, number of its output), or None where no gradient flows."""

REORDERINGS = frozenset(
    f"{name}Backward{version}"
    for name in (
        "T",
        "Transpose",
        "Permute",
        "View",
        "UnsafeView",
        "ReshapeAlias",
        "Unsqueeze",
        "Squeeze",
        "Clone",
    )
    for version in (0, 1)
)
"""Nodes that only move entries around: inner products of gradients are the same on both sides."""


@dataclass(frozen=True, eq=False)
class Graph:
    """The nodes from an output back to the parameters, in the order of a depth-first walk.

    Two forward passes of the same code give graphs with equal `signature`, whatever the batch size.
    """

    nodes: list[Node]
    edges: list[tuple[Edge, ...]]
    leaves: dict[int, str]
    """Index of a leaf node -> name of its parameter."""
    hooked: bool = False
    """Whether the forward pass has put hooks on tensors or nodes, which change gradients and show nowhere else."""

    @cached_property
    def signature(self) -> tuple[tuple[str, tuple[Edge, ...], str | None], ...]:
        """Node names, edges and parameter names."""
        return tuple(
            (node.name(), edges, self.leaves.get(i))
            for i, (node, edges) in enumerate(zip(self.nodes, self.edges, strict=True))
        )

    @cached_property
    def users(self) -> dict[Edge, list[int]]:
        """Output of a node -> the nodes that take it in, once for each time they do."""
        found: dict[Edge, list[int]] = {}
        for i, edges in enumerate(self.edges):
            for edge in edges:
                found.setdefault(edge, []).append(i)
        return found

    def shapes(self, i: int) -> list[tuple[int, ...]]:
        """The shapes of the forward outputs of node i."""
        return [tuple(meta.shape) for meta in self.nodes[i]._input_metadata]  # pyright: ignore


def walk(output: Tensor, parameters: dict[str, Tensor]) -> Graph:
    """The graph behind an output. Parameters are leaf tensors that require grad."""
    names = {id(parameter): name for name, parameter in parameters.items()}
    nodes: list[Node] = []
    index: dict[Node, int] = {}
    stack = [output.grad_fn] if output.grad_fn is not None else []
    while stack:
        node = stack.pop()
        if node in index:
            continue
        index[node] = len(nodes)
        nodes.append(node)
        stack.extend(child for child, _ in reversed(node.next_functions) if child is not None)
    edges = [
        tuple(None if child is None else (index[child], k) for child, k in node.next_functions)
        for node in nodes
    ]
    variables = {i: id(getattr(node, "variable", None)) for i, node in enumerate(nodes)}
    leaves = {i: names[variable] for i, variable in variables.items() if variable in names}
    return Graph(nodes, edges, leaves)


@dataclass(frozen=True)
class SampleAxis:
    """Which axis of a tensor counts the samples: axis `axis` has size before * n * after.

    `before` and `after` are the positions flattened together with the samples: tokens of a sample stand
    behind it in sample-major order (after > 1) and around it in sample-minor order (before > 1).
    """

    axis: int
    before: int = 1
    after: int = 1

    def front(self, tensor: Tensor, n: int) -> Tensor:
        """The tensor with the samples first; the positions stay where the axis was, as two axes."""
        return tensor.unflatten(self.axis, (self.before, n, self.after)).movedim(self.axis + 1, 0)

    def rows(self, tensor: Tensor, n: int) -> Tensor:
        """The tensor (n, s, ...) of positions behind samples, for an axis that is the first."""
        return self.front(tensor, n).flatten(1, 2)


@dataclass(frozen=True)
class Use:
    """A place where samples meet a parameter-side tensor: input `slot` of node `node`."""

    node: int
    slot: int
    source: tuple[int, int]
    """The parameter-side edge."""
    chain: tuple[str, ...] | None
    """The reorderings between the source and its one parameter, None if there is more than reordering."""
    settings: str = ""
    """The other arguments of the node (strides, factors, modes), for the batch from which the use is known."""


class MixedSamplesError(Exception):
    """The graph does not keep samples apart in a way that can be read off its shapes."""


def parameter_side(small: Graph, large: Graph) -> list[bool]:
    """For each node, whether it is made of parameters alone.

    Args:
        small: the graph of a batch of one size.
        large: the graph of the same code for another size.
    """
    side: list[bool | None] = [None] * len(small.nodes)

    def visit(i: int) -> bool:
        # Iterative, since graphs are deeper than Python's stack.
        stack = [i]
        while stack:
            j = stack[-1]
            children = [edge[0] for edge in small.edges[j] if edge is not None]
            waiting = [k for k in children if side[k] is None]
            if waiting:
                stack.extend(waiting)
                continue
            fixed = small.shapes(j) == large.shapes(j)
            side[j] = j in small.leaves or (fixed and bool(children) and all(side[k] for k in children))
            stack.pop()
        return bool(side[i])

    return [visit(i) for i in range(len(small.nodes))]


def find_uses(graph: Graph, side: Sequence[bool]) -> dict[str, list[Use]]:
    """Name of a parameter -> the places where samples meet it, directly or through parameter-side nodes."""
    uses: dict[str, list[Use]] = {}
    for i, edges in enumerate(graph.edges):
        if side[i]:
            continue
        for slot, edge in enumerate(edges):
            if edge is None or not side[edge[0]]:
                continue
            names, chain = _sources(graph, edge[0])
            for name in names:
                uses.setdefault(name, []).append(Use(i, slot, edge, chain, str(_options(graph.nodes[i]))))
    return uses


def _sources(graph: Graph, start: int) -> tuple[list[str], tuple[str, ...] | None]:
    names, chain, seen = set(), [], set()
    only_reordered = True
    stack = [start]
    while stack:
        i = stack.pop()
        if i in seen:
            continue
        seen.add(i)
        if i in graph.leaves:
            names.add(graph.leaves[i])
            continue
        name, children = graph.nodes[i].name(), [edge[0] for edge in graph.edges[i] if edge is not None]
        only_reordered &= len(children) == 1 and (name in REORDERINGS or _same_shape(graph, i, children))
        chain.append(f"{name}{graph.shapes(i)}{_options(graph.nodes[i], 'dim')}")
        stack.extend(children)
    return sorted(names), tuple(chain) if only_reordered and len(names) == 1 else None


def _same_shape(graph: Graph, i: int, children: list[int]) -> bool:
    # An expansion to the shape that a tensor has already.
    return graph.nodes[i].name() == "ExpandBackward0" and _entries(graph, i) == _entries(graph, children[0])


def _entries(graph: Graph, i: int) -> int:
    return math.prod(graph.shapes(i)[0])


def _options(node: Node, prefix: str = "") -> dict[str, object]:
    """What a node has saved beside tensors."""
    saved = {name: getattr(node, name) for name in dir(node) if name.startswith(f"_saved_{prefix}")}
    return {name: value for name, value in saved.items() if not _holds_tensors(value)}


def _holds_tensors(value: object) -> bool:
    return any(isinstance(v, Tensor) for v in (value if isinstance(value, (tuple, list)) else (value,)))


def sample_axis(small: Sequence[int], large: Sequence[int], sizes: tuple[int, int]) -> tuple[int, int]:
    """(axis, positions): the one axis that grows with the batch, and its size over the number of samples.

    Raises:
        MixedSamplesError: no axis does, several do, or one does not grow in proportion.
    """
    differing = [k for k, (a, b) in enumerate(zip(small, large, strict=False)) if a != b]
    if len(small) != len(large) or len(differing) != 1:
        raise MixedSamplesError(f"shapes {tuple(small)} and {tuple(large)}")
    (axis,) = differing
    positions, rest = divmod(small[axis], sizes[0])
    if rest or positions * sizes[1] != large[axis]:
        raise MixedSamplesError(f"shapes {tuple(small)} and {tuple(large)}")
    return axis, positions


def sample_layouts(axis: int, positions: int, touched: Sequence[Tensor]) -> list[SampleAxis]:
    """How samples and positions may be flattened into one axis, given which entries each sample touches.

    Args:
        axis: the axis of samples.
        positions: entries of the axis for each sample.
        touched: for each number of samples tried, a mask (n, n * positions): entries that sample i reaches.

    Returns:
        All orders that fit, sample-major first.
    """
    return [order for order in sample_orders(axis, positions) if all(_fits(order, mask) for mask in touched)]


def sample_orders(axis: int, positions: int) -> list[SampleAxis]:
    """All orders in which samples and positions may be flattened into one axis, sample-major first."""
    return [SampleAxis(axis, b, positions // b) for b in range(1, positions + 1) if positions % b == 0]


def _fits(layout: SampleAxis, mask: Tensor) -> bool:
    n = len(mask)
    # (n, before, n, after) -> whether sample i touches an entry of sample j
    touches = mask.reshape(n, layout.before, n, layout.after).any(3).any(1)
    return not (touches & ~torch.eye(n, dtype=torch.bool, device=mask.device)).any()


def signed(number: int) -> int:
    """A number that a node has saved; autograd shows negative ones wrapped to unsigned."""
    return number - 2**64 if number >= 2**63 else number
