"""How many samples and output directions are worked on at once, within a memory budget."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tangentkit.core.errors import BudgetError
from tangentkit.core.memory import format_bytes
from tangentkit.empirical.layers import AssembledLayer, Layer, MatrixLayer
from tangentkit.empirical.passes.blocks import Blocks, even
from tangentkit.empirical.passes.layer_gradients import Size
from tangentkit.empirical.passes.recording import Recording
from tangentkit.empirical.passes.routes import Workload

GROUP_BYTES = 2**28
"""Gradients that are always worth keeping at once."""
PASS_BYTES = 2**27
"""Tensors of the samples that go through the model together: some megabytes each, whose memory is used again."""
LEAST_PASS = 8
"""Samples that go through the model together however large they are, for the sake of its matrix products."""

SPARSE_PARTS = {
    torch.sparse_coo: ("_indices", "_values"),
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}
"""The tensors of which a sparse one consists."""


@dataclass(frozen=True)
class Footprint:
    """Bytes that one sample needs."""

    saved: float
    """Tensors that the forward pass keeps."""
    passing: float
    """Outgoing gradients at all uses, for one direction, while the sample is passing."""
    stacked: float
    """What of them waits for the other directions, for one direction."""
    retained: float
    """What is retained of them for the kernel, for one direction."""


@dataclass(frozen=True)
class Batching:
    """How many samples and directions are worked on at once."""

    samples: int
    """Of a side of a tile."""
    directions: int
    passing: int
    """Samples that go through the model together."""

    def tile(self, work: Workload) -> Workload:
        """The tile by which routes are chosen: the one that occurs most."""
        n, m = min(work.n, self.samples), min(work.m, self.samples)
        return replace(work, n=n, m=m, r=self.directions, symmetric=work.symmetric and n == work.n)

    def passes(self, work: Workload) -> tuple[int, int]:
        """Samples that go forward, and samples that go backward in each direction.

        The left side of a row of tiles goes forward once, and backward once if all directions go together.
        """
        tiles = work.tiles(self.samples)
        right = sum(times * tile.m for tile, times in tiles.items() if not tile.symmetric)
        left = sum(times * tile.n for tile, times in tiles.items())
        return work.n + right, (work.n if self.directions == work.r else left) + right


def footprint(recording: Recording, sizes: dict[Layer, Size], generic: int) -> Footprint:
    """The bytes of a sample, from a small recording; `generic` counts parameters of the generic route."""
    item, n = recording.outputs.element_size(), recording.n
    own = {p.untyped_storage().data_ptr() for p in recording.parameters.values()}
    saved: dict[object, int] = {}
    for i, node in enumerate(recording.graph.nodes):
        for name in dir(node):
            if name.startswith("_saved_") and isinstance(value := _value(node, name), Tensor):
                saved |= {place or (i, name): size for place, size in _memory(value) if place not in own}
    layers = recording.structure.layers
    nodes = {use.node for layer in layers for use in (*layer.uses, *layer.bias_uses)}
    outgoing = sum(math.prod(recording.graph.shapes(i)[0]) for i in nodes)
    assembled = sum(
        recording.parameters[layer.weight].numel() for layer in layers if isinstance(layer, AssembledLayer)
    )
    biases = sum(recording.parameters[layer.bias].numel() for layer in layers if layer.bias is not None)
    retained = sum(sizes[layer].retained for layer in layers) + biases + generic
    # Local derivatives, where a layer is seen from behind, are as large as its output.
    local = sum(z.h * z.s * z.q for z in (sizes[layer] for layer in layers if layer.behind))
    forward = sum(saved.values()) / n + local * item
    # Explicit gradients are made of all directions at once; the generic route, too, takes all of them,
    # and keeps its own activations for each.
    waiting = [sizes[layer] for layer in layers if isinstance(layer, MatrixLayer)]
    stacked = sum(z.h * z.s * z.q for z in waiting if z.compact) + generic
    return Footprint(
        forward,
        (outgoing / n + 2 * assembled) * item,
        stacked * item + (forward if generic else 0),
        retained * item,
    )


def _value(node: object, name: str) -> object:
    try:
        return getattr(node, name)
    except RuntimeError:
        # Freed, or modified in place since: whatever it was, it is not kept for us.
        return None


def _memory(tensor: Tensor) -> list[tuple[int | None, int]]:
    """(address, bytes) of the memory that a tensor holds; None where it has no address."""
    if tensor.layout is not torch.strided:
        parts = SPARSE_PARTS.get(tensor.layout, ())
        return [found for part in parts for found in _memory(getattr(tensor, part)())]
    try:
        storage = tensor.untyped_storage()
        return [(storage.data_ptr(), storage.nbytes())]
    except (RuntimeError, NotImplementedError):
        # Nested tensors, and what torch.func and forward mode wrap.
        return [(None, int(tensor.numel()) * tensor.element_size())]


def buffer_entries(sizes: Sequence[Size], work: Workload, blocks: Blocks) -> int:
    """Entries of the buffer in which gradients are built: no more than the largest layer needs."""
    largest = max((z.h * z.q * z.p for z in sizes), default=0)
    one_column = max((z.q for z in sizes), default=0)
    each = work.samples * work.r
    return max(min(blocks.built, each * largest), each * one_column)


def batching(foot: Footprint, work: Workload, budget: int, item: int) -> Batching:
    """The largest batches within the budget: first samples (fewer passes), then directions (larger products).

    Raises:
        BudgetError: not even one pair of samples fits.
    """
    larger, least = max(work.n, work.m), work.copies
    left = budget - Blocks.within(budget, item, larger).bytes(item)

    def sample(directions: int) -> float:
        return foot.saved + directions * foot.retained + 1

    def passing(directions: int) -> float:
        # Gradients at the uses, and those of the pass under way.
        return foot.saved + 2 * foot.passing + directions * foot.stacked + 1

    def together(directions: int) -> int:
        most = min(max(PASS_BYTES, LEAST_PASS * passing(directions)), left / 4)
        return max(1, int(most / passing(directions)))

    def samples(directions: int) -> int:
        most = (left - together(directions) * passing(directions)) / sample(directions)
        return min(work.n, int(most)) if work.symmetric and work.n <= most else min(larger, int(most / 2))

    if samples(least) < 1:
        raise BudgetError(
            "one pair of samples does not fit the memory budget",
            expected=f"at least {format_bytes(1.5 * (2 * sample(least) + passing(least)))}",
            got=format_bytes(budget),
            hint="memory=..., fewer params=, or outputs other than 'full'",
        )
    directions, chosen = least, samples(least)
    # More directions at once make larger products, and inputs are unfolded for fewer groups of them; but beyond twice
    # what the forward pass keeps anyway they gain little.
    modest = max(GROUP_BYTES, 2 * chosen * foot.saved)
    while (
        directions < work.r
        and samples(directions + 1) >= chosen
        and (directions + 1) * chosen * foot.retained <= modest
    ):
        directions += 1
    chosen, directions = even(larger, chosen), even(work.r, directions)
    return Batching(chosen, directions, even(chosen, together(directions)))
