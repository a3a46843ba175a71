"""Tangent kernels in tiles: pieces of samples, groups of output directions, layer by layer."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from tangentkit.core.batches import Batch, batch_size, take
from tangentkit.core.buffer_pool import empty, reused, zeros
from tangentkit.empirical.engine import contraction
from tangentkit.empirical.engine.contraction import Tile
from tangentkit.empirical.engine.gather import Gathered, Passing, gather, is_explicit
from tangentkit.empirical.layers import Layer
from tangentkit.empirical.outputs import Directions
from tangentkit.empirical.passes.batching import Batching, batching, buffer_entries
from tangentkit.empirical.passes.blocks import Blocks
from tangentkit.empirical.passes.generic import generic_gradients
from tangentkit.empirical.passes.recording import Recording
from tangentkit.empirical.passes.routes import Cost, Costs, Route, Workload, arrange
from tangentkit.empirical.trust.profile import Profile
from tangentkit.empirical.trust.profiles import Profiles
from tangentkit.linalg.operators.spans import spans
from tangentkit.linalg.operators.symmetry import mirrored


@dataclass(frozen=True, eq=False)
class Engine:
    """Computes kernels of a model in given output directions, within a memory budget."""

    profiles: Profiles
    """Those of the model: they check on every batch what the profile assumes, and are revised where it is wrong."""
    profile: Profile
    """What is known of samples like these as the engine starts: it lays out the whole work by it."""
    directions: Directions
    budget: int
    """Bytes that the work may take."""

    @reused()
    def matrices(
        self, x: Batch, y: Batch | None, names: list[str], *, left_side: "LeftSide | None" = None
    ) -> dict[str, Tensor]:
        """Name of a parameter -> its part of the kernel, or "" -> the kernel if no names are given.

        Shapes are (n, m), or (n r, m r) where directions stay separate. `left_side` remembers the side of x for the
        next call with the same x.
        """
        work = self.work(x, y)
        size = batching(self.profile.footprint, work, self.budget, self._item)
        costs = self._costs(work, size)
        copies = work.copies
        like = next(iter(self.profiles.function.params.values()))
        result = {name: zeros(like, work.n * copies, work.m * copies) for name in names or [""]}
        for i, j, left, right in self._pairs(
            x, y, size, costs, LeftSide() if left_side is None else left_side
        ):
            where = slice(i.start * copies, i.stop * copies), slice(j.start * copies, j.stop * copies)
            blocks = {name: total[where] for name, total in result.items()}
            sums = blocks if names else dict.fromkeys(self.profiles.function.params, blocks[""])
            self._fill(left, right, sums, size, costs)
            for name, block in blocks.items() if y is None else ():
                if i == j:
                    mirrored(block)
                else:
                    result[name][where[::-1]] = block.T
            del left, right  # before the next pair is recorded
        return result

    def square_norms(self, x: Batch) -> Tensor:
        """|v_r · J_i|² as (n, r)."""
        work = Workload(batch_size(x), 1, len(self.directions.vectors), full=False, symmetric=False)
        size = batching(self.profile.footprint, work, self.budget, self._item)
        found = []
        for samples in spans(batch_size(x), size.passing):
            piece = self._piece(take(x, samples), size)
            passing = (some for group in self._groups(size) for some in self._passing(piece, group))
            found.append(torch.cat([norms for some in passing for norms in _norms(some)], 1))
        return torch.cat(found)

    def work(self, x: Batch, y: Batch | None) -> Workload:
        """The work that a call means."""
        n, chosen = batch_size(x), self.directions
        return Workload(n, n if y is None else batch_size(y), len(chosen.vectors), chosen.full, y is None)

    def _costs(self, work: Workload, size: Batching) -> Costs:
        """The route of every layer, the same for all tiles."""
        return arrange(self.profile.structure.layers, self.profile.sizes, size.tile(work), self._item)

    def _pairs(
        self, x: Batch, y: Batch | None, size: Batching, costs: Costs, left_side: "LeftSide"
    ) -> Iterator[tuple[slice, slice, "_Piece", "_Piece"]]:
        """Pairs of pieces that cover the kernel, or its lower triangle; a piece of x is recorded once."""
        routes = tuple((layer, cost.route) for layer, (_, cost) in costs.items())
        for i in spans(batch_size(x), size.samples):
            key = (self.profile.structure, i.start, i.stop, size.directions, routes)
            left = left_side.piece(key, lambda i=i: self._piece(take(x, i), size))
            for j in spans(i.stop if y is None else batch_size(y), size.samples):
                same = y is None and i == j
                yield i, j, left, left if same else self._piece(take(x if y is None else y, j), size)

    def _piece(self, batch: Batch, size: Batching) -> "_Piece":
        parts = [take(batch, some) for some in spans(batch_size(batch), size.passing)]
        return _Piece({self._checked_recording(part): part for part in parts})

    def _checked_recording(self, batch: Batch) -> Recording:
        """A few samples, recorded as the profile says; what is not proven of it yet is compared with autograd."""
        return self.profiles.record(batch, self.profile)

    def _fill(self, x: "_Piece", y: "_Piece", sums: dict[str, Tensor], size: Batching, costs: Costs) -> None:
        """Adds all parameters and directions to a tile."""
        full = self.directions.full
        work = Workload(x.n, y.n, size.directions, full, x is y)
        blocks = Blocks.within(self.budget, self._item, max(x.n, y.n))
        built = [
            z for layer, (z, c) in costs.items() if c.route is Route.GRADIENT and not is_explicit(layer, z, c)
        ]
        buffer = empty(next(iter(sums.values())), buffer_entries(built, work, blocks))
        grams: dict[object, Tensor] = {}
        for group in self._groups(size):
            sides = [self._gathered(piece, group, costs, blocks) for piece in ([x] if x is y else [x, y])]
            tile = Tile(sides[0], sides[-1], full, sums, buffer, blocks, grams)
            for layer, (_, cost) in costs.items():
                self._add(tile, layer, cost, again=size.directions < len(self.directions.vectors))
            for name in tile.x.explicit:
                contraction.add_explicit(tile, name)
            del sides, tile  # before the next group makes new ones

    def _gathered(self, piece: "_Piece", group: Tensor, costs: Costs, blocks: Blocks) -> Gathered:
        """A piece with its gradients. Where there is one group of directions only, the piece keeps them."""
        if piece.gathered is not None:
            return piece.gathered
        found = gather(self._passing(piece, group), piece.n, costs, full=self.directions.full, blocks=blocks)
        if len(group) == len(self.directions.vectors):
            piece.gathered = found
        return found

    def _add(self, tile: Tile, layer: Layer, cost: Cost, *, again: bool) -> None:
        """Adds a layer whose factors are retained."""
        if layer.weight in tile.x.explicit:
            return
        if cost.route is Route.GRADIENT:
            contraction.add_gradients(tile, layer)
        elif cost.route is Route.LOOKUP_ROWS:
            contraction.add_lookup_gradients(tile, layer)
        else:
            # The Gram of the inputs serves all groups of directions, if there are several and it is small.
            add = contraction.add_tied if cost.route is Route.TIED else contraction.add_pairwise
            add(tile, layer, keep_grams=again and cost.bytes < self.budget / 32)

    def _groups(self, size: Batching) -> Iterator[Tensor]:
        vectors = self.directions.vectors
        for some in spans(len(vectors), size.directions):
            yield vectors[some]

    def _passing(self, piece: "_Piece", group: Tensor) -> Iterator[Passing]:
        """The recordings of a piece, one after the other."""
        for recording, batch in piece.batches.items():
            generic = generic_gradients(self.profiles.function, self.profile.structure, batch, group)
            yield Passing(recording, group, generic)

    @property
    def _item(self) -> int:
        return next(iter(self.profiles.function.params.values())).element_size()


@dataclass(eq=False)
class _Piece:
    """Samples of a side of a tile, recorded a few at a time."""

    batches: dict[Recording, Batch]
    gathered: Gathered | None = None

    @property
    def n(self) -> int:
        """The number of samples."""
        return sum(recording.n for recording in self.batches)


class LeftSide:
    """The left side of tiles that come one after the other: it is recorded for the first of them."""

    def __init__(self) -> None:
        self._key: tuple | None = None
        self._piece: _Piece | None = None

    def piece(self, key: tuple, make: Callable[[], _Piece]) -> _Piece:
        """The piece of this key, made if it is not the one that is remembered."""
        if self._piece is None or key != self._key:
            self._piece = None  # its memory is freed before another is made
            self._key, self._piece = key, make()
        return self._piece


def _norms(passing: Passing) -> Iterator[Tensor]:
    """|gradient|² of every sample, (n, 1) for one direction after the other."""
    for k, side in enumerate(passing.sides()):
        total = side.square_norms()
        for gradients in passing.generic.values():
            total += gradients[:, k, None].square().sum(2)
        yield total
