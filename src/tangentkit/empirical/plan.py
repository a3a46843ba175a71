"""What a kernel call will do, counted before any work."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch

from tangentkit.core.memory import format_bytes
from tangentkit.core.model.functions import ModelFunction
from tangentkit.core.model.parameters import count
from tangentkit.empirical.layers import VectorLayer
from tangentkit.empirical.passes.batching import Batching, batching
from tangentkit.empirical.passes.layer_gradients import Size
from tangentkit.empirical.passes.routes import FLOPS_PER_BYTE, Cost, Route, Workload, arrange, in_tiles
from tangentkit.empirical.trust.profile import Profile


@dataclass(frozen=True)
class PlanRow:
    """The plan for one parameter."""

    parameter: str
    shape: tuple[int, ...]
    uses: int
    route: str
    flops: float
    bytes: float
    share: float
    """Of all selected parameters."""
    note: str = ""


@dataclass(frozen=True)
class Plan:
    """What a kernel call will do. Prints as a table."""

    rows: tuple[PlanRow, ...]
    passes: float
    """FLOPs of the forward and backward passes."""
    batching: Batching
    budget: int
    latency: float
    """Seconds that all passes take however small they are, from the time of one."""
    dtype: torch.dtype
    device: torch.device

    @cached_property
    def rate(self) -> float:
        """FLOPs a second of this machine, from a short calibration when it is first asked for."""
        return measured_rate(self.dtype, self.device)

    @property
    def flops(self) -> float:
        """FLOPs in all."""
        return self.passes + sum(row.flops for row in self.rows)

    @property
    def bytes(self) -> float:
        """Bytes in all."""
        return sum(row.bytes for row in self.rows)

    @property
    def seconds(self) -> float:
        """Estimated time."""
        return (self.flops + FLOPS_PER_BYTE * self.bytes) / self.rate + self.latency

    def __str__(self) -> str:
        head = ("parameter", "shape", "uses", "route", "GFLOP", "MB", "share", "note")
        body = [
            (
                row.parameter,
                "x".join(map(str, row.shape)) or "1",
                str(row.uses),
                row.route,
                f"{row.flops / 1e9:.3g}",
                f"{row.bytes / 1e6:.3g}",
                f"{row.share:.1%}",
                row.note,
            )
            for row in self.rows
        ]
        widths = [max(len(line[k]) for line in [head, *body]) for k in range(len(head))]
        lines = [
            "  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip()
            for line in [head, *body]
        ]
        lines.insert(1, "  ".join("-" * w for w in widths))
        lines.append(
            f"forward and backward passes {self.passes / 1e9:.3g} GFLOP, in all {self.flops / 1e9:.3g} GFLOP and "
            f"{self.bytes / 1e6:.3g} MB, about {self.seconds:.2g} s at {self.rate / 1e9:.0f} GFLOP/s; "
            f"{self.batching.samples} samples and {self.batching.directions} output directions at a time within "
            f"{format_bytes(self.budget)}"
        )
        return "\n".join(lines)


def make_plan(function: ModelFunction, profile: Profile, work: Workload, budget: int) -> Plan:
    """The plan for some work with a model."""
    like = next(iter(function.params.values()))
    total, rows = count(function.params), dict[str, PlanRow]()
    size = batching(profile.footprint, work, budget, like.element_size())
    for name, uses, route, flops, nbytes, note in _entries(
        function, profile, work, size, like.element_size()
    ):
        p = function.params[name]
        share = p.numel() / max(total, 1)
        if name in function.complex:
            note = "; ".join(filter(None, [note, "real and imaginary parts"]))
        rows[name] = PlanRow(name, tuple(p.shape), uses, route, flops, nbytes, share, note)
    forward, backward = size.passes(work)
    return Plan(
        rows=tuple(rows[name] for name in function.params),
        passes=profile.flops[0] * forward + profile.flops[1] * work.r * backward,
        batching=size,
        budget=budget,
        latency=profile.latency * _passes(profile, work, size),
        dtype=like.dtype,
        device=like.device,
    )


def _passes(profile: Profile, work: Workload, size: Batching) -> int:
    """Forward and backward passes; without a rule and without vmap, every sample has its own."""
    looped = bool(profile.structure.generic) and not profile.structure.vmap
    forward, backward = size.passes(work)
    return sum(
        r * (-(-samples // size.passing) + looped * samples)
        for r, samples in ((1, forward), (work.r, backward))
    )


def _entries(
    function: ModelFunction, profile: Profile, work: Workload, size: Batching, item: int
) -> Iterator[tuple[str, int, str, float, float, str]]:
    """(parameter, uses, route or what is there in its place, FLOPs, bytes, note) for every parameter."""
    structure, tiles = profile.structure, work.tiles(size.samples)

    def explicit(name: str) -> Cost:
        entries = Size(1, 1, 1, function.params[name].numel())
        return in_tiles(VectorLayer(name, ()), entries, tiles, Route.ELEMENTWISE, item)

    for layer, (entries, chosen) in arrange(structure.layers, profile.sizes, size.tile(work), item).items():
        cost = in_tiles(layer, entries, tiles, chosen.route, item)
        yield layer.weight, len(layer.uses), cost.route, cost.flops, cost.bytes, ""
        if layer.bias is not None and cost.route is Route.GRADIENT:
            cost = explicit(layer.bias)
            yield layer.bias, len(layer.bias_uses), cost.route, cost.flops, cost.bytes, ""
        elif layer.bias is not None:
            # The products are the weight's; what is left is to add them up.
            sums = float(work.n * work.m * (work.products if work.full else 1))
            yield layer.bias, len(layer.bias_uses), f"with {layer.weight}", sums, item * sums, ""
    for name, reason in structure.generic.items():
        cost, route = explicit(name), Route.FALLBACK_VMAP if structure.vmap else Route.FALLBACK_LOOP
        yield name, structure.counts.get(name, 0), route, cost.flops, cost.bytes, reason
    for name in structure.unused:
        yield name, 0, "none", 0, 0, "does not reach the output"
    for name in (name for name, p in function.params.items() if not p.numel()):
        yield name, 0, "none", 0, 0, "has no entries"


def measured_rate(dtype: torch.dtype, device: torch.device, size: int = 512) -> float:
    """FLOPs a second of a matrix product on a device, from a few milliseconds of work."""
    a = torch.ones(size, size, dtype=dtype, device=device)
    warm = a @ a
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        torch.mm(a, a, out=warm)
        float(warm[0, 0])
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best
