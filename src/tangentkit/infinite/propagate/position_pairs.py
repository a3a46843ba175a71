"""Pairs of positions along one axis of an image, and the linear maps between them.

A covariance between two images is a function of two positions, axis by axis. Stored are only the pairs (l, r) whose
offset r - l somebody asked for: a convolution with stride s asks for the offsets s·δ of its input and sums along
them, so one offset never needs another; only averages over windows bring offsets together.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import torch
from torch import Tensor

DENSE = 2**16
"""Entries up to which an irregular map is a dense matrix: a small product beats gathering rows."""


@dataclass(frozen=True)
class PairAxis:
    """The pairs (l, r) of positions 0 <= l, r < size with r - l among the offsets.

    They are ordered offset by offset; all pairs there are, left by left.

    Example:
        >>> axis = PairAxis(3, (0, 1))
        >>> axis.left.tolist(), axis.right.tolist()
        ([0, 1, 2, 0, 1], [0, 1, 2, 1, 2])
    """

    size: int
    offsets: tuple[int, ...]

    @staticmethod
    def of(size: int, offsets: Iterable[int]) -> "PairAxis":
        """The axis with those of the offsets that two positions can have."""
        # Where a filter sees nothing but padding, the pairs (p, p) stand in for none at all.
        return PairAxis(size, tuple(sorted({d for d in offsets if -size < d < size})) or (0,))

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.size, self.offsets))

    def __len__(self) -> int:
        return self._length

    @cached_property
    def _length(self) -> int:
        return sum(self.size - abs(d) for d in self.offsets)

    @cached_property
    def is_all(self) -> bool:
        """Whether every pair is here."""
        return len(self.offsets) == 2 * self.size - 1

    @cached_property
    def left(self) -> np.ndarray:
        """Positions in the first image."""
        if self.is_all:
            return np.arange(self.size).repeat(self.size)
        return np.concatenate([np.arange(max(0, -d), self.size - max(0, d)) for d in self.offsets])

    @cached_property
    def right(self) -> np.ndarray:
        """Positions in the second image."""
        if self.is_all:
            return np.tile(np.arange(self.size), self.size)
        return np.concatenate([np.arange(max(0, d), self.size + min(0, d)) for d in self.offsets])

    @cached_property
    def same(self) -> slice:
        """Where the pairs (p, p) are."""
        if self.is_all:
            return slice(0, self.size**2, self.size + 1)
        before = sum(self.size - abs(d) for d in self.offsets if d < 0)
        return slice(before, before + self.size)

    def find(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """The places of pairs, all of which must be here, -1 where a side is negative (a zero of the padding)."""
        if self.is_all:
            return np.where((left >= 0) & (right >= 0), left * self.size + right, -1)
        base = np.full(2 * self.size - 1, -(10**9))
        start = 0
        for d in self.offsets:
            base[d + self.size - 1] = start - max(0, -d)
            start += self.size - abs(d)
        inside = (left >= 0) & (right >= 0)
        return np.where(inside, base[np.where(inside, right - left, 0) + self.size - 1] + left, -1)

    @property
    def is_same(self) -> bool:
        """Whether only the pairs (p, p) are here."""
        return self.offsets == (0,)


@dataclass(frozen=True)
class Patch:
    """What a filter sees along one axis: the mean over its taps o of the pairs (l·s + o, r·s + o).

    Args:
        size: positions of the input.
        kernel: taps.
        stride: step between outputs.
        dilation: step between taps.
        padding: positions added before and after.
        mode: what is in them: "zeros", "circular", "reflect" or "replicate".
    """

    size: int
    kernel: int
    stride: int = 1
    dilation: int = 1
    padding: tuple[int, int] = (0, 0)
    mode: str = "zeros"

    @property
    def outputs(self) -> int:
        """Positions of the output."""
        return (self.size + sum(self.padding) - self.dilation * (self.kernel - 1) - 1) // self.stride + 1

    @cached_property
    def sources(self) -> np.ndarray:
        """The input position that each tap sees at each output (taps, outputs); -1 for a zero."""
        at = (
            np.arange(self.outputs) * self.stride + np.arange(self.kernel)[:, None] * self.dilation
        ) - self.padding[0]
        if self.mode == "circular":
            return at % self.size
        if self.mode == "replicate":
            return at.clip(0, self.size - 1)
        if self.mode == "reflect":
            at = abs(at)
            return np.where(at >= self.size, 2 * (self.size - 1) - at, at)
        return np.where((at >= 0) & (at < self.size), at, -1)

    def inputs_of(self, pairs: PairAxis) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Row, left, right and weight of every input pair that an output pair sums over."""
        left, right = self.sources[:, pairs.left], self.sources[:, pairs.right]
        rows = np.broadcast_to(np.arange(len(pairs)), left.shape)
        inside = (left >= 0) & (right >= 0)
        return rows[inside], left[inside], right[inside], np.full(int(inside.sum()), 1 / self.kernel)


