"""From factors to a tile of the kernel.

The gradient of a matrix-like layer is Σ_s g_s ⊗ a_s over positions s, so its part of the kernel can be had

* *pairwise*: Σ_st (a_s · a'_t)(g_s · g'_t), without building a gradient; with one position that is the
  *factored* form (A A'ᵀ) ∘ (G G'ᵀ);
* by *gradient*: build the per-sample gradients in blocks, one matrix product a block.

Both give the same numbers; `plan` counts which is cheaper.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tangentkit.empirical.engine.gather import Gathered
from tangentkit.empirical.layers import Layer, LookupLayer, MatrixLayer
from tangentkit.empirical.passes.blocks import LONGEST_SUM, Blocks, even, pair_block, row_block
from tangentkit.empirical.passes.layer_gradients import lookup_gradients, matrix_gradients
from tangentkit.linalg.operators.spans import spans


@dataclass(eq=False)
class Tile:
    """A block of the kernel in the making: samples of two batches, for some or all parameters."""

    x: Gathered
    y: Gathered
    full: bool
    """Whether directions stay separate."""
    sums: dict[str, Tensor]
    """Parameter -> (n, m), or (n r, m r) with `full`. Several names may share one tensor."""
    buffer: Tensor
    """Where gradients are built."""
    blocks: Blocks
    grams: dict[object, Tensor] = field(default_factory=dict)
    """Position Grams of the inputs, kept over groups of directions where they are small."""

    @property
    def symmetric(self) -> bool:
        """Whether both batches are one: then only the lower triangle is made."""
        return self.x is self.y

    @property
    def copies(self) -> int:
        """Rows of the kernel for each sample."""
        return self.x.r if self.full else 1

    def add(self, name: str, fx: Tensor, fy: Tensor) -> None:
        """Adds <fx, fy> for gradients, or parts of gradients, (n, r, d) and (m, r, d)."""
        shape = (self.x.n * self.x.r, -1) if self.full else (self.x.n, -1)
        rows = fx.reshape(shape)
        columns = rows if fy is fx else fy.reshape(-1, rows.shape[1])
        total = self.sums[name]
        for part in spans(rows.shape[1], LONGEST_SUM):
            for i, j in self.panels(len(rows), len(columns), row_block(len(rows))):
                total[i, j].addmm_(rows[i, part], columns[j, part].T)

    def panels(self, n: int, m: int, width: int) -> Iterator[tuple[slice, slice]]:
        """(rows, columns) that cover a matrix or, in panels of so many columns, the half below its diagonal.

        Upright panels: their products are a tenth faster than those of lying ones.
        """
        if not self.symmetric:
            yield slice(0, n), slice(0, m)
            return
        for columns in spans(m, width):
            yield slice(columns.start, n), columns


# -- pairwise ----------------------------------------------------------------------------------------------------


def add_pairwise(tile: Tile, layer: Layer, *, keep_grams: bool) -> None:
    """Σ_st (a_s · a'_t)(g_s · g'_t) for a weight, and Σ_st g_s · g'_t for its bias."""
    gx, gy = tile.x.outgoing[layer], tile.y.outgoing[layer]
    if tile.full and isinstance(layer, MatrixLayer) and _same_for_all(gx) and _same_for_all(gy):
        _add_head(tile, layer, gx[0, :, :, 0], gy[0, :, :, 0])
        return
    gram = _lookup_gram(tile, layer) if isinstance(layer, LookupLayer) else _input_gram(tile, layer)
    copies, positions = gx.shape[2] if tile.full else 1, (gx.shape[3], gy.shape[3])
    for head in range(gx.shape[1]):
        hx = _pair_rows(gx[:, head], tile.full)
        hy = hx if tile.symmetric else _pair_rows(gy[:, head], tile.full)
        for i, j in _pair_blocks(tile, positions, copies):
            key = (layer, head, i.start, j.start)
            inner = tile.grams.get(key)
            if inner is None:
                inner = gram(head, i, j)
                if keep_grams:
                    tile.grams[key] = inner
            outer = hx[i].flatten(0, -2) @ hy[j].flatten(0, -2).T
            _add_pairs(tile, layer, (i, j), copies, outer, inner)


def _same_for_all(g: Tensor) -> bool:
    """Whether outgoing gradients (n, h, r, 1, q) are the same for all samples, as those of a linear head are."""
    return g.shape[3] == 1 and torch.equal(g[0], g[-1]) and bool((g == g[:1]).all())


