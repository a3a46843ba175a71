"""Gradients of every parameter as sums of outer products, all output directions stacked.

The gradient of a sample in r directions, as one long vector, is Σ_s Γ_s ⊗ a_s with Γ_s = (g_1s, ..., g_rs): one
sum of outer products instead of r.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

from tangentkit.empirical.passes.layer_gradients import LayerGradients, matrix_gradients
from tangentkit.empirical.passes.parameter_gradients import (
    Explicit,
    Orders,
    Products,
    Rows,
    parameter_gradients,
)

TABLES = ("lookup", "tied")
"""Kinds of factors whose parameters have the inputs first."""


@dataclass(frozen=True)
class Factors:
    """Σ_s Γ_s ⊗ a_s of n samples."""

    kind: str
    """"matrix"; "lookup" with one-hot a; "tied", a table that is also a matrix; "vector" with a = 1; "built" with
    Γ = 1: a is the gradient (n, r q, p)."""
    outgoing: Tensor
    """Γ (n, s, r q); nothing if it is 1."""
    inputs: Tensor
    """a (n, s, p); for lookups the rows (n, s), -1 for none."""
    p: int
    """Length of a."""

    @property
    def rows(self) -> int:
        """Length of Γ."""
        return self.inputs.shape[1] if self.kind == "built" else self.outgoing.shape[2]

    @property
    def entries(self) -> int:
        """Numbers for each sample that are worked on at a time."""
        s = self.inputs.shape[1]
        return s * max(s, self.rows, 1 if self.kind == "lookup" else self.p)

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

    def images(self, outgoing: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Σ G Gᵀ Ω and Σ Gᵀ G Ω over samples, with G = Σ_s Γ_s ⊗ a_s that is not formed; Ω (r q, k) and (p, k)."""
        if self.kind == "built":
            g = self.inputs
            return (g @ (g.mT @ outgoing)).sum(0), (g.mT @ (g @ inputs)).sum(0)
        gamma = self.outgoing
        # Products of all pairs of positions of a sample, (n, s, s), stand between the factors.
        of_g = gamma.flatten(0, 1).mT @ (self.input_gram() @ (gamma @ outgoing)).flatten(0, 1)
        return of_g, self.inputs_times(gamma @ gamma.mT @ self.times_inputs(inputs))

    def take(self, samples: Tensor) -> "Factors":
        """The factors of some samples."""
        return Factors(self.kind, self.outgoing[samples].detach(), self.inputs[samples].detach(), self.p)

    def core(self, outgoing: Tensor, inputs: Tensor) -> Tensor:
        """Coordinates (n, k l) of the gradient in two bases, of Γ (r q, k) and of a (p, l)."""
        left = outgoing if self.kind == "built" else self.outgoing @ outgoing
        return (left.mT @ self.times_inputs(inputs)).flatten(1)

    def as_kind(self, kind: str, name: str, orders: Orders, *, r: int, q: int) -> "Factors":
        """The same gradients, explicit, with the axes that factors of another kind have.

        Args:
            kind: the other one.
            name: of the parameter.
            orders: of all parameters.
            r: number of directions.
            q: length of Γ in one direction, in the other kind.
        """
        if self.kind == "built":
            matrices = self.inputs.unflatten(1, (r, -1))
        else:
            eye = torch.eye(self.p, dtype=self.outgoing.dtype, device=self.outgoing.device)
            matrices = (self.outgoing.mT @ self.times_inputs(eye)).unflatten(1, (r, -1))
        own = (matrices.mT if self.kind in TABLES else matrices).flatten(2)
        if self.kind in ("matrix", "built"):
            own = orders.restore(name, own)
        if kind == "vector":
            return _vector(own)
        if kind in TABLES:
            return built(own.unflatten(2, (-1, q)), kind)
        return built(orders.matrices(name, own, (1, q, -1))[:, :, 0], kind)


def all_factors(side: LayerGradients, orders: Orders) -> Iterator[tuple[str, Factors]]:
    """(parameter, factors) of everything."""
    for name, parts in groupby(parameter_gradients(side, orders), lambda found: found.name):
        yield name, _joined([_factors(part) for part in parts], side.r)


def _factors(found: Products | Rows | Explicit) -> Factors:
    if isinstance(found, Explicit):
        return _vector(found.gradients())
    g = found.outgoing[:]
    stacked = g.transpose(2, 3).flatten(3)  # (n, h, s, r q)
    if isinstance(found, Rows):
        return Factors("lookup", stacked[:, 0], found.indices, found.count)
    a = found.inputs(slice(None))
    if g.shape[1] > 1:
        # Several heads: outputs of all of them are rows of one matrix.
        return built(matrix_gradients(g, a).flatten(2, 3), "built")
    return Factors("matrix", stacked[:, 0], a[:, 0], a.shape[-1])


def built(gradients: Tensor, kind: str) -> Factors:
    """Gradients (n, r, q, p) of a matrix, or (n, r, p, q) of a table, as factors."""
    by_output = gradients.mT if kind in ("lookup", "tied") else gradients
    return Factors(
        "built", gradients.new_empty(len(gradients), 0), by_output.flatten(1, 2), by_output.shape[-1]
    )


def _joined(parts: list[Factors], r: int) -> Factors:
    """Of a parameter: its only factors, or those of a tied weight.

    A table (p, q) that is looked up and multiplied by has Σ_s γ_s ⊗ e_{i_s} + Σ_t a_t ⊗ h_t in each direction.
    """
    if len(parts) == 1:
        return parts[0]
    lookup, product = parts
    n, t, q = product.inputs.shape
    # Row (direction, position) of the product has its a in the columns of its direction.
    outgoing = product.inputs.new_zeros(n, r, t, r, q)
    for k in range(r):
        outgoing[:, k, :, k] = product.inputs
    inputs = product.outgoing.unflatten(2, (r, -1)).transpose(1, 2).flatten(1, 2)
    hot = torch.nn.functional.one_hot(lookup.inputs + 1, lookup.p + 1)[..., 1:].to(inputs)
    return Factors(
        "tied",
        torch.cat([lookup.outgoing, outgoing.flatten(3).flatten(1, 2)], 1),
        torch.cat([hot, inputs], 1),
        lookup.p,
    )


def _vector(gradients: Tensor) -> Factors:
    stacked = gradients.flatten(1)[:, None]
    return Factors("vector", stacked, stacked.new_ones(len(stacked), 1, 1), 1)
