"""What each route of a layer takes, counted in FLOPs and bytes."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

from tangentkit.empirical.layers import (
    AssembledLayer,
    Layer,
    LookupLayer,
    MatrixLayer,
    TiedLayer,
    VectorLayer,
)
from tangentkit.empirical.passes.blocks import pair_block, row_block
from tangentkit.empirical.passes.layer_gradients import Size

FLOPS_PER_BYTE = 16
"""Multiply-adds that a core does while one byte comes from memory: what weighs bytes against FLOPs."""
THROUGH_POOLING = 3
"""Times that gradients come from memory on their way through a pooling and an activation, and to their place."""


@dataclass(frozen=True)
class Workload:
    """A kernel of n by m samples in r directions."""

    n: int
    m: int
    r: int
    full: bool
    symmetric: bool

    def half(self, block: int) -> float:
        """Share of the pairs that is computed in blocks of so many samples."""
        blocks = -(-self.n // block)
        return (blocks + 1) / (2 * blocks) if self.symmetric else 1.0

    def tiles(self, samples: int) -> dict[Self, int]:
        """The work in tiles of so many samples a side: each kind of tile, and how many there are of it.

        Example:
            >>> [(tile.n, tile.m, times) for tile, times in Workload(5, 5, 1, False, True).tiles(2).items()]
            [(2, 2, 2), (1, 1, 1), (2, 2, 1), (1, 2, 2)]
        """
        rows, columns = _sides(self.n, samples), _sides(self.m, samples)
        if not self.symmetric:
            return {replace(self, n=n, m=m): i * j for n, i in rows.items() for m, j in columns.items()}
        diagonal = {replace(self, n=n, m=n): times for n, times in rows.items()}
        whole = self.n // samples
        below = {n: whole * (whole - 1) // 2 if n == samples else whole for n in rows}
        others = {replace(self, n=n, m=samples, symmetric=False): times for n, times in below.items()}
        return diagonal | {tile: times for tile, times in others.items() if times}

    @property
    def samples(self) -> int:
        """Samples whose gradients are needed."""
        return self.n if self.symmetric else self.n + self.m

    @property
    def copies(self) -> int:
        """Rows of the kernel for each sample."""
        return self.r if self.full else 1

    @property
    def products(self) -> int:
        """Products of directions for each pair of samples."""
        return self.r**2 if self.full else self.r


class Route(StrEnum):
    """The ways in which a layer's part of a kernel is computed, by the names that plans show."""

    FACTORED = "factored"
    """Σ (a · a') (g · g') of inputs and outgoing gradients, one position each."""
    PAIRWISE = "pairwise"
    """The same over all pairs of positions."""
    GRADIENT = "gradient"
    """Explicit gradients of weights, and their inner products."""
    LOOKUP_PAIRS = "lookup (pairs)"
    """Pairs of positions that look up the same row."""
    LOOKUP_ROWS = "lookup (rows)"
    """Gradients of the rows that are looked up."""
    TIED = "tied"
    """A table that is also a weight, by the factors of both kinds of uses."""
    ELEMENTWISE = "elementwise"
    """Gradients of small parameters."""
    ASSEMBLED = "assembled"
    """Gradients of uses of several kinds, pulled back to the parameter."""
    FALLBACK_VMAP = "fallback (vmap)"
    """The generic route, for what no rule knows: gradients of several samples at once by vmap."""
    FALLBACK_LOOP = "fallback (loop)"
    """The generic route where vmap does not do: gradients of one sample after the other."""


@dataclass(frozen=True)
class Cost:
    """What a route takes."""

    route: Route
    flops: float
    bytes: float

    @property
    def weight(self) -> float:
        """FLOPs and bytes on one scale."""
        return self.flops + FLOPS_PER_BYTE * self.bytes


Costs = dict[Layer, tuple[Size, Cost]]
"""Layer -> its size and the route it takes."""


def arrange(layers: Iterable[Layer], sizes: dict[Layer, Size], work: Workload, item: int) -> Costs:
    """The layers to work with, each with its size and cheapest route: as it is, or seen from behind."""

    def costs(some: Iterable[Layer]) -> Costs:
        return {layer: (sizes[layer], cheapest(layer, sizes[layer], work, item)) for layer in some}

    def weight(found: Costs) -> float:
        return sum(cost.weight for _, cost in found.values())

    chosen: Costs = {}
    for layer in layers:
        direct, behind, z = costs([layer]), costs(layer.behind), sizes[layer]
        pooled = not any(view.merges for view in layer.behind)
        passed = pooled * THROUGH_POOLING * item * work.samples * work.r * z.h * z.s * z.q
        shorter = behind and weight(behind) < weight(direct) + FLOPS_PER_BYTE * passed
        chosen |= behind if shorter else direct
    return chosen


