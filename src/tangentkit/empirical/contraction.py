"""From factors to a tile of the kernel.

The gradient of a matrix-like layer is Σ_s g_s ⊗ a_s over positions s, so its part of the kernel can be had

* *pairwise*: Σ_st (a_s · a'_t)(g_s · g'_t), without building a gradient; with one position that is the
  *factored* form (A A'ᵀ) ∘ (G G'ᵀ);
* by *gradient*: build the per-sample gradients in blocks, one matrix product a block.

Both give the same numbers; `plan` counts which is cheaper.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tangentkit.empirical.recording import Recording
from tangentkit.empirical.rules import Lookup, Matrix, Vector
from tangentkit.empirical.structure import Layer

LONGEST_SUM = 2**16
"""Columns of one matrix product. One float32 product over 11M columns loses three digits; blocks do not."""
PAIR_ENTRIES = 2**22
"""Entries of a block of position pairs: 16 MB in float32, near the cache."""
BUILT_ENTRIES = 2**24
"""Entries of gradients built at a time: 64 MB in float32, in one buffer that all layers use in turn."""
PIECE_ENTRIES = 2**21
"""Entries of factors that are unfolded or stacked at a time: 8 MB in float32. Blocks of this size stay near the
cache, and the allocator gives the same memory again; larger ones would be fresh pages every time."""


@dataclass(eq=False)
class Side:
    """A batch, with outgoing gradients for a group of r output directions."""

    recording: Recording
    gradients: list[dict[int, Tensor | None]]
    """For each direction, node -> gradient of the node's output."""
    generic: dict[str, Tensor]
    """Parameters of the generic route -> (n, r, p)."""

    @property
    def n(self) -> int:
        """Number of samples."""
        return self.recording.n

    @property
    def r(self) -> int:
        """Number of directions."""
        return len(self.gradients)

    def outgoing(self, layer: Layer) -> "Outgoing":
        """The outgoing gradients of all uses."""
        parts = []
        for use in layer.uses:
            site = self.recording.sites[use]
            assert isinstance(site, (Matrix, Lookup))
            parts.append([site.outgoing(self._gradient(g, use.node)) for g in self.gradients])
        return Outgoing(parts)

    def inputs(self, layer: Layer, samples: slice) -> Tensor:
        """a (n, h, s, p) of all positions of all uses, for some samples."""
        sites = [self.recording.sites[use] for use in layer.uses]
        parts = [site.inputs(samples) for site in sites if isinstance(site, Matrix)]
        return parts[0] if len(parts) == 1 else torch.cat(parts, 2)

    def indices(self, layer: Layer) -> Tensor:
        """Rows looked up (n, s), -1 for none."""
        sites = [self.recording.sites[use] for use in layer.uses]
        return torch.cat([site.indices for site in sites if isinstance(site, Lookup)], 1)

    def vectors(self, uses: tuple) -> Tensor:
        """Gradients (n, r, t) of a small parameter, summed over its uses."""
        total = 0
        for use in uses:
            site = self.recording.sites[use]
            assert isinstance(site, Vector)
            total = total + torch.stack(
                [site.gradient(self._gradient(g, use.node)) for g in self.gradients], 1
            )
        assert isinstance(total, Tensor)
        return total

    def assembled(self, layer: Layer) -> Tensor:
        """Gradients (n, r, p) of a parameter with uses of several kinds, pulled back to the parameter."""
        total = 0
        for use in layer.uses:
            site, shape = self.recording.sites[use], self._source_shape(use)
            one = Layer(layer.kind, layer.weight, (use,))
            if isinstance(site, Vector):
                gradient = self.vectors((use,))
            elif isinstance(site, Matrix):
                gradient = matrix_gradients(self, one, self.outgoing(one)[:], slice(0, self.n))
                gradient = gradient.mT if site.transposed else gradient
            else:
                gradient = lookup_gradients(self.indices(one), self.outgoing(one)[:], shape[0])
            flat = gradient.reshape(self.n * self.r, *shape)
            total = total + self.recording.pull(use, flat, layer.weight).unflatten(0, (self.n, self.r))
        assert isinstance(total, Tensor)
        return total

    def _source_shape(self, use) -> tuple[int, ...]:
        return self.recording.graph.shapes(use.source[0])[use.source[1]]

    def _gradient(self, gradients: dict[int, Tensor | None], node: int) -> Tensor:
        found = gradients[node]
        if found is not None:
            return found
        # The output does not depend on this use in this direction.
        shape = self.recording.graph.shapes(node)[0]
        return self.recording.outputs.new_zeros(shape)


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


