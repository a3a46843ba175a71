"""Weighted sums of per-sample gradients, Σ_i f_i ∇(v · f)(x_i), for many functions f at once.

Gradients of a few samples of one layer are built at a time and multiplied by the functions: a matrix product for all
of them, where a backward pass for each would take as many passes as functions.
"""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from tangentkit.empirical.layers import AssembledLayer, Layer, LookupLayer, VectorLayer
from tangentkit.empirical.passes.layer_gradients import (
    LayerGradients,
    layer_indices,
    layer_inputs,
    matrix_gradients,
)
from tangentkit.linalg.operators.spans import spans
from tangentkit.sketch.methods.coordinates import working_dtype
from tangentkit.sketch.methods.parameter_order import Orders


class WeightedGradients:
    """Σ_i f_i v_r · J_i for k functions f and r output directions v, parameter by parameter; in float32 at least.

    Args:
        functions: k.
        params: the parameters.
        directions: r.
        orders: of the parameters, which is learned once for all sums.
        buffer: entries of gradients that are built at a time.
    """

    def __init__(
        self, functions: int, params: dict[str, Tensor], directions: int, *, orders: Orders, buffer: int
    ):
        self.sums = {
            name: torch.zeros(directions, functions, p.numel(), dtype=working_dtype(p.dtype), device=p.device)
            for name, p in params.items()
        }
        self.orders, self.buffer = orders, buffer

    def square_norms(self) -> Float[Tensor, " k"]:
        """Σ_r ‖Σ_i f_i v_r · J_i‖² of every function, in float64."""
        norms = [
            [[torch.linalg.vector_norm(average, dtype=torch.float64) for average in along] for along in total]
            for total in self.sums.values()  # one by one: in float64 all of them would be a second copy
        ]
        return torch.stack([torch.stack(along) for total in norms for along in total]).square().sum(0)

    def add(self, side: LayerGradients, functions: Float[Tensor, "n k"]) -> None:
        """Adds recorded samples, at which the functions have these values."""
        for layer in side.recording.structure.layers:
            # A tied weight is summed by its entries, so that lookups and products meet.
            for part in layer.parts:
                self._add_layer(side, part, functions)
            if layer.bias is not None:
                self._add_written(layer.bias, side.vectors(layer.bias_uses), functions)
        for name, gradients in side.generic.items():
            self._add_written(name, gradients, functions)

    def _add_layer(self, side: LayerGradients, layer: Layer, functions: Tensor) -> None:
        if isinstance(layer, AssembledLayer):
            self._add_written(layer.weight, side.assembled(layer), functions)
        elif isinstance(layer, LookupLayer):
            self._add_rows(side, layer, functions)
        else:
            self.orders.learn(side.recording, layer)
            for samples, gradients in self._built(side, layer):
                written = self.orders.restore(layer.weight, gradients)
                self._add_written(layer.weight, written, functions[samples])

    def _built(self, side: LayerGradients, layer: Layer) -> Iterator[tuple[slice, Tensor]]:
        """Gradients (n, r, p) of some samples at a time."""
        if isinstance(layer, VectorLayer):
            yield slice(0, side.n), side.vectors(layer.uses)
            return
        g = side.outgoing(layer)
        n, h, r, s, q = g.sizes
        p = side.recording.parameters[layer.weight].numel() // (h * q)
        for samples in spans(n, max(1, self.buffer // (h * max(s * p, r * s * q, r * q * p)))):
            a = layer_inputs(side.recording, layer, samples)
            yield samples, matrix_gradients(g[samples], a).flatten(2)

    def _add_written(self, name: str, gradients: Float[Tensor, "n r p"], functions: Tensor) -> None:
        for total, along in zip(self.sums[name], gradients.unbind(1), strict=True):
            total.addmm_(functions.T.to(total), along.to(total))

    def _add_rows(self, side: LayerGradients, layer: Layer, functions: Tensor) -> None:
        """Adds a table of which samples look up rows: only these rows are touched."""
        g, indices = side.outgoing(layer), layer_indices(side.recording, layer)
        n, _, _, s, q = g.sizes
        k = functions.shape[1]
        for samples in spans(n, max(1, self.buffer // max(1, k * s * q))):
            found = indices[samples] >= 0
            rows, weights = indices[samples][found], functions[samples][:, None].expand(-1, s, -1)[found]
            for total, along in zip(self.sums[layer.weight], g[samples][:, 0].unbind(1), strict=True):
                table = total.view(k, -1, q)
                table.index_add_(1, rows, weights.T[:, :, None].to(table) * along[found].to(table))