def routes(layer: Layer, size: Size, work: Workload, item: int) -> list[Cost]:
    """The routes that a layer can take; `item` is the number of bytes of a scalar."""
    work = replace(work, r=1) if layer.merges and not work.full else work
    return COSTS[type(layer)](size, work, item)


def cheapest(layer: Layer, size: Size, work: Workload, item: int) -> Cost:
    """The cheapest route for a layer."""
    return min(routes(layer, size, work, item), key=lambda cost: cost.weight)


def in_tiles(layer: Layer, size: Size, tiles: dict[Workload, int], route: Route, item: int) -> Cost:
    """What a route takes in all tiles."""
    each = [
        (cost, times)
        for tile, times in tiles.items()
        for cost in routes(layer, size, tile, item)
        if cost.route is route
    ]
    return Cost(route, sum(c.flops * times for c, times in each), sum(c.bytes * times for c, times in each))


def _matrix_costs(z: Size, w: Workload, item: int) -> list[Cost]:
    pairs = w.n * z.s * w.m * z.s * z.h * w.half(pair_block(w.n, z.s * w.copies))
    columns = z.h * z.q * z.p
    inputs = 2 * w.samples * z.summed / z.h  # what is summed is the same for all heads
    return [
        Cost(
            Route.PAIRWISE if z.s > 1 else Route.FACTORED,
            2 * pairs * (z.p + w.products * z.q) + 2 * w.samples * z.summed,
            item * (3 * pairs * (w.products if w.full else 1) + inputs),
        ),
        Cost(
            Route.GRADIENT,
            2 * w.samples * (w.r * z.s * columns + z.summed) + _gram_flops(w, columns),
            item * (w.samples * (w.r * columns + 2 * z.h * z.s * z.p) + inputs),
        ),
    ]


def _lookup_costs(z: Size, w: Workload, item: int) -> list[Cost]:
    pairs, rows = w.n * z.s * w.m * z.s * w.half(pair_block(w.n, z.s * w.copies)), min(z.p, w.n * z.s)
    return [
        Cost(
            Route.LOOKUP_PAIRS, 2 * pairs * w.products * z.q, item * 3 * pairs * (w.products if w.full else 1)
        ),
        Cost(
            Route.LOOKUP_ROWS,
            _gram_flops(w, rows * z.q),
            item * 3 * w.samples * w.r * rows * z.q,
        ),
    ]


def _tied_costs(z: Size, w: Workload, item: int) -> list[Cost]:
    pairs, _ = _matrix_costs(z, w, item)
    (explicit,) = _vector_costs(Size(1, 1, 1, z.q * z.p), w, item)
    return [Cost(Route.TIED, pairs.flops, pairs.bytes), Cost(Route.ASSEMBLED, explicit.flops, explicit.bytes)]


def _sides(n: int, samples: int) -> dict[int, int]:
    """n in parts of so many: size of a part -> how often it occurs."""
    whole, rest = divmod(n, samples)
    return {part: times for part, times in ((samples, whole), (rest, 1)) if part * times}


def _gram_flops(w: Workload, columns: int) -> float:
    block = max(1, row_block(w.n * w.copies) // w.copies)
    return 2 * w.n * w.m * w.half(block) * w.products * columns


def _vector_costs(z: Size, w: Workload, item: int) -> list[Cost]:
    return [Cost(Route.ELEMENTWISE, _gram_flops(w, z.q), 2 * item * w.samples * w.r * z.q)]


def _assembled_costs(z: Size, w: Workload, item: int) -> list[Cost]:
    return [replace(cost, route=Route.ASSEMBLED) for cost in _vector_costs(z, w, item)]


COSTS = {
    MatrixLayer: _matrix_costs,
    LookupLayer: _lookup_costs,
    TiedLayer: _tied_costs,
    VectorLayer: _vector_costs,
    AssembledLayer: _assembled_costs,
}
"""Class of a layer -> the routes that it can take."""