@dataclass(eq=False)
class Tile:
    """A block of the kernel in the making: samples of two batches, for some or all parameters."""

    x: Side
    y: Side
    full: bool
    """Whether directions are kept apart."""
    sums: dict[str, Tensor]
    """Parameter -> (n, m), or (n r, m r) with `full`. Several names may share one tensor."""
    buffer: Tensor
    """Where gradients are built."""
    grams: dict[object, Tensor] = field(default_factory=dict)
    """Position Grams of the inputs, kept over groups of directions where they are small."""

    @property
    def symmetric(self) -> bool:
        """Whether both batches are one: then only the lower triangle is made."""
        return self.x is self.y

    def add(self, name: str, fx: Tensor, fy: Tensor) -> None:
        """Adds <fx, fy> for gradients, or parts of gradients, (n, r, d) and (m, r, d)."""
        shape = (self.x.n * self.x.r, -1) if self.full else (self.x.n, -1)
        rows = fx.reshape(shape)
        columns = rows if fy is fx else fy.reshape(-1, rows.shape[1])
        total = self.sums[name]
        for start in range(0, rows.shape[1], LONGEST_SUM):
            part = slice(start, start + LONGEST_SUM)
            for block in _row_blocks(len(rows), halves=self.symmetric):
                stop = block.stop if self.symmetric else len(columns)
                total[block, :stop].addmm_(rows[block, part], columns[:stop, part].T)


def _stack(views: list[Tensor]) -> Tensor:
    """(n, h, s, q) for each direction -> (n, h, r, s, q), in the memory order that the views have."""
    if len(views) == 1:
        return views[0].unsqueeze(2)
    if views[0].stride(-1) == 1 or views[0].shape[-2] == 1:
        return torch.stack(views, 3).transpose(2, 3)
    return torch.stack([view.mT for view in views], 2).mT


