"""From the order in which a rule writes a gradient to that of the parameter itself.

Sketches of written gradients are maps of the parameter's own entries, so they do not depend on the route.
"""

import math

import torch
from torch import Tensor

from tangentkit.empirical.layers import Layer
from tangentkit.empirical.passes.recording import Recording
from tangentkit.empirical.rules.base import Matrix

DIGITS = 128
"""Base in which places are written: exact in every floating type, bfloat16 too."""
COPIES = 6
"""Copies of a weight that are there at once while its order is learned."""


class Orders:
    """The orders of all parameters of a model, learned as they are met."""

    def __init__(self):
        self._orders: dict[str, Tensor | None] = {}

    def __contains__(self, layer: Layer) -> bool:
        return layer.weight in self._orders

    def learn(self, recording: Recording, layer: Layer) -> None:
        """Notes in which order the rule of a layer writes its gradients."""
        if layer.weight not in self._orders:
            self._orders[layer.weight] = parameter_order(recording, layer)

    def matrices(self, name: str, gradients: Tensor, shape: tuple[int, int, int]) -> Tensor:
        """Gradients (n, r, size) in the parameter's order as the matrices (n, r, h, q, p) of its factors."""
        order = self._orders.get(name)
        if order is not None:
            gradients = torch.empty_like(gradients).index_copy_(2, order, gradients)
        return gradients.unflatten(2, shape)

    def restore(self, name: str, gradients: Tensor) -> Tensor:
        """Gradients (..., size) in the parameter's own order."""
        order = self._orders.get(name)
        return gradients if order is None else gradients[..., order]


def parameter_order(recording: Recording, layer: Layer) -> Tensor | None:
    """Which entry of the written gradient stands at each place of the weight; None if they agree.

    Written gradients of a "matrix" are (h, q, p), those of a "vector" have the order of the tensor that is used.
    """
    use, weight = layer.uses[0], recording.parameters[layer.weight]
    shape = recording.graph.shapes(use.source[0])[use.source[1]]
    kind = torch.int32 if weight.numel() < 2**31 else torch.int64
    written = torch.arange(weight.numel(), dtype=kind, device=weight.device)
    site = recording.sites[use]
    if isinstance(site, Matrix) and site.transposed:
        _, h, _, p = site.inputs(slice(0, 1)).shape
        written = written.view(h, -1, p).mT
    elif not use.chain:
        return None
    count = max(1, math.ceil(math.log(max(weight.numel(), 2), DIGITS)))
    order = torch.zeros(weight.numel(), dtype=kind, device=weight.device)
    for k in range(count):  # one digit at a time and in place: see COPIES
        digit = written.div(DIGITS**k, rounding_mode="floor").remainder_(DIGITS).to(weight.dtype)
        pulled = recording.pull(use, digit.reshape(1, *shape), layer.weight)[0].detach()
        order += pulled.to(kind).mul_(DIGITS**k)
    return (
        None
        if torch.equal(order, torch.arange(len(order), dtype=kind, device=order.device))
        else order.long()
    )