def _add_head(tile: Tile, layer: Layer, gx: Tensor, gy: Tensor) -> None:
    """The head's part of a full kernel: (a · a' + 1) (g_r · g'_r'), from g (h, r, q)."""
    ax, r = tile.x.inputs(layer)[:, :, 0], gx.shape[1]
    ay = ax if tile.symmetric else tile.y.inputs(layer)[:, :, 0]
    for head, outer in enumerate(gx @ gy.mT):
        alone = torch.equal(outer, outer.diag().diag())
        for i, j in tile.panels(tile.x.n, tile.y.n, row_block(tile.x.n)):
            for name, factor in _factors(tile, layer, ax[i, head] @ ay[j, head].T).items():
                total = (
                    tile.sums[name][_entries(i, r), _entries(j, r)]
                    .unflatten(1, (-1, r))
                    .unflatten(0, (-1, r))
                )
                if alone:
                    # Outputs that do not share a row of the head: nothing stands beside the diagonal.
                    total.diagonal(0, 1, 3).addcmul_(factor[:, :, None], outer.diag())
                else:
                    total.addcmul_(factor[:, None, :, None], outer[:, None, :])


def _add_pairs(
    tile: Tile, layer: Layer, block: tuple[slice, slice], copies: int, outer: Tensor, inner: Tensor
) -> None:
    """Adds Σ_st outer ∘ inner, and Σ_st outer for the bias, to a block of samples."""
    (n, m), (rows, columns) = (s.stop - s.start for s in block), (_entries(s, copies) for s in block)
    outer = outer.view(n, copies, -1, m, copies, outer.shape[1] // (m * copies))
    inner = inner.view(n, 1, -1, m, 1, outer.shape[5])
    for name, factor in _factors(tile, layer, inner).items():
        total = tile.sums[name][rows, columns].unflatten(1, (m, copies)).unflatten(0, (n, copies))
        if outer.shape[2] == outer.shape[5] == 1:
            total.addcmul_(outer[:, :, 0, :, :, 0], factor[:, :, 0, :, :, 0])
        else:
            total += (outer * factor).sum((2, 5))


def _factors(tile: Tile, layer: Layer, inner: Tensor) -> dict[str, Tensor]:
    """What outer products are multiplied by: the Gram of the inputs for a weight, one for its bias."""
    if layer.bias is None:
        return {layer.weight: inner}
    if tile.sums[layer.bias] is tile.sums[layer.weight]:
        return {layer.weight: inner + 1}  # one pass over the sum will do
    return {layer.weight: inner, layer.bias: inner.new_ones(()).expand_as(inner)}


def _pair_rows(g: Tensor, full: bool) -> Tensor:
    # (n, r, s, q): rows (r, s) kept apart with `full`, else directions joined to the columns.
    return g.contiguous() if full else g.transpose(1, 2).flatten(2).contiguous()


def _pair_blocks(tile: Tile, positions: tuple[int, int], copies: int) -> Iterator[tuple[slice, slice]]:
    each = positions[0] * positions[1] * copies**2
    width = max(1, min(int((tile.blocks.pairs / each) ** 0.5), pair_block(tile.x.n, positions[0] * copies)))
    height = max(1, tile.blocks.pairs // (each * width))
    for rows, columns in tile.panels(tile.x.n, tile.y.n, width):
        for j in range(columns.start, columns.stop, width):
            for i in range(rows.start, rows.stop, height):
                yield slice(i, min(i + height, rows.stop)), slice(j, min(j + width, columns.stop))


def _entries(samples: slice, copies: int) -> slice:
    return slice(samples.start * copies, samples.stop * copies)


def _input_gram(tile: Tile, layer: Layer) -> Callable[[int, slice, slice], Tensor]:
    ax = tile.x.inputs(layer)
    ay = ax if tile.symmetric else tile.y.inputs(layer)

    def gram(head: int, i: slice, j: slice) -> Tensor:
        return ax[i, head].flatten(0, 1) @ ay[j, head].flatten(0, 1).T

    return gram


def _lookup_gram(tile: Tile, layer: Layer) -> Callable[[int, slice, slice], Tensor]:
    ix = tile.x.indices(layer)
    iy = ix if tile.symmetric else tile.y.indices(layer)
    dtype = tile.x.outgoing[layer].dtype

    def gram(_: int, i: slice, j: slice) -> Tensor:
        left, right = ix[i].flatten()[:, None], iy[j].flatten()[None, :]
        return ((left == right) & (left >= 0)).to(dtype)

    return gram


def add_tied(tile: Tile, layer: Layer, *, keep_grams: bool) -> None:
    """A table that is looked up and multiplied by: Σ_s e_{i_s} ⊗ γ_s + Σ_t h_t ⊗ a_t, with its cross terms."""
    lookup, product = layer.parts
    add_pairwise(tile, lookup, keep_grams=keep_grams)
    add_pairwise(tile, product, keep_grams=keep_grams)
    x = _tied_factors(tile.x, lookup, product)
    y = x if tile.symmetric else _tied_factors(tile.y, lookup, product)
    total = tile.sums[layer.weight]
    for i, j in _cross_blocks(tile, lookup, product):
        where = _entries(i, tile.copies), _entries(j, tile.copies)
        total[where] += _cross(x, y, i, j, tile.full)
        total[where] += _cross(y, x, j, i, tile.full).T


Tied = tuple[Tensor, Tensor, Tensor, Tensor]
"""Rows looked up (n, s), their gradients γ (n, r, s, p), gradients h (n, r, t, rows) and inputs a (n, t, p) of
products."""


def _tied_factors(side: Gathered, lookup: Layer, product: Layer) -> Tied:
    gamma, h = side.outgoing[lookup][:, 0], side.outgoing[product][:, 0]
    return side.indices(lookup), gamma, h, side.inputs(product)[:, 0]


def _cross(x: Tied, y: Tied, i: slice, j: slice, full: bool) -> Tensor:
    """Σ_st h'_t[i_s] (γ_s · a'_t): lookups of samples i of x with products of samples j of y."""
    (indices, gamma), (h, a) = (part[i] for part in x[:2]), (part[j] for part in y[2:])
    # h' at the rows that x looks up: (m, r, t, n, s), nothing where nothing is looked up.
    found = h[..., indices.clamp_min(0)] * (indices >= 0)
    inner = torch.einsum("nrsd,mtd->nrsmt", gamma, a)
    joined = torch.einsum("nrsmt,mqtns->nrmq" if full else "nrsmt,mrtns->nm", inner, found)
    return joined.flatten(2).flatten(0, 1) if full else joined


def _cross_blocks(tile: Tile, lookup: Layer, product: Layer) -> Iterator[tuple[slice, slice]]:
    positions = tile.x.outgoing[lookup].shape[3] * tile.x.outgoing[product].shape[3]
    size = max(1, int((tile.blocks.pairs / (positions * tile.x.r)) ** 0.5))
    for rows in spans(tile.x.n, size):
        for columns in spans(rows.stop if tile.symmetric else tile.y.n, size):
            yield rows, columns


# -- by gradient -------------------------------------------------------------------------------------------------


def add_gradients(tile: Tile, layer: Layer) -> None:
    """Per-sample gradients of a weight in blocks of its columns, one matrix product a block."""
    p = next(tile.x.input_pieces(layer, 1))[1].shape[-1]
    for heads, columns in _weight_blocks(tile, layer, p):
        fx = _block_gradients(tile.x, layer, heads, columns, tile.buffer, tile.blocks)
        rest = tile.buffer[fx.numel() :]
        fy = fx if tile.symmetric else _block_gradients(tile.y, layer, heads, columns, rest, tile.blocks)
        tile.add(layer.weight, fx, fy)


def _weight_blocks(tile: Tile, layer: Layer, p: int) -> Iterator[tuple[slice, slice]]:
    """(heads, columns) of a weight that fit the buffer.

    Blocks are cut through the columns, because inputs may have to be unfolded: so each is unfolded once.
    """
    _, h, r, _, q = tile.x.outgoing[layer].shape
    samples = tile.x.n if tile.symmetric else tile.x.n + tile.y.n
    fitting = max(1, tile.blocks.built // (q * r * samples))
    size = even(p, fitting)
    together = max(1, fitting // p)
    for heads in spans(h, together):
        for columns in spans(p, size):
            yield heads, columns


def _block_gradients(
    side: Gathered, layer: Layer, heads: slice, columns: slice, buffer: Tensor, blocks: Blocks
) -> Tensor:
    """(n, r, h q p) for some heads and columns, written to a buffer in pieces of samples."""
    g = side.outgoing[layer][:, heads]
    n, h, r, s, q = g.shape
    p = columns.stop - columns.start
    out = buffer[: n * r * h * q * p].view(n, r, h, q, p)
    step = max(1, blocks.pieces // (s * max(side.outgoing[layer].shape[1] * p, h * r * q)))
    for samples, a in side.input_pieces(layer, step, columns):
        matrix_gradients(g[samples], a[:, heads], out=out[samples])
    return out.flatten(2)


def add_lookup_gradients(tile: Tile, layer: Layer) -> None:
    """Per-sample gradients of a table, over the rows that occur in both batches."""
    ix = tile.x.indices(layer)
    iy = ix if tile.symmetric else tile.y.indices(layer)
    rows = torch.unique(ix) if tile.symmetric else _common(ix, iy)
    rows = rows[rows >= 0]
    gx, gy = tile.x.outgoing[layer], tile.y.outgoing[layer]
    size = max(1, LONGEST_SUM // (gx.shape[4] * tile.x.r))
    for some in (rows[part] for part in spans(len(rows), size)):
        fx = lookup_gradients(_positions(ix, some), gx, len(some)).flatten(2)
        fy = fx if tile.symmetric else lookup_gradients(_positions(iy, some), gy, len(some)).flatten(2)
        tile.add(layer.weight, fx, fy)


def _common(ix: Tensor, iy: Tensor) -> Tensor:
    left, right = torch.unique(ix), torch.unique(iy)
    return left[torch.isin(left, right)]


def _positions(indices: Tensor, rows: Tensor) -> Tensor:
    places = torch.searchsorted(rows, indices).clamp(max=len(rows) - 1)
    return torch.where(rows[places] == indices, places, -1)


def add_explicit(tile: Tile, name: str) -> None:
    """Explicit gradients (n, r, d)."""
    tile.add(name, tile.x.explicit[name], tile.y.explicit[name])
