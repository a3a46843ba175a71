"""All samples of a tile's side, gathered from passes over a few samples at a time.

Activations and their gradients are large and needed once; what the kernel is made of is small. So passes run over few
samples, whose tensors stay near the cache, and what is kept of them is, for each layer, the smaller of

* explicit per-sample gradients (n, r, d): vectors, and weights shared over many positions;
* the outgoing gradients g (n, h, r, s, q), whose inputs a the recordings hold anyway.

Layers whose directions merge keep one direction in the place of all.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tangentkit.core.buffer_pool import empty
from tangentkit.empirical.layers import Layer, MatrixLayer, VectorLayer
from tangentkit.empirical.passes.blocks import Blocks, even
from tangentkit.empirical.passes.layer_gradients import (
    LayerGradients,
    Merged,
    Outgoing,
    Size,
    layer_indices,
    layer_inputs,
    matrix_gradients,
)
from tangentkit.empirical.passes.recording import Recording
from tangentkit.empirical.passes.routes import Cost, Costs, Route
from tangentkit.linalg.operators.spans import spans


@dataclass(frozen=True, eq=False)
class Gathered:
    """Samples with their gradients for a group of r output directions."""

    recordings: list[Recording]
    r: int
    explicit: dict[str, Tensor]
    """Parameter -> gradients (n, r, d)."""
    outgoing: dict[Layer, Tensor]
    """Layer, or part of a tied layer -> outgoing gradients (n, h, r, s, q)."""

    @property
    def n(self) -> int:
        """The number of samples."""
        return sum(recording.n for recording in self.recordings)

    def input_pieces(
        self, layer: Layer, most: int, columns: slice = slice(None)
    ) -> Iterator[tuple[slice, Tensor]]:
        """(samples, a (n, h, s, p)) for at most so many samples at a time, and some of the p columns."""
        start = 0
        for recording in self.recordings:
            for some in spans(recording.n, most):
                a = layer_inputs(recording, layer, some, columns)
                yield slice(start + some.start, start + some.stop), a
            start += recording.n

    def inputs(self, layer: Layer) -> Tensor:
        """a (n, h, s, p) of all samples, contiguous."""
        parts = [layer_inputs(recording, layer, slice(None)) for recording in self.recordings]
        return parts[0].contiguous() if len(parts) == 1 else torch.cat(parts)

    def indices(self, layer: Layer) -> Tensor:
        """Rows looked up (n, s), -1 for none."""
        return torch.cat([layer_indices(recording, layer) for recording in self.recordings])


def is_explicit(layer: Layer, size: Size, cost: Cost) -> bool:
    """Whether a layer retains explicit gradients, rather than factors."""
    explicit = isinstance(layer, VectorLayer) or cost.route is Route.ASSEMBLED
    return explicit or (cost.route is Route.GRADIENT and size.compact)


@dataclass(frozen=True, eq=False)
class Passing:
    """A few samples on their way through the model, in all output directions of a group."""

    recording: Recording
    group: Tensor
    """Output directions (r, c)."""
    generic: dict[str, Tensor]
    """Parameter without a rule -> gradients (n, r, p)."""

    def sides(self, layers: Iterable[Layer] | None = None) -> Iterator[LayerGradients]:
        """The samples with the gradients that layers need, one direction after the other."""
        for direction in self.group:
            yield LayerGradients(self.recording, self.recording.backward(direction[None], layers), {})


def gather(passing: Iterable[Passing], n: int, costs: Costs, *, full: bool, blocks: Blocks) -> Gathered:
    """What the contraction needs of some samples.

    Gradients are copied to their place direction by direction, while they are near the cache.

    Args:
        passing: a few samples each.
        n: how many samples they have together.
        costs: layer -> its size and the route it takes.
        full: whether output directions stay separate.
        blocks: sizes of temporary blocks.
    """
    gathering = _Gathering(n, costs, full, blocks)
    for some in passing:
        gathering.add(some)
    return gathering.gathered()


class _Rows:
    """Tensors over all samples, filled some samples and one direction at a time."""

    def __init__(self, n: int):
        self.n = n
        self.tensors: dict[Any, Tensor] = {}

    def slot(self, name: object, samples: slice, shape: Iterable[int], like: Tensor) -> Tensor:
        """Where these samples go."""
        if name not in self.tensors:
            self.tensors[name] = empty(like, self.n, *shape)
        return self.tensors[name][samples]

    def put(self, name: object, samples: slice, k: int, r: int, values: Tensor) -> None:
        """Takes values (n, 1, ...) of direction k of r."""
        if len(values) == self.n and r == 1:
            self.tensors[name] = values
        else:
            self.slot(name, samples, (r, *values.shape[2:]), values)[:, k].copy_(values[:, 0])


class _Gathering:
    """What is retained of the samples that have passed so far.

    Each pass goes through three steps: the outgoing gradients of one direction after the other, those of the one
    direction that stands for all where they merge, and the explicit gradients that are made of both.
    """

    def __init__(self, n: int, costs: Costs, full: bool, blocks: Blocks):
        self.costs, self.full, self.blocks = costs, full, blocks
        self.merging = {layer: found for layer, found in costs.items() if layer.merges and not full}
        self.apart = {layer: found for layer, found in costs.items() if layer not in self.merging}
        self.recordings: list[Recording] = []
        self.r, self.samples = 0, slice(0, 0)
        self.explicit, self.outgoing = _Rows(n), _Rows(n)
        self.waiting = _Rows(0)
        """Outgoing gradients of a pass, to make explicit gradients of weights from; the memory serves all passes."""

    def add(self, passing: Passing) -> None:
        """Takes a few samples in all directions."""
        recording, self.r = passing.recording, len(passing.group)
        self.samples = slice(self.samples.stop, self.samples.stop + recording.n)
        # One direction is retained as it came: its memory is taken, and cannot serve the next pass.
        reusable = self.r > 1 and recording.n <= self.waiting.n
        if not reusable:
            self.waiting = _Rows(recording.n)
        merged, alone = Merged(), _Rows(recording.n)
        for k, side in enumerate(passing.sides(self.costs)):
            self._keep(side, self.apart, self.waiting, k, self.r)
            merged.add(side, self.merging)
        self._keep(merged.side(recording), self.merging, alone, 0, 1)
        for layer, g in (*self.waiting.tensors.items(), *alone.tensors.items()):
            self._build(recording, layer, g)
        for name, values in passing.generic.items():
            self.explicit.slot(name, self.samples, values.shape[1:], values).copy_(values)
        self.recordings.append(recording)

    def gathered(self) -> Gathered:
        """All samples that have passed, with what is retained of them."""
        explicit = {name: values.flatten(2) for name, values in self.explicit.tensors.items()}
        return Gathered(self.recordings, self.r, explicit, self.outgoing.tensors)

    def _keep(self, side: LayerGradients, layers: Costs, waiting: _Rows, k: int, r: int) -> None:
        """Copies what layers need of direction k of r to its place."""
        for layer, (size, cost) in layers.items():
            if is_explicit(layer, size, cost) and isinstance(layer, MatrixLayer):
                _copy_to_place(side.outgoing(layer), waiting, layer, slice(0, side.n), k, r, "as it comes")
            elif is_explicit(layer, size, cost):
                self.explicit.put(layer.weight, self.samples, k, r, side.explicit(layer))
            else:
                for part in layer.parts:
                    order = _order(cost, self.full)
                    _copy_to_place(side.outgoing(part), self.outgoing, part, self.samples, k, r, order)
            if layer.bias is not None and cost.route is Route.GRADIENT and not size.compact:
                self.explicit.put(layer.bias, self.samples, k, r, side.vectors(layer.bias_uses))

    def _build(self, recording: Recording, layer: Layer, g: Tensor) -> None:
        """Makes explicit gradients of a weight, and of its bias, from outgoing gradients in all directions."""
        size, r = self.costs[layer][0], g.shape[2]
        weight = self.explicit.slot(layer.weight, self.samples, (r, size.h, size.q, size.p), g)
        bias = (
            None
            if layer.bias is None
            else self.explicit.slot(layer.bias, self.samples, (r, size.h, size.q), g)
        )
        _weight_gradients(recording, layer, g, weight, bias, self.blocks)


def _weight_gradients(
    recording: Recording, layer: Layer, g: Tensor, weight: Tensor, bias: Tensor | None, blocks: Blocks
) -> None:
    """Gradients (n, r, h, q, p) of a weight and (n, r, h, q) of its bias from g (n, h, r, s, q).

    A few samples at a time, so that g comes from memory once.
    """
    _, h, r, s, q = g.shape
    step = max(1, blocks.pieces // (h * s * max(weight.shape[-1], r * q)))
    for samples in spans(recording.n, even(recording.n, step)):  # of one size: memory is used again
        matrix_gradients(g[samples], layer_inputs(recording, layer, samples), out=weight[samples])
        if bias is not None:
            bias[samples] = g[samples].sum(3).transpose(1, 2)


def _order(cost: Cost, full: bool) -> str:
    """Which axis of g varies fastest but one: what the route multiplies without another copy."""
    if cost.route is Route.GRADIENT:
        return "as it comes"
    return "positions apart" if full else "directions joined"


def _copy_to_place(g: Outgoing, rows: _Rows, name: Layer, samples: slice, k: int, r: int, order: str) -> None:
    """Copies outgoing gradients of direction k of r to their place among all samples."""
    n, h, _, s, q = g.sizes
    first = g.parts[0][0]
    if n == rows.n and r == len(g.parts) == 1 and order == "as it comes":
        rows.tensors[name] = first.unsqueeze(2)
        return
    if order == "as it comes":
        order = "directions joined" if s == 1 or first.stride(-1) == 1 < q else "positions last"
    shape, back = {
        "positions apart": ((h, r, s, q), (0, 1, 2, 3, 4)),
        "directions joined": ((h, s, r, q), (0, 1, 3, 2, 4)),
        "positions last": ((h, r, q, s), (0, 1, 2, 4, 3)),
    }[order]
    if name not in rows.tensors:
        rows.tensors[name] = empty(first, rows.n, *shape).permute(back)
    out, start = rows.tensors[name][samples], 0
    for (view,) in g.parts:
        positions = slice(start, start + view.shape[2])
        out[:, :, k, positions].copy_(view)
        start = positions.stop
