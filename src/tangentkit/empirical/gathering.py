"""All samples of a tile's side, gathered from passes over a few samples at a time.

Activations and their gradients are large and needed once; what the kernel is made of is small. So passes run over few
samples, whose tensors stay near the cache, and what is kept of them is, for each layer, the smaller of

* the per-sample gradients, written down (n, r, d): vectors, and weights shared over many positions;
* the outgoing gradients g (n, h, r, s, q), whose inputs a the recordings hold anyway.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tangentkit.core.pages import empty
from tangentkit.empirical.blocks import Blocks
from tangentkit.empirical.costs import Cost, Size
from tangentkit.empirical.recording import Recording
from tangentkit.empirical.side import Outgoing, Side, layer_indices, layer_inputs, matrix_gradients
from tangentkit.empirical.structure import Layer

Costs = dict[Layer, tuple[Size, Cost]]
"""Layer -> its size and the route it takes."""


@dataclass(frozen=True, eq=False)
class Gathered:
    """Samples with their gradients for a group of r output directions."""

    recordings: list[Recording]
    r: int
    written: dict[str, Tensor]
    """Parameter -> gradients (n, r, d)."""
    outgoing: dict[Layer, Tensor]
    """Layer, or part of a tied layer -> outgoing gradients (n, h, r, s, q)."""

    @property
    def n(self) -> int:
        """Number of samples."""
        return sum(recording.n for recording in self.recordings)

    def input_pieces(
        self, layer: Layer, most: int, columns: slice = slice(None)
    ) -> Iterator[tuple[slice, Tensor]]:
        """(samples, a (n, h, s, p)) for at most so many samples at a time, and some of the p columns."""
        start = 0
        for recording in self.recordings:
            for first in range(0, recording.n, most):
                some = slice(first, min(first + most, recording.n))
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


def is_written(layer: Layer, size: Size, cost: Cost) -> bool:
    """Whether a layer's gradients are written down, rather than kept as factors."""
    written = layer.kind == "vector" or cost.route == "assembled"
    return written or (cost.route == "gradient" and size.compact)


def gather(sides: Iterable[Side], n: int, costs: Costs, *, full: bool, blocks: Blocks) -> Gathered:
    """Keeps what the contraction needs.

    Args:
        sides: a few samples each, with their gradients.
        n: how many samples they have together.
        costs: layer -> its size and the route it takes.
        full: whether output directions are kept apart.
        blocks: sizes of temporary blocks.
    """
    recordings, written, outgoing = [], _Rows(n), _Rows(n)
    r = start = 0
    for side in sides:
        r, samples = side.r, slice(start, start + side.n)
        for layer, (size, cost) in costs.items():
            if not is_written(layer, size, cost):
                for part in layer.parts:
                    _keep(side.outgoing(part), outgoing, part, samples, _order(cost, full))
            elif layer.kind == "matrix":
                shape = (r, size.h, size.q, size.p)
                _write(
                    side, layer, written.slot(layer.weight, samples, shape, side.recording.outputs), blocks
                )
            else:
                values = side.vectors(layer.uses) if layer.kind == "vector" else side.assembled(layer)
                written.put(layer.weight, samples, values)
            if layer.bias is not None and cost.route == "gradient":
                written.put(layer.bias, samples, side.vectors(layer.bias_uses))
        for name, values in side.generic.items():
            written.put(name, samples, values)
        recordings.append(side.recording)
        start = samples.stop
        del side  # its gradients go before the next pass makes new ones
    return Gathered(recordings, r, {k: v.flatten(2) for k, v in written.tensors.items()}, outgoing.tensors)


class _Rows:
    """Tensors over all samples, filled some samples at a time."""

    def __init__(self, n: int):
        self.n = n
        self.tensors: dict[Any, Tensor] = {}

    def slot(self, name: object, samples: slice, shape: Iterable[int], like: Tensor) -> Tensor:
        """Where these samples go."""
        if name not in self.tensors:
            self.tensors[name] = empty(like, self.n, *shape)
        return self.tensors[name][samples]

    def put(self, name: object, samples: slice, values: Tensor) -> None:
        if len(values) == self.n:
            self.tensors[name] = values
        else:
            self.slot(name, samples, values.shape[1:], values).copy_(values)


def _write(side: Side, layer: Layer, out: Tensor, blocks: Blocks) -> None:
    """Gradients (n, r, h, q, p) of a weight, a few samples at a time."""
    g = side.outgoing(layer)
    n, h, r, s, q = g.sizes
    step = max(1, blocks.pieces // (h * s * max(out.shape[-1], r * q)))
    for start in range(0, n, step):
        samples = slice(start, min(start + step, n))
        matrix_gradients(g[samples], layer_inputs(side.recording, layer, samples), out=out[samples])


def _order(cost: Cost, full: bool) -> str:
    """Which axis of g varies fastest but one: what the route multiplies without another copy."""
    if cost.route == "gradient":
        return "as it comes"
    return "positions apart" if full else "directions joined"


def _keep(g: Outgoing, rows: _Rows, name: Layer, samples: slice, order: str) -> None:
    """Copies outgoing gradients to their place among all samples."""
    n, h, r, s, q = g.sizes
    first = g.parts[0][0]
    if n == rows.n and r == len(g.parts) == 1 and order == "as it comes":
        rows.tensors[name] = first.unsqueeze(2)
        return
    if order == "as it comes":
        order = "directions joined" if first.stride(-1) == 1 or s == 1 else "positions last"
    shape, back = {
        "positions apart": ((h, r, s, q), (0, 1, 2, 3, 4)),
        "directions joined": ((h, s, r, q), (0, 1, 3, 2, 4)),
        "positions last": ((h, r, q, s), (0, 1, 2, 4, 3)),
    }[order]
    if name not in rows.tensors:
        rows.tensors[name] = empty(first, rows.n, *shape).permute(back)
    out, start = rows.tensors[name][samples], 0
    for views in g.parts:
        positions = slice(start, start + views[0].shape[2])
        for k, view in enumerate(views):
            out[:, :, k, positions].copy_(view)
        start = positions.stop
