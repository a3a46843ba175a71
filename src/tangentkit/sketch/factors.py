"""Gradients of every parameter as sums of outer products, all output directions stacked.

The gradient of a sample in r directions, as one long vector, is Σ_s Γ_s ⊗ a_s with Γ_s = (g_1s, ..., g_rs): one
sum of outer products instead of r.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from tangentkit.empirical.side import Side, layer_indices, layer_inputs, square_norms
from tangentkit.sketch.layout import Orders


@dataclass(frozen=True)
class Factors:
    """Σ_s Γ_s ⊗ a_s of n samples."""

    kind: str
    """"matrix"; "lookup" with one-hot a; "vector" with a = 1; "built" with Γ = 1: a is the gradient (n, r q, p)."""
    outgoing: Tensor
    """Γ (n, s, r q)"""
    inputs: Tensor
    """a (n, s, p); for lookups the rows (n, s), -1 for none."""
    p: int
    """Length of a."""

    def times_inputs(self, basis: Tensor) -> Tensor:
        """a · basis, (p, k) -> (n, s, k)."""
        if self.kind != "lookup":
            return self.inputs @ basis
        return basis[self.inputs.clamp_min(0)] * (self.inputs >= 0)[..., None]

    def inputs_times(self, values: Tensor) -> Tensor:
        """Σ_ns a_ns ⊗ values_ns, (n, s, k) -> (p, k)."""
        if self.kind != "lookup":
            return self.inputs.flatten(0, 1).mT @ values.flatten(0, 1)
        # A row more than wanted takes what is looked up nowhere.
        rows = torch.where(self.inputs < 0, self.p, self.inputs).flatten()
        return values.new_zeros(self.p + 1, values.shape[-1]).index_add_(0, rows, values.flatten(0, 1))[:-1]

    def input_gram(self) -> Tensor:
        """a_s · a_t of all pairs of positions, (n, s, s)."""
        if self.kind != "lookup":
            return self.inputs @ self.inputs.mT
        same = self.inputs[:, :, None] == self.inputs[:, None, :]
        return (same & (self.inputs >= 0)[:, :, None]).to(self.outgoing.dtype)

    def take(self, samples: Tensor) -> "Factors":
        """The factors of some samples."""
        return Factors(self.kind, self.outgoing[samples].detach(), self.inputs[samples].detach(), self.p)

    def core(self, outgoing: Tensor, inputs: Tensor) -> Tensor:
        """Coordinates (n, k l) of the gradient in two bases, of Γ (r q, k) and of a (p, l)."""
        left = outgoing if self.kind == "built" else self.outgoing @ outgoing
        return (left.mT @ self.times_inputs(inputs)).flatten(1)


def all_factors(side: Side, orders: Orders) -> Iterator[tuple[str, Factors]]:
    """(parameter, factors) of everything but weights with several heads, and tables that are also weights."""
    for layer in side.recording.structure.layers:
        name = layer.weight
        if layer.kind in ("matrix", "lookup"):
            g = side.outgoing(layer)
            if g.sizes[1] == 1:
                if layer.kind == "matrix":
                    a = layer_inputs(side.recording, layer, slice(None))[:, 0]
                    p = a.shape[-1]
                else:
                    a = layer_indices(side.recording, layer)
                    p = side.recording.parameters[name].shape[0]
                yield name, Factors(layer.kind, g[:][:, 0].transpose(1, 2).flatten(2), a, p)
        elif layer.kind == "vector":
            orders.learn(side.recording, layer)
            yield name, _vector(orders.restore(name, side.vectors(layer.uses)))
        elif layer.kind == "assembled":
            yield name, _vector(side.assembled(layer))
        if layer.bias is not None:
            yield layer.bias, _vector(side.vectors(layer.bias_uses))
    for name, gradients in side.generic.items():
        yield name, _vector(gradients)


def built(gradients: Tensor, kind: str) -> Factors:
    """Gradients (n, r, q, p) of a matrix, or (n, r, p, q) of a table, that are written down for once."""
    by_output = gradients if kind == "matrix" else gradients.mT
    return Factors("built", gradients, by_output.flatten(1, 2), by_output.shape[-1])


def _vector(gradients: Tensor) -> Factors:
    stacked = gradients.flatten(1)[:, None]
    return Factors("vector", stacked, stacked.new_ones(len(stacked), 1, 1), 1)


def energies(side: Side) -> Tensor:
    """|gradient|² of each sample over all parameters and directions, (n,)."""
    total = side.recording.outputs.new_zeros(side.n)
    for layer in side.recording.structure.layers:
        for norms in square_norms(side, layer).values():
            total += norms.sum(1)
    for gradients in side.generic.values():
        total += gradients.square().sum((1, 2))
    return total.detach()
