"""Weighted sums of per-sample gradients, Σ_i f_i ∇(v · f)(x_i), for many functions f at once.

Gradients of a few samples of one layer are built at a time and multiplied by the functions: a matrix product for all
of them, where a backward pass for each would take as many passes as functions.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from tangentkit.empirical.passes.layer_gradients import LayerGradients, matrix_gradients
from tangentkit.empirical.passes.parameter_gradients import (
    Explicit,
    Orders,
    Products,
    Rows,
    parameter_gradients,
)
from tangentkit.linalg.operators.spans import spans
from tangentkit.sketch.methods.coordinates import working_dtype


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
        for found in parameter_gradients(side, self.orders):
            if isinstance(found, Explicit):
                self._add_explicit(found.name, found.gradients(), functions)
            elif isinstance(found, Rows):
                self._add_rows(found, functions)
            else:
                self._add_products(found, functions)

    def _add_products(self, found: Products, functions: Tensor) -> None:
        """Adds a weight whose gradients are built, some samples at a time."""
        (n, h, r, s, q), p = found.outgoing.sizes, found.p
        for samples in spans(n, max(1, self.buffer // (h * max(s * p, r * s * q, r * q * p)))):
            built = matrix_gradients(found.outgoing[samples], found.inputs(samples)).flatten(2)
            self._add_explicit(found.name, self.orders.restore(found.name, built), functions[samples])

    def _add_explicit(self, name: str, gradients: Float[Tensor, "n r p"], functions: Tensor) -> None:
        for total, along in zip(self.sums[name], gradients.unbind(1), strict=True):
            total.addmm_(functions.T.to(total), along.to(total))

    def _add_rows(self, found: Rows, functions: Tensor) -> None:
        """Adds a table of which samples look up rows: only these rows are touched."""
        n, _, _, s, q = found.outgoing.sizes
        k = functions.shape[1]
        for samples in spans(n, max(1, self.buffer // max(1, k * s * q))):
            indices = found.indices[samples]
            seen = indices >= 0
            rows, weights = indices[seen], functions[samples][:, None].expand(-1, s, -1)[seen]
            along_all = found.outgoing[samples][:, 0].unbind(1)
            for total, along in zip(self.sums[found.name], along_all, strict=True):
                table = total.view(k, -1, q)
                table.index_add_(1, rows, weights.T[:, :, None].to(table) * along[seen].to(table))
