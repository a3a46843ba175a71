"""Counted before any work: which route each parameter takes, its FLOPs and bytes, and how samples are batched."""

import time
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from tangentkit.core.errors import BudgetError
from tangentkit.core.memory import format_bytes
from tangentkit.empirical.contraction import BUILT_ENTRIES, PAIR_ENTRIES, PIECE_ENTRIES, pair_block, row_block
from tangentkit.empirical.recording import Recording
from tangentkit.empirical.rules import Lookup, Matrix
from tangentkit.empirical.structure import Layer

FLOPS_PER_BYTE = 16
"""Multiply-adds that a core does while one byte comes from memory: what weighs bytes against FLOPs."""


GROUP_BYTES = 2**28
"""Outgoing gradients that are always worth keeping at once."""


@dataclass(frozen=True)
class Work:
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

    @property
    def samples(self) -> int:
        """Samples whose gradients are needed."""
        return self.n if self.symmetric else self.n + self.m

    @property
    def products(self) -> int:
        """Products of directions for each pair of samples."""
        return self.r**2 if self.full else self.r


@dataclass(frozen=True)
class Size:
    """A layer's gradient Σ_s g_s ⊗ a_s: h heads, s positions, a of length p, g of length q."""

    h: int
    s: int
    p: int
    q: int


@dataclass(frozen=True)
class Cost:
    """What a route takes."""

    route: str
    flops: float
    bytes: float

    @property
    def weight(self) -> float:
        """FLOPs and bytes on one scale."""
        return self.flops + FLOPS_PER_BYTE * self.bytes


