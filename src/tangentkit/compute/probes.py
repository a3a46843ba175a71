"""Probe values: the kernel of a few samples, by which a store sees that a model computes something else.

A model's numbers depend on more than its parameters: options, closures, hooks, helpers, compiled code, the
environment. Nothing can read all of that, but whatever changes the kernel changes its values. So a store keeps a few
of them, and whoever opens it to write computes them again, in the very way in which tiles are made.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from tangentkit.compute.finite_tiles import check_tile, explained, in_words
from tangentkit.compute.identity import Plain
from tangentkit.compute.kernel import Kernel
from tangentkit.compute.sources import SampleSource, read_few
from tangentkit.compute.terms import HasRows, Range, Row, Term
from tangentkit.core.batches import Batch, batch_size, take
from tangentkit.core.errors import DataError, InputError, ModelError, NumericalError

SAMPLES, ROWS = 8, 512
"""Of each side, the most that are tried; and no more rows, unless two samples have more."""
ENTRIES = 16
"""Rows and columns of their matrix that are kept: kernels between outputs have many."""
SLACK = 8.0
"""How much more another machine may round than two calls on this one."""
FLOOR = 0.01
"""Of the largest size: rounding of smaller values need not be smaller still."""


class Measured(NamedTuple):
    """Values, and the sizes by which their rounding is measured."""

    values: Tensor
    sizes: Tensor

    def gap(self, others: Tensor) -> float:
        """The largest difference from other values, in these sizes."""
        gaps = (self.values - others).abs()
        return float(torch.where(gaps == 0, 0, gaps / self.sizes.clamp(min=FLOOR * self.sizes.max())).max())

    def some(self) -> "Measured":
        """As many as a file should keep, spread over all."""
        return self.at(*(torch.tensor(spread(n, ENTRIES)) for n in self.values.shape))

    def at(self, *places: Tensor) -> "Measured":
        """The values at some places of each axis."""
        index = torch.meshgrid(*places, indexing="ij")
        return Measured(self.values[index], self.sizes[index])


@dataclass(frozen=True, eq=False)
class Probe:
    """The kernel of a few samples, and how closely another run must agree."""

    samples: dict[str, list[int]]
    """Side -> their numbers."""
    measured: dict[str, Measured]
    """Entries of the matrix, its diagonals, and one number for each sample and part."""
    rounding: float
    """The most by which values may differ, in their sizes."""

    def plain(self) -> Plain:
        """What a store keeps."""
        return {
            "samples": self.samples,
            "values": {name: m.values.tolist() for name, m in self.measured.items()},
        }

    def gap(self, kept: Plain) -> float | None:
        """By how much the values of a store differ, if that is more than rounding.

        Raises:
            DataError: it has no values of such samples.
        """
        try:
            gaps = [
                m.gap(torch.tensor(kept["values"][name], dtype=torch.float64).view_as(m.values))
                for name, m in self.measured.items()
            ]
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise DataError(
                "the probe values of the store are damaged",
                expected="the kernel of a few samples",
                got="something else",
                hint="another folder",
            ) from error
        return next((gap for gap in sorted(gaps, reverse=True) if not gap <= self.rounding), None)


def take_probe(
    kernel: Kernel, sources: Mapping[str, SampleSource], hashes: Mapping[str, list[bytes]], *, outputs: int
) -> Probe:
    """The kernel of samples that are spread over the data.

    They meet each other, or in a rectangular matrix those of the other side. Then every second one meets the rest
    again: symmetric and rectangular tiles are both tried, and values that change from call to call are found out.

    Args:
        kernel: any.
        sources: "x", and "y" unless the matrix is symmetric.
        hashes: of all their samples, by which those that are read are known to be the same.
        outputs: rows of the matrix for each sample.

    Raises:
        ModelError: the kernel gives other values from call to call.
        NumericalError: it is not finite; with the samples.
        InputError: it refuses samples.
    """
    most = max(2, min(SAMPLES, ROWS // outputs))
    numbers = {side: spread(len(source), most) for side, source in sources.items()}
    batches = {side: read_few(source, numbers[side], hashes[side]) for side, source in sources.items()}
    few = Few(kernel, numbers, batches)
    every = [few.range(side, 0) for side in sources]
    try:
        diagonals = {side: few.diagonal(side) for side in sources}
        matrix = few.matrix(diagonals)
        noise = few.noise(matrix)
        parts = few.parts()
    except NumericalError as error:
        raise explained(error, kernel, list(zip(every, batches.values(), strict=True))) from error
    except InputError as error:
        raise InputError(f"{in_words(every)}, counted from the first of them: {error}") from error
    check_tile(matrix.values, (every[0], every[-1]))
    finest, coarsest = few.precision ** (2 / 3), few.precision ** (1 / 3)
    if not noise <= coarsest:
        raise ModelError(
            "the kernel gives other values from call to call",
            expected="k(x, y) that depends on x and y alone",
            got=f"entries that differ by {noise:.2g} of sqrt(k(x, x) k(y, y)) between two calls",
            hint="take chance, memory of former calls and the other samples of the batch out of the model's forward",
        )
    named = {"kernel": matrix, **{f"diagonal-{side}": m for side, m in diagonals.items()}, **parts}
    kept = {name: measured.some() for name, measured in named.items()}
    return Probe(numbers, kept, rounding=min(max(finest, SLACK * noise), coarsest))


def spread(n: int, most: int) -> list[int]:
    """At most so many of n numbers, from the first to the last.

    Example:
        >>> spread(100, 4), spread(3, 4)
        ([0, 33, 66, 99], [0, 1, 2])
    """
    count = min(n, most)
    return [i * (n - 1) // max(1, count - 1) for i in range(count)]


@dataclass(frozen=True, eq=False)
class Few:
    """Makes tiles of a few samples. Range 0 is all of a side, range 1 every second one, range 2 the others."""

    kernel: Kernel
    numbers: dict[str, list[int]]
    """Side -> numbers of the samples."""
    batches: dict[str, Batch]
    """Side -> samples."""
    known: dict[tuple[str, str, int], Tensor] = field(default_factory=dict)
    dtypes: set[torch.dtype] = field(default_factory=set)
    """Of what kernels gave, before it was cast."""

    def matrix(self, diagonals: Mapping[str, Measured]) -> Measured:
        """The kernel of all."""
        values = self._term.tile(self, self.range("x", 0), self.range(self._across, 0)).double().cpu()
        rows, columns = (diagonals[side].sizes.sqrt() for side in ("x", self._across))
        return Measured(values, rows[:, None] * columns)

    def noise(self, matrix: Measured) -> float:
        """By how much entries differ when they are computed again."""
        again = self._term.tile(self, self.range("x", 1), self.range(self._across, 2)).double().cpu()
        rows, columns = (
            torch.arange(n).view(batch_size(self.batches[side]), -1)[self._picked(side, i)].flatten()
            for n, side, i in zip(matrix.values.shape, ("x", self._across), (1, 2), strict=True)
        )
        return matrix.at(rows, columns).gap(again)

    def diagonal(self, side: str) -> Measured:
        """k(x, x)."""
        values = self._term.diagonal(self, self.range(side, 0)).double().cpu()
        return Measured(values, values.abs())

    def parts(self) -> dict[str, Measured]:
        """Of each part one number a sample, in which all columns count: features may turn, and the kernel not."""
        found = {}
        for name, _ in self._term.parts():
            for side in self.batches:
                part = self.part(name, self.range(side, 0)).double().cpu()
                weights = torch.arange(part.shape[1], dtype=part.dtype).square().cos()
                found[f"{name}-{side}"] = Measured(part @ weights, part.norm(dim=1))
        return found

    @property
    def precision(self) -> float:
        """The distance from 1 to the next number, in the coarsest type that was seen."""
        return max(torch.finfo(dtype).eps for dtype in self.dtypes)

    def samples(self, where: Range) -> Batch:
        """The samples of a range."""
        return take(self.batches[where.side], self._picked(where.side, where.i))

    def part(self, name: str, where: Range) -> Tensor:
        """A part for a range, computed once."""
        key = name, where.side, where.i
        if key not in self.known:
            self.known[key] = dict(self._term.parts())[name](self, where)
            self.dtypes.add(self.known[key].dtype)
        return self.known[key]

    def row(self, kernel: HasRows, where: Range) -> Row:
        """The tiles of a kernel in the row of a range."""
        row = kernel.row(self.samples(where))

        def noted(y: Batch | None = None) -> Tensor:
            k = row(y)
            self.dtypes.add(k.dtype)
            return k

        return noted

    def range(self, side: str, i: int) -> Range:
        """One of the ranges."""
        picked = self._picked(side, i)
        return Range(side, i, slice(0, len(picked)), tuple(self.numbers[side][k] for k in picked))

    @cached_property
    def _term(self) -> Term:
        return self.kernel.term()

    @property
    def _across(self) -> str:
        return "y" if "y" in self.batches else "x"

    def _picked(self, side: str, i: int) -> list[int]:
        every = range(batch_size(self.batches[side]))
        return list((every, every[::2], every[1::2] or every)[i])