@dataclass(frozen=True)
class Window:
    """A linear map of positions along one axis: output l is the weighted sum of start[l] <= a < stop[l].

    Both sides of a pair are summed on their own, so every offset within the windows counts.
    """

    size: int
    starts: tuple[int, ...]
    stops: tuple[int, ...]
    weights: tuple[float, ...]

    @property
    def outputs(self) -> int:
        """Positions of the output."""
        return len(self.starts)

    def inputs_of(self, pairs: PairAxis) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Row, left, right and weight of every input pair that an output pair sums over."""
        rows, lefts, rights, weights = [], [], [], []
        for row, (i, j) in enumerate(zip(pairs.left, pairs.right, strict=True)):
            a, b = np.arange(self.starts[i], self.stops[i]), np.arange(self.starts[j], self.stops[j])
            lefts.append(np.repeat(a, len(b)))
            rights.append(np.tile(b, len(a)))
            rows.append(np.full(len(a) * len(b), row))
            weights.append(np.full(len(a) * len(b), self.weights[i] * self.weights[j]))
        joined = np.concatenate
        return joined(rows), joined(lefts), joined(rights), joined(weights)


Geometry = Patch | Window


def identity(size: int) -> Patch:
    """The map that changes nothing."""
    return Patch(size, kernel=1)


def average(size: int, kernel: int, stride: int, padding: int, *, ceil: bool, count_padding: bool) -> Window:
    """Average pooling along one axis, as torch counts it."""
    span = size + 2 * padding - kernel
    outputs = (-(-span // stride) if ceil else span // stride) + 1
    if ceil and (outputs - 1) * stride >= size + padding:
        outputs -= 1  # a window may not begin in the padding after the image
    begin = np.arange(outputs) * stride - padding
    end = np.minimum(begin + kernel, size + padding)
    starts, stops = begin.clip(0), end.clip(max=size)
    counts = end - begin if count_padding else stops - starts
    return Window(size, tuple(starts.tolist()), tuple(stops.tolist()), tuple((1 / counts).tolist()))


def adaptive(size: int, outputs: int) -> Window:
    """Adaptive average pooling along one axis."""
    at = np.arange(outputs)
    starts, stops = at * size // outputs, -(-(at + 1) * size // outputs)
    return Window(size, tuple(starts.tolist()), tuple(stops.tolist()), tuple((1 / (stops - starts)).tolist()))


def selection(size: int, kept: Sequence[int]) -> Window:
    """Some of the positions, in the given order; -1 is a zero.

    Example:
        >>> selection(3, [-1, 2]).stops
        (0, 3)
    """
    starts = tuple(max(k, 0) for k in kept)
    return Window(size, starts, tuple(k + 1 for k in kept), (1.0,) * len(kept))


@lru_cache(maxsize=4096)
def needed(geometry: Geometry, pairs: PairAxis) -> PairAxis:
    """The pairs of the input from which the pairs of the output follow."""
    if geometry == identity(geometry.size):
        return pairs
    if isinstance(geometry, Patch) and geometry.mode == "zeros":
        return PairAxis.of(geometry.size, {geometry.stride * d for d in pairs.offsets})
    _, left, right, _ = geometry.inputs_of(pairs)
    return PairAxis.of(geometry.size, np.unique(right - left).tolist())


class PairMap:
    """A sparse matrix from pairs to pairs, and the cheapest way to multiply by it.

    The result of `apply` is to be multiplied by `factor`, which the caller can do once for several maps.
    """

    def __init__(self, rows: np.ndarray, columns: np.ndarray, weights: np.ndarray, shape: tuple[int, int]):
        keys, inverse = np.unique(rows * shape[1] + columns, return_inverse=True)
        rows, columns = keys // shape[1], keys % shape[1]
        weights = np.bincount(inverse, weights, minlength=len(keys))
        self.shape = shape
        self.factor = float(weights[0]) if len(weights) and np.ptp(weights) == 0 else 1.0
        self.rows, self.columns, self.weights = rows, columns, weights / self.factor
        self.is_identity = shape[0] == shape[1] == len(rows) and bool((rows == columns).all())
        self.is_sum = shape[0] == 1 and len(rows) == shape[1]
        self._constants: dict[tuple, object] = {}

    @cached_property
    def uniform(self) -> bool:
        """Whether all weights are 1 (times the factor)."""
        return bool((self.weights == 1).all())

    @cached_property
    def shifts(self) -> list[tuple[int, int, int, np.ndarray | None]] | None:
        """First row, last row, shift and mask of each diagonal, longest first; None where there are too many."""
        distances = self.columns - self.rows
        values, counts = np.unique(distances, return_counts=True)
        per_row = np.bincount(self.rows, minlength=1).max(initial=1)
        if len(values) > per_row or not self.uniform:
            return None
        shifts = []
        for value in values[np.argsort(-counts, kind="stable")]:
            rows = self.rows[distances == value]
            first, last = int(rows[0]), int(rows[-1]) + 1
            mask = None
            if last - first != len(rows):
                mask = np.zeros(last - first)
                mask[rows - first] = 1
            shifts.append((first, last, int(value), mask))
        return shifts

    def apply(self, field: Tensor, axis: int) -> Tensor:
        """The matrix times the field, along an axis of it, up to the factor."""
        if self.is_identity and self.uniform:
            return field
        if self.is_sum and self.uniform:
            return field.sum(axis, keepdim=True)
        if self.shifts is not None:
            return self._shifted(field, axis)
        if self.shape[0] * self.shape[1] <= DENSE or self.shape[0] == 1:
            lead, rest = field.shape[:axis], field.shape[axis + 1 :]
            flat = field.reshape(lead.numel(), field.shape[axis], rest.numel())
            return torch.matmul(self._dense(field), flat).reshape(*lead, self.shape[0], *rest)
        return self._gathered(field, axis)

    def _shifted(self, field: Tensor, axis: int) -> Tensor:
        assert self.shifts is not None
        out = None if self.shifts else self._zeros(field, axis)
        for i, (first, last, shift, mask) in enumerate(self.shifts):
            part = field.narrow(axis, first + shift, last - first)
            if out is None and mask is None and last - first == self.shape[0]:
                out = part.clone() if len(self.shifts) > 1 else part
                continue
            if out is None:
                out = self._zeros(field, axis)
            into = out.narrow(axis, first, last - first)
            if mask is None:
                into.add_(part)
            else:
                into.addcmul_(part, self._column(("shift", i), mask, field, axis))
        assert out is not None
        return out

    def _gathered(self, field: Tensor, axis: int) -> Tensor:
        # The k-th entries of all rows together, k = 0, 1, ...
        rank = np.arange(len(self.rows)) - np.searchsorted(self.rows, self.rows)
        out = self._zeros(field, axis)
        for k in range(int(rank.max(initial=-1)) + 1):
            at = rank == k
            columns = self._constant(
                ("columns", k), field.device, torch.int64, lambda at=at: self.columns[at]
            )
            rows = self._constant(("rows", k), field.device, torch.int64, lambda at=at: self.rows[at])
            part = field.index_select(axis, columns)
            if not self.uniform:
                part = part * self._column(("weights", k), self.weights[at], field, axis)
            out = out.index_add(axis, rows, part)
        return out

    def _zeros(self, field: Tensor, axis: int) -> Tensor:
        return field.new_zeros(*field.shape[:axis], self.shape[0], *field.shape[axis + 1 :])

    def _dense(self, field: Tensor) -> Tensor:
        def matrix() -> np.ndarray:
            dense = np.zeros(self.shape)
            dense[self.rows, self.columns] = self.weights
            return dense

        return self._constant(("dense",), field.device, field.dtype, matrix)

    def _column(self, name: tuple, values: np.ndarray, field: Tensor, axis: int) -> Tensor:
        column = self._constant(name, field.device, field.dtype, lambda: values)
        return column.reshape(-1, *(1,) * (field.ndim - axis - 1))

    def _constant(self, name: tuple, device: torch.device, dtype: torch.dtype, make) -> Tensor:
        key = (*name, device, dtype)
        if key not in self._constants:
            self._constants[key] = torch.as_tensor(make()).to(device, dtype)
        return self._constants[key]  # pyright: ignore[reportReturnType]


@lru_cache(maxsize=4096)
def pair_map(geometry: Geometry, outputs: PairAxis, inputs: PairAxis) -> PairMap:
    """The map from the pairs at hand of a geometry's input to those of its output.

    Input pairs that are not at hand are left out: the sum over parts of the input is the whole.
    """
    rows, left, right, weights = geometry.inputs_of(outputs)
    here = np.isin(right - left, inputs.offsets)
    columns = inputs.find(left[here], right[here])
    return PairMap(rows[here], columns, weights[here], (len(outputs), len(inputs)))
