"""Layer rules of distances to prototypes."""

import torch
from torch import Tensor

from tangentkit.empirical.reading.graph import MixedSamplesError, SampleAxis
from tangentkit.empirical.rules.base import Site, Vector, layer_rule


@layer_rule("CdistBackward0", "EuclideanDistBackward0")
def distances(site: Site) -> Vector:
    """The distances ‖x_i - T_j‖_p of samples to the rows of a parameter."""
    node, n = site.node, site.n
    own, other = (node._saved_x1, node._saved_x2) if site.slot == 0 else (node._saved_x2, node._saved_x1)
    power = getattr(node, "_saved_p", 2.0)
    rank, axis = other.ndim, site.axis
    # Distances are (..., rows of x1, rows of x2); with T first they are looked at transposed.
    place = (
        {rank - 1: rank - 2, rank - 2: rank - 1}.get(axis.axis, axis.axis) if site.slot == 0 else axis.axis
    )
    if own.ndim != 2 or place == rank - 1:
        raise MixedSamplesError("samples are not the rows of distances")
    axis = SampleAxis(place, axis.before, axis.after)

    def by_sample(rows: Tensor) -> Tensor:
        return axis.front(rows, n).reshape(n, -1, rows.shape[-1])

    def gradient(g: Tensor) -> Tensor:
        # Every sample has a copy of the rows to itself, and so a gradient to itself.
        with torch.enable_grad():
            copies = own.detach().expand(n, *own.shape).requires_grad_()
            found = torch.cdist(by_sample(other.detach()), copies, p=power)
        return torch.autograd.grad(found, copies, by_sample(g if site.slot == 1 else g.mT))[0].flatten(1)

    return Vector(gradient)
