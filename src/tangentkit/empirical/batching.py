"""How many samples and output directions are worked on at once, within a memory budget."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from tangentkit.core.errors import BudgetError
from tangentkit.core.memory import format_bytes
from tangentkit.empirical.contraction import BUILT_ENTRIES, PAIR_ENTRIES, PIECE_ENTRIES
from tangentkit.empirical.costs import Size, Work
from tangentkit.empirical.recording import Recording

GROUP_BYTES = 2**28
"""Outgoing gradients that are always worth keeping at once."""


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
    outgoing = sum(math.prod(recording.graph.shapes(i)[0]) for i in recording.edges)
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


def buffer_entries(sizes: Sequence[Size], work: Work) -> int:
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
