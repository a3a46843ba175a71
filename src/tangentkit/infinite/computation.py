"""One call of a kernel at infinite width: panels of samples that fit the memory, tiles that fit the cache."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import isqrt, prod

import torch
from torch import Tensor

from tangentkit.core.errors import BudgetError, ModelError
from tangentkit.core.memory import Budget, format_bytes
from tangentkit.infinite.duals.registry import Pointwise
from tangentkit.infinite.propagate.network import Nonlinear
from tangentkit.infinite.propagate.propagation import (
    Field,
    Propagation,
    gathers_many,
    largest_field,
    same_positions,
)
from tangentkit.infinite.propagate.sample_pairs import Listed, Pairing, Panel, Products, Selves
from tangentkit.infinite.reading.reader import Reading
from tangentkit.infinite.reading.tracing import Prelude, Trace
from tangentkit.infinite.repeats import repeats
from tangentkit.linalg.operators.spans import spans

TILE = 2**18
"""Numbers in a field of a tile: few enough for the cache, so many that calls cost little beside the work."""

ROW = 64
"""Samples that should follow each other in memory."""

ALIVE = 24
"""Fields of the size of the largest that may be there at once: K and Θ of a few nodes, and the scratch of a dual."""


@dataclass(frozen=True)
class Computation:
    """One call of a kernel of infinite width: panels of samples that fit the memory, tiles that fit the cache.

    Args:
        trace: the graph of the network.
        kind: "ntk" or "nngp".
        reading: the network for inputs of this shape.
        like: a batch of that shape.
        budget: bytes beside the result.
    """

    trace: Trace
    kind: str
    reading: Reading
    like: Tensor
    budget: Budget

    def gram(self, x: Tensor, y: Tensor | None) -> Tensor:
        """All pairs; one of (i, j) and (j, i) where the batches are the same."""
        symmetric = y is None
        y = x if y is None else y
        out = x.new_empty(len(x), len(y), dtype=self.dtype)
        panel = self._panel_size()
        for i in range(0, len(x), panel):
            first = self._panel(x[i : i + panel])
            for j in range(i if symmetric else 0, len(y), panel):
                same = symmetric and i == j
                second = first if same else self._panel(y[j : j + panel])
                block = out[i : i + panel, j : j + panel]
                self._fill(block, first, second, symmetric=same)
                if symmetric and not same:
                    out[j : j + panel, i : i + panel] = block.mT
        if symmetric:
            # Samples that meet themselves are exact: no difference of nearly equal numbers is taken.
            out.diagonal().copy_(self.diag(x))
        if not out.requires_grad:
            self._settle_repeats(out, x, y)
        return out

    def _settle_repeats(self, out: Tensor, x: Tensor, y: Tensor) -> None:
        """Gives equal samples of both batches the value of a sample with itself."""
        found = [(i, j) for i, j in repeats(x, y) if x is not y or len(i) > 1]
        if found:
            values = self.diag(x[[i[0] for i, _ in found]])
            for (i, j), value in zip(found, values, strict=True):
                out[torch.tensor(i)[:, None], torch.tensor(j)] = value

    def _fill(self, out: Tensor, first: Panel, second: Panel, *, symmetric: bool) -> None:
        """The values of all pairs of two panels, tile by tile."""
        for rows, columns in self._steps(len(first), len(second), upper=symmetric):
            on_diagonal = symmetric and rows.start == columns.start
            values = self._tile(first[rows], second[columns], symmetric=on_diagonal and rows == columns)
            if on_diagonal:
                # Both triangles were computed there, and differ in rounding.
                corner, rest = values[:, : len(values)], values[:, len(values) :]
                values = torch.cat([corner.triu() + corner.triu(1).mT, rest], 1)
            out[rows, columns] = values
            if symmetric:
                out[columns, rows] = values.mT

    def _tile(self, first: Panel, second: Panel, *, symmetric: bool) -> Tensor:
        kind = Listed if self.sums_offsets else Products
        pairing = kind(first, second, symmetric=symmetric)
        return self._value(self._propagation(pairing).output()).reshape(len(first), len(second))

    def diag(self, x: Tensor) -> Tensor:
        """Every sample with itself."""
        parts = []
        for part in self._slices(len(x)):
            pairing = Selves(self._inputs(x[part]))
            parts.append(self._value(self._propagation(pairing).output()))
        return torch.cat(parts)

    def _panel(self, x: Tensor) -> Panel:
        """Samples with the variances of all their fields."""
        parts = []
        for part in self._slices(len(x)):
            panel = self._inputs(x[part])
            pairing = Selves(panel)
            # From the last to the first: what the last one needs includes most of the others.
            for node in reversed(self.reading.network.needs_variance):
                if node not in panel.variances:
                    goal = self.reading.network.nodes[node].inputs[0]
                    axes = same_positions(self.reading.network.nodes[goal])
                    field = self._propagation(pairing, tangent=False).field(goal, axes)
                    pairing.note_variance(node, field.k, axes)
            parts.append(panel)
        return Panel.concatenated(parts)

    def check_independent(self, x: Tensor) -> None:
        """Refuses models that let samples see each other before the first layer, by the first two of a batch.

        Raises:
            ModelError: they do.
        """
        alone, together = self._inputs(x[:1]), self._inputs(x[:2])
        for i, values in alone.inputs.items():
            if not torch.allclose(values, together.inputs[i][..., :1], rtol=1e-4, atol=1e-6):
                raise ModelError(
                    "what the model does before its first layer depends on the other samples of a batch",
                    hint="take statistics of the data out of the model, or keep them in buffers",
                )

    @cached_property
    def _prelude(self) -> Prelude:
        names = [node.name for node in self.reading.sources.values()]
        return Prelude(self.trace, self.like, names, self.reading.seen)

    def _inputs(self, x: Tensor) -> Panel:
        """What no weight touches, done to the samples; channels first, samples last."""
        values = self._prelude.values(x, self.reading.plain)
        return Panel(
            {
                i: values[node.name].permute(node.channel, *node.order, 0).contiguous()
                for i, node in self.reading.sources.items()
            }
        )

    def _propagation(self, pairing: Pairing, *, tangent: bool | None = None) -> Propagation:
        tangent = self.kind == "ntk" if tangent is None else tangent
        return Propagation(
            self.reading.network, pairing, tangent=tangent, limit=self.tile, whole=self.tabulates
        )

    def _value(self, field: Field) -> Tensor:
        if self.kind == "nngp":
            return field.k
        return torch.zeros_like(field.k) if field.t is None else field.t

    @cached_property
    def dtype(self) -> torch.dtype:
        """The dtype of the result: that of inputs, after whatever the model does to them before the first layer."""
        return self.reading.dtype

    @property
    def positions(self) -> tuple[int, ...]:
        """The positions of the first field."""
        return tuple(self.reading.network.nodes[next(iter(self.reading.sources))].positions)

    @cached_property
    def sums_offsets(self) -> bool:
        """Whether the network averages over positions, so that offsets are taken one after the other."""
        network = self.reading.network
        return any(gathers_many(node, same_positions(node)) for node in network.nodes)

    @cached_property
    def tabulates(self) -> bool:
        """Whether functions are tables of many terms, which are cheap as products of matrices."""
        duals = [node.dual for node in self.reading.network.nodes if isinstance(node, Nonlinear)]
        return self.sums_offsets and any(isinstance(dual, Pointwise) for dual in duals)

    @cached_property
    def one(self) -> int:
        """Numbers in the largest field of one pair of samples."""
        return largest_field(self.reading.network, whole=self.tabulates)

    @cached_property
    def tile(self) -> int:
        """Numbers in a field of a tile."""
        fits = self.budget // (2 * ALIVE * 8)
        if fits < self.one:
            raise BudgetError(
                "one pair of samples does not fit the memory budget",
                expected=f"at least {format_bytes(2 * ALIVE * 8 * self.one)}",
                got=format_bytes(self.budget),
                hint="a larger memory=, or smaller images",
            )
        return max(self.one, min(TILE, fits))

    def _steps(self, n: int, m: int, *, upper: bool) -> list[tuple[slice, slice]]:
        """Rows and columns of tiles; of a symmetric block those that cover its upper triangle."""
        pairs = max(1, self.tile // self.one)
        height = isqrt(pairs)
        if not self.sums_offsets:
            # Numbers of pairs that follow each other in memory should be many.
            height = max(1, min(height, pairs // ROW))
        width = pairs // height
        tiles = []
        for rows in spans(n, height):
            start = rows.start if upper else 0
            if upper and self.sums_offsets:
                # A square of its own, where half of the offsets is enough.
                tiles.append((rows, rows))
                start = rows.stop
            tiles += [(rows, slice(j, min(j + width, m))) for j in range(start, m, width)]
        return tiles

    def _slices(self, n: int) -> Iterator[slice]:
        return spans(n, max(1, self.tile // self.one))

    def _panel_size(self) -> int:
        nodes = self.reading.network.nodes
        numbers = sum(prod(nodes[i].positions) for i in self.reading.network.needs_variance)
        numbers += sum(prod(self.reading.seen[node.name][1:]) for node in self.reading.sources.values())
        # Two panels, and as much again while one is put together.
        return self.budget.rows(8 * numbers, copies=2 * 4)
