"""Chains of activations: from the output y of a layer to z, entry by entry.

Where y has no other user, its gradient is g = d ∘ γ with the gradient γ of z and the local derivative d = ∂z/∂y, the
same for all output directions. So a layer can be *seen from behind*: by γ instead of g.
"""

from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from tangentkit.empirical.reading.graph import Graph

ACTIVATIONS = frozenset(
    f"{name}Backward0"
    for name in (
        "Relu", "LeakyRelu", "Elu", "Gelu", "Silu", "Mish", "Softplus", "Hardtanh", "Hardswish", "Sigmoid", "Tanh",
    )
)  # fmt: skip
"""Functions of single entries, with bounded derivatives."""


def follow(graph: Graph, i: int) -> tuple[int, int | None]:
    """The last activation after a node (or the node itself), and the only user of its output, if there is one."""
    while (user := _only_user(graph, i)) is not None and graph.nodes[user].name() in ACTIVATIONS:
        i = user
    return i, user


def _only_user(graph: Graph, i: int) -> int | None:
    users = graph.users.get((i, 0), [])
    return users[0] if len(users) == 1 else None


def start(node: Any) -> Any:
    """The node before a node and all activations before that, or None."""
    node = node.next_functions[0][0]
    while node is not None and node.name() in ACTIVATIONS:
        node = node.next_functions[0][0]
    return node


def local_derivative(last: Any, first: Any) -> Tensor:
    """d in the shape of the output y of the first node of a chain.

    It is the gradient of Σ z, in which each entry of y stands once at the most.
    """
    z = last._input_metadata[0]
    ones = torch.ones(z.shape, dtype=z.dtype, device=z.device)
    edges = ([GradientEdge(last, 0)], [GradientEdge(first, 0)])
    return torch.autograd.grad(*edges, [ones], retain_graph=True)[0]


def kept_with(node: Any, key: Hashable, make: Any) -> Tensor:
    """What was made of a node, made when first asked for and kept as long as the node: weight and bias share it."""
    if key not in node.metadata:
        node.metadata[key] = make()
    return node.metadata[key]
