"""Layer rules of writing into a tensor."""

import math

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from tangentkit.empirical.rules.base import Site, Vector, broadcast_gradient, layer_rule, picked_gradient

BASE = 16
"""Numbers below it survive a product and a quotient in every floating-point format."""


@layer_rule("torch::autograd::CopySlices")
def write(site: Site) -> Vector:
    """h[..., slice] = T, or += T, or *= T."""

    def gradient(g: Tensor) -> Tensor:
        factors, entries = _written(g, site)
        return picked_gradient(factors * g, entries, site)

    return Vector(gradient)


def _written(g: Tensor, site: Site) -> tuple[Tensor, Tensor]:
    """For every entry of the output: which entry of T was written there (-1 for none), times what.

    Autograd does not say which slice it was. But its node maps g linearly to the gradient M g of T, and every row of
    the transpose of M has one entry, the factor: so M' takes ones to the factors, and numbers of entries to the
    number of the entry times the factor. They are read off anew in every direction: kept, they would take three times
    the memory of the output.
    """
    output, value = GradientEdge(site.node, 0), GradientEdge(*site.node.next_functions[site.slot])
    with torch.enable_grad():
        watched = torch.zeros_like(g, memory_format=torch.contiguous_format).requires_grad_()
        (mapped,) = torch.autograd.grad([output], [value], [watched], create_graph=True)

    def transposed(numbers: Tensor) -> Tensor:
        (found,) = torch.autograd.grad([mapped], [watched], [numbers], retain_graph=True)
        return found

    factors = transposed(torch.ones_like(mapped))
    entries = torch.zeros_like(g, dtype=torch.long)
    rest, unit = torch.arange(mapped.numel(), device=g.device), 1
    while int(rest.max()) > 0:
        # Digit by digit: large numbers are rounded in half precision.
        digits = (rest % BASE).to(mapped).view_as(mapped)
        entries += unit * (transposed(digits) / factors).nan_to_num().round().long()
        rest, unit = rest // BASE, unit * BASE
    # Products into a slice (addmm_) have more entries a row: their numbers mean nothing, and verification says so.
    return factors, entries.clamp(0, mapped.numel() - 1).masked_fill(factors == 0, -1)


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
