"""A recorded batch with outgoing gradients: per-sample gradients of every layer, for a few output directions."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from tangentkit.core.batches import Batch
from tangentkit.empirical.layers import (
    AssembledLayer,
    Layer,
    LookupLayer,
    MatrixLayer,
    TiedLayer,
    VectorLayer,
)
from tangentkit.empirical.passes.blocks import Blocks
from tangentkit.empirical.passes.generic import generic_gradients
from tangentkit.empirical.passes.recording import Recording
from tangentkit.empirical.rules.base import Lookup, Matrix, Vector
from tangentkit.linalg.operators.spans import spans


@dataclass(frozen=True)
class Size:
    """A layer's gradient Σ_s g_s ⊗ a_s: h heads, s positions, a of length p, g of length q."""

    h: int
    s: int
    p: int
    q: int
    summed: int = 0
    """Products that are summed to make a, where it is seen from behind a pooling."""

    @property
    def compact(self) -> bool:
        """Whether the gradient is not much larger than its factor g: then it may as well be explicit."""
        return self.p <= 2 * self.s

    @property
    def retained(self) -> int:
        """Entries that are retained of a sample, for one output direction."""
        return self.h * self.q * (self.p if self.compact else self.s)


def size_of(recording: Recording, layer: Layer) -> Size:
    """The size of a layer's gradient, from any recording."""
    graph, numel = recording.graph, recording.parameters[layer.weight].numel()
    if isinstance(layer, (VectorLayer, AssembledLayer)):
        return Size(1, 1, 1, numel)
    first, positions = recording.sites[layer.parts[-1].uses[0]], 0
    for use in layer.uses:
        site = recording.sites[use]
        positions += site.indices.shape[1] if isinstance(site, Lookup) else site.inputs(slice(0, 1)).shape[2]  # pyright: ignore
    if isinstance(first, Matrix):
        _, h, _, p = first.inputs(slice(0, 1)).shape
        return Size(h, positions, p, numel // (h * p), first.summed)
    rows = graph.shapes(layer.uses[0].source[0])[layer.uses[0].source[1]][0]
    return Size(1, positions, rows, numel // rows)


@dataclass(eq=False)
class LayerGradients:
    """A batch, with outgoing gradients for a group of r output directions."""

    recording: Recording
    gradients: list[dict[int, Tensor | None]]
    """For each direction, node -> gradient of the node's output."""
    generic: dict[str, Tensor]
    """Parameters of the generic route -> (n, r, p)."""

    @classmethod
    def of(cls, recording: Recording, batch: Batch, directions: Tensor) -> Self:
        """Of a recorded batch in output directions (r, c), by the generic route where there is no rule."""
        generic = generic_gradients(recording.function, recording.structure, batch, directions)
        return cls(recording, recording.backward(directions), generic)

    @property
    def n(self) -> int:
        """The number of samples."""
        return self.recording.n

    @property
    def r(self) -> int:
        """The number of output directions."""
        return len(self.gradients)

    def outgoing(self, layer: Layer) -> "Outgoing":
        """The outgoing gradients of all uses."""
        parts = []
        for use in layer.uses:
            site = self.recording.sites[use]
            assert isinstance(site, (Matrix, Lookup))
            parts.append([site.outgoing(self.gradient(g, use.node)) for g in self.gradients])
        return Outgoing(parts)

    def vectors(self, uses: tuple) -> Tensor:
        """Gradients (n, r, t) of a small parameter, summed over its uses."""
        total = 0
        for use in uses:
            site = self.recording.sites[use]
            assert isinstance(site, Vector)
            total = total + torch.stack(
                [site.gradient(self.gradient(g, use.node)) for g in self.gradients], 1
            )
        assert isinstance(total, Tensor)
        return total

    def explicit(self, layer: Layer) -> Tensor:
        """Gradients (n, r, p) of a layer that is no sum of outer products."""
        return self.vectors(layer.uses) if isinstance(layer, VectorLayer) else self.assembled(layer)

    def assembled(self, layer: Layer) -> Tensor:
        """Gradients (n, r, p) of a parameter with uses of several kinds, pulled back to the parameter."""
        total = 0
        for use in layer.uses:
            site, shape = self.recording.sites[use], self._source_shape(use)
            one = Layer(layer.weight, (use,))
            if isinstance(site, Vector):
                gradient = self.vectors((use,))
            elif isinstance(site, Matrix):
                gradient = matrix_gradients(
                    self.outgoing(one)[:], layer_inputs(self.recording, one, slice(None))
                )
                gradient = gradient.mT if site.transposed else gradient
            else:
                gradient = lookup_gradients(
                    layer_indices(self.recording, one), self.outgoing(one)[:], shape[0]
                )
            flat = gradient.reshape(self.n * self.r, *shape)
            total = total + self.recording.pull(use, flat, layer.weight).unflatten(0, (self.n, self.r))
        assert isinstance(total, Tensor)
        return total

    def square_norms(self) -> Tensor:
        """|gradient|² of all parameters together, for every sample and direction (n, r)."""
        total = self.recording.outputs.new_zeros(self.n, self.r)
        for layer in self.recording.structure.layers:
            for norms in layer_norms(self, layer).values():
                total += norms
        for gradients in self.generic.values():
            total += gradients.square().sum(2)
        return total

    def _source_shape(self, use) -> tuple[int, ...]:
        return self.recording.graph.shapes(use.source[0])[use.source[1]]

    def gradient(self, gradients: dict[int, Tensor | None], node: int) -> Tensor:
        """The gradient of a node's output, zeros where the output does not depend on it."""
        found = gradients[node]
        if found is not None:
            return found
        shape = self.recording.graph.shapes(node)[0]
        return self.recording.outputs.new_zeros(shape)


class Merged:
    """One direction in the place of many, where gradients are the same for all samples: (Σ_r γ_r²)^½."""

    def __init__(self) -> None:
        self.squares: dict[int, Tensor] = {}

    def add(self, side: LayerGradients, layers: Iterable[Layer]) -> None:
        """The directions of a side, for layers that merge."""
        for node in {use.node for layer in layers for use in layer.uses}:
            for gradients in side.gradients:
                square = side.gradient(gradients, node)[:1].square()
                self.squares[node] = self.squares[node].add_(square) if node in self.squares else square

    def side(self, recording: Recording) -> LayerGradients:
        """The samples in the direction that does for all."""
        rows = len(recording.outputs)
        found: dict[int, Tensor | None] = {
            node: square.sqrt().expand(rows, -1) for node, square in self.squares.items()
        }
        return LayerGradients(recording, [found], {})


def layer_inputs(recording: Recording, layer: Layer, samples: slice, columns: slice = slice(None)) -> Tensor:
    """a (n, h, s, p) of all positions of all uses, for some samples and some of the p columns."""
    sites = [recording.sites[use] for use in layer.uses]
    parts = [site.part(samples, columns) for site in sites if isinstance(site, Matrix)]
    return parts[0] if len(parts) == 1 else torch.cat(parts, 2)


def layer_indices(recording: Recording, layer: Layer) -> Tensor:
    """Rows looked up (n, s), -1 for none."""
    sites = [recording.sites[use] for use in layer.uses]
    return torch.cat([site.indices for site in sites if isinstance(site, Lookup)], 1)


@dataclass(frozen=True, eq=False)
class Outgoing:
    """g (n, h, r, s, q) of all positions of all uses of a layer, stacked when samples are taken."""

    parts: list[list[Tensor]]
    """For each use and direction, (n, h, s, q)."""

    @property
    def sizes(self) -> tuple[int, int, int, int, int]:
        """(n, h, r, s, q)."""
        n, h, _, q = self.parts[0][0].shape
        return n, h, len(self.parts[0]), sum(views[0].shape[2] for views in self.parts), q

    def __getitem__(self, samples: slice) -> Tensor:
        return self.block(samples, slice(None), slice(None))

    def block(self, samples: slice, heads: slice, rows: slice) -> Tensor:
        """g for some samples, heads and rows q of the weight."""
        stacks = [_stack([view[samples, heads, :, rows] for view in views]) for views in self.parts]
        return stacks[0] if len(stacks) == 1 else torch.cat(stacks, 3)


def _stack(views: list[Tensor]) -> Tensor:
    """(n, h, s, q) for each direction -> (n, h, r, s, q), in the memory order that the views have."""
    if len(views) == 1:
        return views[0].unsqueeze(2)
    if views[0].stride(-1) == 1 or views[0].shape[-2] == 1:
        return torch.stack(views, 3).transpose(2, 3)
    return torch.stack([view.mT for view in views], 2).mT


def matrix_gradients(g: Tensor, a: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Σ_s g_s ⊗ a_s as (n, r, h, q, p), from g (n, h, r, s, q) and a (n, h, s, p)."""
    left = g.permute(0, 1, 2, 4, 3).flatten(2, 3)
    if out is not None and out.shape[2] == 1:
        # (n, r, 1, q, p) is (n, r q, p) in memory: the product can be written in place.
        torch.bmm(left[:, 0], a[:, 0], out=out.view(len(out), -1, out.shape[-1]))
        return out
    product = (left @ a).unflatten(2, (g.shape[2], g.shape[4])).transpose(1, 2)
    return product if out is None else out.copy_(product)


def lookup_gradients(indices: Tensor, g: Tensor, rows: int) -> Tensor:
    """Σ_s [index_s = v] g_s as (n, r, v, q), for indices (n, s) with -1 for none and g (n, 1, r, s, q)."""
    n, _, r, _, q = g.shape
    # A row more than wanted takes what is looked up nowhere.
    out = g.new_zeros(n, r, rows + 1, q)
    target = torch.where(indices < 0, rows, indices)[:, None, :, None].expand(n, r, -1, q)
    return out.scatter_add_(2, target, g[:, 0])[:, :, :rows]


# -- diagonal ----------------------------------------------------------------------------------------------------


def layer_norms(side: LayerGradients, layer: Layer) -> dict[str, Tensor]:
    """|gradient|² of every sample and direction, (n, r), for the parameters of a layer."""
    if isinstance(layer, MatrixLayer):
        found = {layer.weight: _matrix_norms(side, layer, side.outgoing(layer))}
        if layer.bias is not None:
            found[layer.bias] = side.vectors(layer.bias_uses).square().sum(2)
        return found
    if isinstance(layer, LookupLayer):
        g, indices = side.outgoing(layer)[:][:, 0], layer_indices(side.recording, layer)
        same = (indices[:, :, None] == indices[:, None, :]) & (indices >= 0)[:, :, None]
        return {layer.weight: ((g @ g.mT) * same[:, None]).sum((2, 3))}
    if isinstance(layer, TiedLayer):
        return {layer.weight: _tied_norms(side, *layer.parts)}
    gradient = side.explicit(layer)
    return {layer.weight: gradient.square().sum(2)}


def _tied_norms(side: LayerGradients, lookup: Layer, product: Layer) -> Tensor:
    """|Σ_s e_{i_s} ⊗ γ_s + Σ_t h_t ⊗ a_t|²."""
    (norms,), (others,) = layer_norms(side, lookup).values(), layer_norms(side, product).values()
    indices = layer_indices(side.recording, lookup)
    gamma, h = side.outgoing(lookup)[:][:, 0], side.outgoing(product)[:][:, 0]
    a = layer_inputs(side.recording, product, slice(None))[:, 0]
    # h at the rows that are looked up: (n, r, t, s), nothing where nothing is looked up.
    n, r, t, _ = h.shape
    rows = indices.clamp_min(0)[:, None, None, :].expand(n, r, t, -1)
    found = h.gather(3, rows) * (indices >= 0)[:, None, None, :]
    return norms + others + 2 * ((gamma @ a.mT.unsqueeze(1)).mT * found).sum((2, 3))


def _matrix_norms(side: LayerGradients, layer: Layer, g: Outgoing) -> Tensor:
    n, h, r, s, q = g.sizes
    p = layer_inputs(side.recording, layer, slice(0, 1)).shape[-1]
    by_pairs = s * (p + q * r) < q * p * r
    size = max(1, Blocks.pieces // (h * max(s * p, r * s * q, r * min(s * s, q * p))))
    out = side.recording.outputs.new_empty(n, r)
    for samples in spans(n, size):
        some, a = g[samples], layer_inputs(side.recording, layer, samples)
        if by_pairs:
            out[samples] = ((some @ some.mT) * (a @ a.mT).unsqueeze(2)).sum((1, 3, 4))
        else:
            out[samples] = matrix_gradients(some, a).square().sum((2, 3, 4))
    return out