def row_block(n: int) -> int:
    """Rows of a block of a symmetric product: few enough to save nearly half, enough for a fast product."""
    return max(32, -(-n // 8))


def _row_blocks(n: int, *, halves: bool) -> Iterator[slice]:
    size = row_block(n) if halves else n
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


# -- pairwise ----------------------------------------------------------------------------------------------------


def add_pairwise(tile: Tile, layer: Layer, *, keep_grams: bool) -> None:
    """Σ_st (a_s · a'_t)(g_s · g'_t) for a weight, and Σ_st g_s · g'_t for its bias."""
    gx = tile.x.outgoing(layer)[:]
    gy = gx if tile.symmetric else tile.y.outgoing(layer)[:]
    gram = _lookup_gram(tile, layer) if layer.kind == "lookup" else _input_gram(tile, layer)
    copies, positions = gx.shape[2] if tile.full else 1, (gx.shape[3], gy.shape[3])
    for head in range(gx.shape[1]):
        hx = _pair_rows(gx[:, head], tile.full)
        hy = hx if tile.symmetric else _pair_rows(gy[:, head], tile.full)
        for i, j in _pair_blocks(tile, positions, copies):
            key = (layer.weight, head, i.start, j.start)
            inner = tile.grams.get(key)
            if inner is None:
                inner = gram(head, i, j)
                if keep_grams:
                    tile.grams[key] = inner
            outer = hx[i].flatten(0, -2) @ hy[j].flatten(0, -2).T
            _add_pairs(tile, layer, (i, j), copies, outer, inner)


def _add_pairs(
    tile: Tile, layer: Layer, block: tuple[slice, slice], copies: int, outer: Tensor, inner: Tensor
) -> None:
    """Adds Σ_st outer ∘ inner, and Σ_st outer for the bias, to a block of samples."""
    (n, m), (rows, columns) = (s.stop - s.start for s in block), (_entries(s, copies) for s in block)
    outer = outer.view(n, copies, -1, m, copies, outer.shape[1] // (m * copies))
    inner = inner.view(n, 1, -1, m, 1, outer.shape[5])
    parts = {layer.weight: inner} if layer.bias is None else {layer.weight: inner, layer.bias: None}
    if layer.bias is not None and tile.sums[layer.bias] is tile.sums[layer.weight]:
        # Both go to one sum: one pass over it will do.
        parts = {layer.weight: inner + 1}
    for name, factor in parts.items():
        total = tile.sums[name][rows, columns].unflatten(1, (m, copies)).unflatten(0, (n, copies))
        if factor is None:
            total += outer.sum((2, 5))
        elif outer.shape[2] == outer.shape[5] == 1:
            total.addcmul_(outer[:, :, 0, :, :, 0], factor[:, :, 0, :, :, 0])
        else:
            total += (outer * factor).sum((2, 5))


def pair_block(n: int, positions: int) -> int:
    """Samples of a block of pairs: an eighth, so that nearly half of a symmetric kernel is saved, if rows suffice."""
    return max(-(-n // 8), -(-128 // positions))


def _pair_rows(g: Tensor, full: bool) -> Tensor:
    # (n, r, s, q): rows (r, s) kept apart with `full`, else directions joined to the columns.
    return g.contiguous() if full else g.transpose(1, 2).flatten(2).contiguous()


def _pair_blocks(tile: Tile, positions: tuple[int, int], copies: int) -> Iterator[tuple[slice, slice]]:
    n, m = tile.x.n, tile.y.n
    entries = PAIR_ENTRIES / (positions[0] * positions[1] * copies**2)
    size = max(1, min(int(entries**0.5), pair_block(n, positions[0])))
    for i in range(0, n, size):
        for j in range(0, min(i + size, n) if tile.symmetric else m, size):
            yield slice(i, min(i + size, n)), slice(j, min(j + size, m))


def _entries(samples: slice, copies: int) -> slice:
    return slice(samples.start * copies, samples.stop * copies)


def _input_gram(tile: Tile, layer: Layer) -> Callable[[int, slice, slice], Tensor]:
    ax = tile.x.inputs(layer, slice(0, tile.x.n)).contiguous()
    ay = ax if tile.symmetric else tile.y.inputs(layer, slice(0, tile.y.n)).contiguous()

    def gram(head: int, i: slice, j: slice) -> Tensor:
        return ax[i, head].flatten(0, 1) @ ay[j, head].flatten(0, 1).T

    return gram


def _lookup_gram(tile: Tile, layer: Layer) -> Callable[[int, slice, slice], Tensor]:
    ix = tile.x.indices(layer)
    iy = ix if tile.symmetric else tile.y.indices(layer)
    dtype = tile.x.recording.outputs.dtype

    def gram(_: int, i: slice, j: slice) -> Tensor:
        left, right = ix[i].flatten()[:, None], iy[j].flatten()[None, :]
        return ((left == right) & (left >= 0)).to(dtype)

    return gram


# -- by gradient -------------------------------------------------------------------------------------------------


def add_gradients(tile: Tile, layer: Layer) -> None:
    """Per-sample gradients of a weight in blocks of its rows, one matrix product a block."""
    gx = tile.x.outgoing(layer)
    gy = gx if tile.symmetric else tile.y.outgoing(layer)
    for heads, rows in _weight_blocks(tile, layer, gx):
        fx = _block_gradients(tile.x, layer, gx, heads, rows, tile.buffer)
        rest = tile.buffer[fx.numel() :]
        fy = fx if tile.symmetric else _block_gradients(tile.y, layer, gy, heads, rows, rest)
        tile.add(layer.weight, fx, fy)


def _weight_blocks(tile: Tile, layer: Layer, g: Outgoing) -> Iterator[tuple[slice, slice]]:
    _, h, r, _, q = g.sizes
    p = tile.x.inputs(layer, slice(0, 1)).shape[-1]
    columns = max(1, BUILT_ENTRIES // (p * r * (tile.x.n if tile.symmetric else tile.x.n + tile.y.n)))
    size = min(columns, q)
    together = max(1, columns // q)
    for head in range(0, h, together):
        for row in range(0, q, size):
            yield slice(head, min(head + together, h)), slice(row, min(row + size, q))


def _block_gradients(
    side: Side, layer: Layer, g: Outgoing, heads: slice, rows: slice, buffer: Tensor
) -> Tensor:
    """(n, r, h q p) for some heads and rows, written to a buffer in pieces of samples."""
    n, h, r, s, _ = g.sizes
    a = side.inputs(layer, slice(0, 1))
    sizes = (heads.stop - heads.start, rows.stop - rows.start, a.shape[-1])
    out = buffer[: n * r * math.prod(sizes)].view(n, r, *sizes)
    step = max(1, PIECE_ENTRIES // max(a.numel(), h * r * s * sizes[1]))
    for start in range(0, n, step):
        samples = slice(start, min(start + step, n))
        matrix_gradients(side, layer, g.block(samples, heads, rows), samples, heads, out=out[samples])
    return out.flatten(2)


def matrix_gradients(
    side: Side,
    layer: Layer,
    g: Tensor,
    samples: slice,
    heads: slice = slice(None),
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Σ_s g_s ⊗ a_s as (n, r, h, q, p) for some samples, g being (n, h, r, s, q) for these samples and heads."""
    a = side.inputs(layer, samples)[:, heads]
    left = g.permute(0, 1, 2, 4, 3).flatten(2, 3)
    if out is not None and out.shape[2] == 1:
        # (n, r, 1, q, p) is (n, r q, p) in memory: the product can be written in place.
        torch.bmm(left[:, 0], a[:, 0], out=out.view(len(out), -1, out.shape[-1]))
        return out
    product = (left @ a).unflatten(2, (g.shape[2], g.shape[4])).transpose(1, 2)
    return product if out is None else out.copy_(product)


def add_lookup_gradients(tile: Tile, layer: Layer) -> None:
    """Per-sample gradients of a table, over the rows that occur in both batches."""
    ix = tile.x.indices(layer)
    iy = ix if tile.symmetric else tile.y.indices(layer)
    rows = torch.unique(ix) if tile.symmetric else _common(ix, iy)
    rows = rows[rows >= 0]
    gx = tile.x.outgoing(layer)[:]
    gy = gx if tile.symmetric else tile.y.outgoing(layer)[:]
    size = max(1, LONGEST_SUM // (gx.shape[4] * tile.x.r))
    for start in range(0, len(rows), size):
        some = rows[start : start + size]
        fx = lookup_gradients(_positions(ix, some), gx, len(some)).flatten(2)
        fy = fx if tile.symmetric else lookup_gradients(_positions(iy, some), gy, len(some)).flatten(2)
        tile.add(layer.weight, fx, fy)


def lookup_gradients(indices: Tensor, g: Tensor, rows: int) -> Tensor:
    """Σ_s [index_s = v] g_s as (n, r, v, q), for indices (n, s) with -1 for none and g (n, 1, r, s, q)."""
    n, _, r, _, q = g.shape
    # A row more than wanted takes what is looked up nowhere.
    out = g.new_zeros(n, r, rows + 1, q)
    target = torch.where(indices < 0, rows, indices)[:, None, :, None].expand(n, r, -1, q)
    return out.scatter_add_(2, target, g[:, 0])[:, :, :rows]


def _common(ix: Tensor, iy: Tensor) -> Tensor:
    left, right = torch.unique(ix), torch.unique(iy)
    return left[torch.isin(left, right)]


def _positions(indices: Tensor, rows: Tensor) -> Tensor:
    places = torch.searchsorted(rows, indices).clamp(max=len(rows) - 1)
    return torch.where(rows[places] == indices, places, -1)


def add_vectors(tile: Tile, name: str, gradients: Callable[[Side], Tensor]) -> None:
    """Gradients (n, r, t) that are written down at once."""
    fx = gradients(tile.x)
    tile.add(name, fx, fx if tile.symmetric else gradients(tile.y))


# -- diagonal ----------------------------------------------------------------------------------------------------


def square_norms(side: Side, layer: Layer) -> dict[str, Tensor]:
    """|gradient|² of every sample and direction, (n, r), for the parameters of a layer."""
    if layer.kind == "matrix":
        found = {layer.weight: _matrix_norms(side, layer, side.outgoing(layer))}
        if layer.bias is not None:
            found[layer.bias] = side.vectors(layer.bias_uses).square().sum(2)
        return found
    if layer.kind == "lookup":
        g, indices = side.outgoing(layer)[:][:, 0], side.indices(layer)
        same = (indices[:, :, None] == indices[:, None, :]) & (indices >= 0)[:, :, None]
        return {layer.weight: ((g @ g.mT) * same[:, None]).sum((2, 3))}
    gradient = side.vectors(layer.uses) if layer.kind == "vector" else side.assembled(layer)
    return {layer.weight: gradient.square().sum(2)}


def _matrix_norms(side: Side, layer: Layer, g: Outgoing) -> Tensor:
    n, h, r, s, q = g.sizes
    p = side.inputs(layer, slice(0, 1)).shape[-1]
    by_pairs = s * (p + q * r) < q * p * r
    size = max(1, PIECE_ENTRIES // (h * max(s * p, r * s * q, r * min(s * s, q * p))))
    out = side.recording.outputs.new_empty(n, r)
    for start in range(0, n, size):
        samples = slice(start, min(start + size, n))
        some = g[samples]
        if by_pairs:
            a = side.inputs(layer, samples)
            out[samples] = ((some @ some.mT) * (a @ a.mT).unsqueeze(2)).sum((1, 3, 4))
        else:
            out[samples] = matrix_gradients(side, layer, some, samples).square().sum((2, 3, 4))
    return out
