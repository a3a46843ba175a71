"""Layer rules of writing into a tensor."""

import math

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from tangentkit.empirical.rules import Site, Vector, broadcast_gradient, layer_rule


@layer_rule("torch::autograd::CopySlices")
def write(site: Site) -> Vector:
    """h[..., slice] = T. Autograd does not say which slice, so its node is asked for one sample at a time."""
    output, value = GradientEdge(site.node, 0), GradientEdge(*site.node.next_functions[site.slot])

    def gradient(g: Tensor) -> Tensor:
        alone = torch.zeros_like(g, memory_format=torch.contiguous_format)
        by_sample, rows = site.axis.front(alone, site.n), []
        for i, own in enumerate(site.axis.front(g, site.n)):
            by_sample[i] = own
            rows += torch.autograd.grad([output], [value], [alone], retain_graph=True)
            by_sample[i] = 0
        return torch.stack(rows).reshape(site.n, -1)

    return Vector(gradient)


@layer_rule("IndexPutBackward0", "IndexPutImplBackward0")
def index_put(site: Site) -> Vector:
    """h[indices] = T, for a mask or for integers: a token that stands for others, say."""
    indices, n = site.node._saved_indices, site.n
    if site.slot == 0:
        return Vector(lambda g: broadcast_gradient(_without(g, indices, site.node._saved_accumulate), site))

    def gradient(g: Tensor) -> Tensor:
        samples = torch.zeros(g.shape, dtype=torch.long, device=g.device)
        numbers = torch.arange(n, device=g.device)
        site.axis.front(samples, n).copy_(numbers.view(n, *(1,) * (g.ndim + 1)))
        values, samples = (torch.ops.aten.index(each, indices) for each in (g, samples))
        t = math.prod(site.shape)
        entries = torch.arange(t, device=g.device).view(site.shape).expand_as(values)
        out = g.new_zeros(n * t)
        return out.scatter_add_(0, (samples * t + entries).flatten(), values.flatten()).view(n, t)

    return Vector(gradient)


def _without(g: Tensor, indices: list[Tensor | None], added: bool) -> Tensor:
    """The gradient of what was written to: nothing where it was replaced."""
    return g if added else torch.ops.aten.index_put(g, indices, g.new_zeros(()))
