"""All that the samples of a kernel are sketched with: output directions, half-sketches, exact coordinates."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from tangentkit.core.batches import Batch, batch_size
from tangentkit.core.buffer_pool import zeros
from tangentkit.core.errors import InputError
from tangentkit.core.seeds import Key
from tangentkit.empirical.outputs import Outputs, directions
from tangentkit.sketch.calibration.projection import Projection, calibrate
from tangentkit.sketch.methods.choice import SketchPlan, choose
from tangentkit.sketch.methods.coordinates import Coordinates, working_dtype
from tangentkit.sketch.methods.hashes import signs
from tangentkit.sketch.methods.model_sketch import Half, ModelSketch
from tangentkit.sketch.passes import Passes

BUFFER_ENTRIES = 2**24
"""Entries of factors and gradients that are worked on at a time, if the budget allows."""


@dataclass(frozen=True)
class SketchDirections:
    """The output directions of a kernel, and which of them each half-sketch sees."""

    vectors: Tensor
    """(r, c)"""
    halves: tuple[slice, slice]

    signs: str = "none"
    """Random output signs: "none", "one" that both halves see, or signs of their "own"."""


def sketch_directions(
    outputs: Outputs, probes: int | None, c: int, *, dim: int, calibrated: bool, key: Key, like: Tensor
) -> SketchDirections:
    """The directions of a choice of outputs, or random signs in their place.

    S signs with weights 1/sqrt(S) are the trace on average. They add at most 2/S to the relative variance of an
    entry, |x|²|y|² being 1; the sketch itself has at least 1/dim, if it is not calibrated. So all c outputs are taken
    where they are no more than `dim`, and `dim` signs beyond. Each half-sketch has signs of its own. A calibrated
    sketch has less error than signs would add: it takes all outputs.
    """
    if probes is None and isinstance(outputs, str) and outputs == "trace" and c > dim and not calibrated:
        probes = dim
    if probes is None:
        vectors = directions(outputs, c, like=like).vectors
        return SketchDirections(vectors, (slice(0, len(vectors)), slice(0, len(vectors))))
    drawn = signs(key.fold("output signs"), probes * c).view(probes, c).to(like)
    if probes == 1:
        return SketchDirections(drawn, (slice(0, 1), slice(0, 1)), "one")
    middle = probes // 2
    halves = (slice(0, middle), slice(middle, probes))
    vectors = torch.cat([drawn[half] / math.sqrt(half.stop - half.start) for half in halves])
    return SketchDirections(vectors, halves, "own")


@dataclass(frozen=True, eq=False)
class Arrangement:
    """Sketches the samples of a kernel."""

    directions: SketchDirections
    sketch: ModelSketch
    projection: Projection | None
    corrections: list[Tensor]
    """Sketches (rank, dim) of the exact coordinates, for each half."""

    @property
    def rank(self) -> int:
        """Number of exact coordinates."""
        return 0 if self.projection is None else self.projection.rank

    @property
    def shares(self) -> list[float]:
        """Weight of each half-sketch in the kernel: what makes the variance smallest."""
        total = sum(half.dim for half in self.sketch.halves)
        return [half.dim / total for half in self.sketch.halves]

    def features(
        self, passes: Passes, x: Batch, *, norms: Tensor | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """Exact coordinates (n, rank), and two independent sketches (n, dim) of what they leave.

        Args:
            passes: through the model.
            x: a batch.
            norms: where ‖gradient‖² (n,) is to be added to, if it is wanted.
        """
        n, like = batch_size(x), passes.directions
        dtype = working_dtype(like.dtype)
        exact = torch.zeros(n, self.rank, dtype=dtype, device=like.device)
        halves = [zeros(exact, n, half.dim) for half in self.sketch.halves]
        out: list[Coordinates] = []
        for rows, first, side in passes.sides(x):
            if first == 0:
                out = self.sketch.coordinates(side.n, like=like)
            self.sketch.add_side(out, side, first)
            if self.projection is not None:
                exact[rows] += self.projection.coordinates(side, self.sketch.orders, first)
            if norms is not None:
                norms[rows] += side.square_norms().sum(1)
            if first + side.r == len(like):
                for half, sums in zip(halves, out, strict=True):
                    half[rows] = sums.sums()
            del side  # its gradients go before the next pass makes new ones
        for half, correction in zip(halves, self.corrections, strict=False):
            half.addmm_(exact, correction, alpha=-1)
        return exact, halves

    def plan(self) -> SketchPlan:
        """What it does, in words."""
        one, other = (half.dim for half in self.sketch.halves)
        captured = 0.0 if self.projection is None else self.projection.captured
        return SketchPlan(
            dict(self.sketch.methods), (self.rank, one, other), len(self.directions.vectors), captured
        )


def arrange(
    passes: Passes,
    x: Batch,
    *,
    sketch: str,
    directions: SketchDirections,
    dim: int,
    key: Key,
    projection: Projection | None = None,
) -> Arrangement:
    """The arrangement for samples like x.

    Args:
        passes: through the model.
        x: a batch.
        sketch: what the user asked for.
        directions: of the outputs.
        dim: number of features.
        key: of all random numbers.
        projection: to exact coordinates.
    """
    profile = passes.profile
    left = dim - (0 if projection is None else projection.rank)
    dims = (left - left // 2, left // 2)
    halves = [
        Half(key.fold("half", i), size, seen)
        for i, (size, seen) in enumerate(zip(dims, directions.halves, strict=True))
    ]
    seen = max(half.directions.stop - half.directions.start for half in halves)
    methods = choose(sketch, profile, seen, dims[0])
    passes.profiles.learn_orders(x, profile)
    made = ModelSketch(
        halves,
        methods,
        {name: (size.h, size.q, size.p) for name, size in profile.factored.items()},
        passes.profiles.orders,
        buffer=buffer_entries(passes),
        most_signs=passes.budget // 8,
    )
    corrections = [] if projection is None else projection.sketched(made, like=directions.vectors)
    return Arrangement(directions, made, projection, corrections)


def project(
    passes: Passes, calibration: Batch, *, directions: SketchDirections, dim: int
) -> Projection | None:
    """The exact coordinates that a calibration batch suggests; they depend on no seed.

    Raises:
        InputError: there are random output signs, which the halves do not share.
    """
    if directions.signs == "own":
        raise InputError(
            "a calibration batch does not go with random output signs",
            expected="calibration= or probes=",
            got=f"both ({len(directions.vectors)} signs)",
            hint="no probes=: signs would add more error than calibration saves",
        )
    return calibrate(
        lambda batch: passes.sides(batch, together=True),
        calibration,
        passes.profiles.orders,
        dim=dim,
        buffer=buffer_entries(passes),
        budget=passes.budget,
    )


def buffer_entries(passes: Passes) -> int:
    """Entries that are worked on at a time."""
    return passes.budget.rows(passes.directions.element_size(), copies=16, most=BUFFER_ENTRIES)
