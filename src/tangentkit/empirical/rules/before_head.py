"""The layer before a linear head: all output directions as one.

Where the output y of a layer goes through activations z = φ(y) to a head W z, gradients of z are v_r W: the same for
all samples. With the local derivative d of a sample, the outgoing gradients of the layer are d ∘ (v_r W), and

    Σ_r <d ∘ γ_r, d' ∘ γ_r> = <d ∘ γ, d' ∘ γ>   with γ = (Σ_r γ_r²)^½, entry by entry.

So for sums over output directions one direction γ does for all of them.
"""

from dataclasses import replace

from torch import Tensor

from tangentkit.empirical.reading.chains import ACTIVATIONS, follow, kept_with, local_derivative, start
from tangentkit.empirical.reading.graph import Graph, Use
from tangentkit.empirical.rules.base import Matrix, NoRuleError, Site, Vector, apply_rule, layer_rule

PRODUCTS = {"AddmmBackward0": 1, "MmBackward0": 0}
"""Matrix products -> which of their inputs stands on the left."""


def before_head(graph: Graph, side: list[bool], use: Use) -> Use | None:
    """The use of a weight or bias as seen from the head, if it belongs to the layer before a linear head.

    Args:
        graph: of a few samples.
        side: for each node, whether it is made of parameters alone.
        use: of the parameter.
    """
    if graph.nodes[use.node].name() not in PRODUCTS:
        return None
    last, head = follow(graph, use.node)
    left = None if head is None else PRODUCTS.get(graph.nodes[head].name())
    if head != 0 or left is None:  # node 0 gives the model's output
        return None
    right = graph.edges[head][left + 1]
    weighted = graph.edges[head][left] == (last, 0) and (right is None or side[right[0]])
    return replace(use, node=last) if weighted else None


@layer_rule(*sorted(ACTIVATIONS))
def activated(site: Site) -> Matrix | Vector:
    """A layer and one or more activations."""
    last, first = site.node, start(site.node)
    if first is None:
        raise NoRuleError("nothing before the activation")
    layer = apply_rule(replace(site, node=first))

    def before(g: Tensor) -> Tensor:
        return g * kept_with(last, local_derivative, lambda: local_derivative(last, first))

    if isinstance(layer, Vector):
        return Vector(lambda g: layer.gradient(before(g)))
    if isinstance(layer, Matrix):
        return replace(layer, outgoing=lambda g: layer.outgoing(before(g)))
    raise NoRuleError("rows are looked up before the activation")
