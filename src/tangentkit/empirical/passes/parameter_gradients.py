"""Gradients of recorded samples parameter by parameter, for those who need not know layers and rules.

A gradient is given as `Products`, as `Rows` of a table, or is `Explicit`; that of a tied weight is given as rows and
products, whose sum it is. A rule may give the entries of a gradient in another order than the parameter has: see
`Orders`.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from tangentkit.empirical.layers import AssembledLayer, Layer, LookupLayer, MatrixLayer, VectorLayer
from tangentkit.empirical.passes.layer_gradients import LayerGradients, Outgoing, layer_indices, layer_inputs
from tangentkit.empirical.passes.recording import Recording
from tangentkit.empirical.rules.base import Matrix

DIGITS = 128
"""Base of the digits of a place: exact in every floating type, bfloat16 too."""
COPIES = 6
"""Copies of a weight that are there at once while its order is learned."""


@dataclass(frozen=True, eq=False)
class Products:
    """Σ_s g_s ⊗ a_s, in the order of the rule."""

    name: str
    outgoing: Outgoing
    """g (n, h, r, s, q)"""
    inputs: Callable[[slice], Tensor]
    """Samples -> a (n, h, s, p)."""
    p: int


@dataclass(frozen=True, eq=False)
class Rows:
    """Σ_s e_{i_s} ⊗ g_s: rows of a table that are looked up."""

    name: str
    outgoing: Outgoing
    """g (n, 1, r, s, q)"""
    indices: Tensor
    """i (n, s), -1 for none."""
    count: int
    """Rows of the table."""


@dataclass(frozen=True, eq=False)
class Explicit:
    """An explicit gradient, in the order of the parameter."""

    name: str
    gradients: Callable[[], Tensor]
    """() -> (n, r, size), made when it is called: of large parameters no two at once."""


class Orders:
    """In which order the rules of a model give the entries of gradients, learned as parameters are met."""

    def __init__(self):
        self._orders: dict[str, Tensor | None] = {}

    def copy(self) -> "Orders":
        """What is known so far, to go on from."""
        twin = Orders()
        twin._orders = dict(self._orders)
        return twin

    def learn(self, recording: Recording) -> None:
        """Notes the orders that are not known yet."""
        for layer in self.unknown(recording.structure.layers):
            self._orders[layer.weight] = _order(recording, layer)

    def unknown(self, layers: tuple[Layer, ...]) -> list[Layer]:
        """The parts of layers whose order is not known yet."""
        parts = [
            part for layer in layers for part in layer.parts if isinstance(part, MatrixLayer | VectorLayer)
        ]
        return [part for part in parts if part.weight not in self._orders]

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


def parameter_gradients(side: LayerGradients, orders: Orders) -> Iterator[Products | Rows | Explicit]:
    """The gradients of all parameters; what both parts of a tied weight give comes one after the other."""
    orders.learn(side.recording)
    for layer in side.recording.structure.layers:
        for part in layer.parts:
            yield _gradient(side, part, orders)
        if layer.bias is not None:
            yield Explicit(layer.bias, lambda layer=layer: side.vectors(layer.bias_uses))
    for name, gradients in side.generic.items():
        yield Explicit(name, lambda gradients=gradients: gradients)


def _gradient(side: LayerGradients, layer: Layer, orders: Orders) -> Products | Rows | Explicit:
    name, recording = layer.weight, side.recording
    if isinstance(layer, AssembledLayer):
        return Explicit(name, lambda: side.assembled(layer))
    if isinstance(layer, VectorLayer):
        return Explicit(name, lambda: orders.restore(name, side.vectors(layer.uses)))
    g, weight = side.outgoing(layer), recording.parameters[name]
    if isinstance(layer, LookupLayer):
        return Rows(name, g, layer_indices(recording, layer), weight.shape[0])
    _, h, _, _, q = g.sizes
    return Products(
        name, g, lambda samples: layer_inputs(recording, layer, samples), weight.numel() // (h * q)
    )


def _order(recording: Recording, layer: Layer) -> Tensor | None:
    """Which entry of the gradient of a rule stands at each place of the weight; None if they agree.

    Gradients of a `Matrix` are (h, q, p), those of a `Vector` have the order of the tensor that is used.
    """
    use, weight = layer.uses[0], recording.parameters[layer.weight]
    shape = recording.graph.shapes(use.source[0])[use.source[1]]
    kind = torch.int32 if weight.numel() < 2**31 else torch.int64
    places = torch.arange(weight.numel(), dtype=kind, device=weight.device)
    site = recording.sites[use]
    if isinstance(site, Matrix) and site.transposed:
        _, h, _, p = site.inputs(slice(0, 1)).shape
        places = places.view(h, -1, p).mT
    elif not use.chain:
        return None
    order = torch.zeros(weight.numel(), dtype=kind, device=weight.device)
    for k in range(max(1, math.ceil(math.log(max(weight.numel(), 2), DIGITS)))):
        # One digit at a time and in place: see COPIES.
        digit = places.div(DIGITS**k, rounding_mode="floor").remainder_(DIGITS).to(weight.dtype)
        pulled = recording.pull(use, digit.reshape(1, *shape), layer.weight)[0].detach()
        order += pulled.to(kind).mul_(DIGITS**k)
    agrees = torch.equal(order, torch.arange(len(order), dtype=kind, device=order.device))
    return None if agrees else order.long()