def size_of(recording: Recording, layer: Layer) -> Size:
    """The size of a layer's gradient, from any recording."""
    graph, numel = recording.graph, recording.parameters[layer.weight].numel()
    if layer.kind in ("vector", "assembled"):
        return Size(1, 1, 1, numel)
    first, positions = recording.sites[layer.uses[0]], 0
    for use in layer.uses:
        site = recording.sites[use]
        positions += site.indices.shape[1] if isinstance(site, Lookup) else site.inputs(slice(0, 1)).shape[2]  # pyright: ignore
    if isinstance(first, Matrix):
        _, h, _, p = first.inputs(slice(0, 1)).shape
        return Size(h, positions, p, numel // (h * p))
    rows = graph.shapes(layer.uses[0].source[0])[layer.uses[0].source[1]][0]
    return Size(1, positions, rows, numel // rows)


def cheapest(layer: Layer, size: Size, work: Work, item: int) -> Cost:
    """The cheapest route for a layer; `item` is the number of bytes of a scalar."""
    options = {"matrix": _matrix_costs, "lookup": _lookup_costs}.get(layer.kind, _vector_costs)(
        size, work, item
    )
    if layer.kind == "assembled":
        options = [Cost("assembled", c.flops, c.bytes) for c in options]
    return min(options, key=lambda cost: cost.weight)


def _matrix_costs(z: Size, w: Work, item: int) -> list[Cost]:
    pairs = w.n * z.s * w.m * z.s * z.h * w.half(pair_block(w.n, z.s))
    columns = z.h * z.q * z.p
    return [
        Cost(
            "pairwise" if z.s > 1 else "factored",
            2 * pairs * (z.p + w.products * z.q),
            item * 3 * pairs * (w.products if w.full else 1),
        ),
        Cost(
            "gradient",
            2 * w.samples * w.r * z.s * columns + _gram_flops(w, columns),
            item * w.samples * (w.r * columns + 2 * z.h * z.s * z.p),
        ),
    ]


def _lookup_costs(z: Size, w: Work, item: int) -> list[Cost]:
    pairs, rows = w.n * z.s * w.m * z.s * w.half(pair_block(w.n, z.s)), min(z.p, w.n * z.s)
    return [
        Cost(
            "lookup (pairs)", 2 * pairs * w.products * z.q, item * 3 * pairs * (w.products if w.full else 1)
        ),
        Cost(
            "lookup (rows)",
            _gram_flops(w, rows * z.q),
            item * 3 * w.samples * w.r * rows * z.q,
        ),
    ]


def _gram_flops(w: Work, columns: int) -> float:
    return 2 * w.n * w.m * w.half(row_block(w.n)) * w.products * columns


def _vector_costs(z: Size, w: Work, item: int) -> list[Cost]:
    return [Cost("elementwise", _gram_flops(w, z.q), 2 * item * w.samples * w.r * z.q)]


# -- batching within the budget ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Footprint:
    """Bytes that one sample needs."""

    saved: float
    """Tensors that the forward pass keeps."""
    gradients: float
    """Outgoing gradients at all uses, for one direction."""
    written: float
    """Gradients of parameters without factors, for one direction."""


@dataclass(frozen=True)
class Batching:
    """How many samples and directions are worked on at once."""

    samples: int
    directions: int


def footprint(recording: Recording, generic: int) -> Footprint:
    """The bytes of a sample, from a small recording; `generic` counts parameters of the generic route."""
    item, n = recording.outputs.element_size(), recording.n
    own = {p.untyped_storage().data_ptr() for p in recording.parameters.values()}
    saved: dict[int, int] = {}
    for node in recording.graph.nodes:
        for name in dir(node):
            if name.startswith("_saved_") and isinstance(value := _value(node, name), Tensor):
                storage = value.untyped_storage()
                if storage.data_ptr() not in own:
                    saved[storage.data_ptr()] = storage.nbytes()
    outgoing = sum(int(torch.tensor(recording.graph.shapes(i)[0]).prod()) for i in recording.edges)
    assembled = sum(
        recording.parameters[layer.weight].numel()
        for layer in recording.structure.layers
        if layer.kind == "assembled"
    )
    kept = sum(saved.values()) / n
    # The generic route keeps its own activations for every direction.
    return Footprint(kept, outgoing * item / n, (generic + 2 * assembled) * item + (kept if generic else 0))


def _value(node: object, name: str) -> object:
    try:
        return getattr(node, name)
    except RuntimeError:
        # Freed, or modified in place since: whatever it was, it is not kept for us.
        return None


def buffer_entries(sizes: Iterable[Size], work: Work) -> int:
    """Entries of the buffer in which gradients are built: no more than the largest layer needs."""
    largest = max((z.h * z.q * z.p for z in sizes), default=0)
    one_row = max((z.p for z in sizes), default=0)
    each = work.samples * work.r
    return max(min(BUILT_ENTRIES, each * largest), each * one_row)


def batching(foot: Footprint, work: Work, budget: int, item: int) -> Batching:
    """The largest batches within the budget: first samples (fewer passes), then directions (larger products).

    Raises:
        BudgetError: not even one pair of samples fits.
    """
    blocks = item * (4 * PIECE_ENTRIES + 4 * PAIR_ENTRIES + BUILT_ENTRIES)
    left = max(budget - blocks, budget // 4)
    least = work.r if work.full else 1

    def sample_bytes(directions: int) -> float:
        # One gradient more than directions, for the pass under way.
        return foot.saved + (directions + 1) * foot.gradients + directions * foot.written + 1

    most = left / sample_bytes(least)
    samples = (
        min(work.n, int(most))
        if work.symmetric and work.n <= most
        else min(max(work.n, work.m), int(most / 2))
    )
    if samples < 1:
        raise BudgetError(
            "one pair of samples does not fit the memory budget",
            expected=f"at least {format_bytes(2 * sample_bytes(least) + blocks)}",
            got=format_bytes(budget),
            hint="memory=..., fewer params=, or outputs other than 'full'",
        )
    sides = 1 if work.symmetric and samples >= work.n else 2
    directions = least
    # More directions at once make larger products, but beyond what the forward pass keeps anyway they gain little.
    modest = max(GROUP_BYTES, samples * foot.saved)
    while (
        directions < work.r
        and sides * samples * sample_bytes(directions + 1) <= left
        and (directions + 1) * samples * (foot.gradients + foot.written) <= modest
    ):
        directions += 1
    return Batching(_even(max(work.n, work.m), samples), _even(work.r, directions))


def _even(total: int, most: int) -> int:
    # Equal parts: 10 in parts of at most 6 is 5 + 5, not 6 + 4.
    most = min(most, total)
    return -(-total // -(-total // most))


# -- the table ---------------------------------------------------------------------------------------------------


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
    rate: float
    """FLOPs a second of this machine, from a short calibration."""

    @property
    def flops(self) -> float:
        """FLOPs in all."""
        return self.passes + sum(row.flops for row in self.rows)

    @property
    def seconds(self) -> float:
        """Estimated time."""
        return (self.flops + FLOPS_PER_BYTE * sum(row.bytes for row in self.rows)) / self.rate

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
            f"forward and backward passes {self.passes / 1e9:.3g} GFLOP, in all {self.flops / 1e9:.3g} GFLOP, "
            f"about {self.seconds:.2g} s at {self.rate / 1e9:.0f} GFLOP/s; {self.batching.samples} samples and "
            f"{self.batching.directions} output directions at a time within {format_bytes(self.budget)}"
        )
        return "\n".join(lines)


def measured_rate(like: Tensor, size: int = 512) -> float:
    """FLOPs a second of a matrix product on a device, from a few milliseconds of work."""
    a = torch.ones(size, size, dtype=like.dtype, device=like.device)
    warm = a @ a
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        torch.mm(a, a, out=warm)
        float(warm[0, 0])
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best
