"""Strips: the columns k(X, landmarks) of a kernel matrix, in strips of rows, in memory or made when asked for."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tangentkit.core.errors import InputError
from tangentkit.core.memory import memory_budget
from tangentkit.linalg import check_finite
from tangentkit.linalg.operators.checks import check_square
from tangentkit.linalg.operators.operator import Memory
from tangentkit.linalg.operators.spans import spans
from tangentkit.linalg.operators.times import times
from tangentkit.machines.kernel_sources import KernelSource, Precomputed, size, take_samples

MOST_ROWS = 2048
"""The most rows of a strip: beyond it a product gains nothing, and its float64 form takes memory."""


@dataclass(frozen=True)
class Strips:
    """A tall matrix C (n, m), one strip of rows after the other."""

    shape: tuple[int, int]
    side: int
    kind: Tensor
    """An empty tensor of the dtype and on the device of C."""
    make: Callable[[slice], Float[Tensor, "b m"]]
    """The strip of some rows."""
    held: Float[Tensor, "n m"] | None = None

    def __iter__(self) -> Iterator[tuple[slice, Float[Tensor, "b m"]]]:
        for rows in spans(self.shape[0], self.side):
            yield rows, self.make(rows) if self.held is None else self.held[rows]

    def within(self, memory: Memory) -> "Strips":
        """The same, in memory if half of the budget takes it: then every strip is made once."""
        size = self.kind.element_size() * self.shape[0] * self.shape[1]
        if self.held is not None or not memory_budget(memory, device=self.kind.device).holds(size, copies=2):
            return self
        held = self.kind.new_empty(self.shape)
        for rows, strip in self:
            held[rows] = strip
        return replace(self, held=held)

    def transposed_times(
        self, Y: Float[Tensor, "n q"], weights: Float[Tensor, " n"] | None
    ) -> Float[Tensor, "m q"]:
        """Cᵀ W Y, computed in the dtype of Y."""
        total = Y.new_zeros(self.shape[1], Y.shape[1])
        for rows, strip in self._in_dtype(Y):
            total += times(strip.T, _weighted(Y[rows], weights, rows))
        return total

    def gram_times(
        self, V: Float[Tensor, "m q"], weights: Float[Tensor, " n"] | None
    ) -> Float[Tensor, "m q"]:
        """Cᵀ W C V, every strip being read once, computed in the dtype of V.

        Coefficients of landmarks that are much alike are large and cancel: in float32 they would drown the result.
        """
        total = torch.zeros_like(V)
        for rows, strip in self._in_dtype(V):
            total += times(strip.T, _weighted(times(strip, V), weights, rows))
        return total

    def _in_dtype(self, like: Tensor) -> Iterator[tuple[slice, Float[Tensor, "b m"]]]:
        """The strips in another dtype, one after the other in the same memory: to allocate it takes longer."""
        room = like.new_empty(min(self.side, self.shape[0]), self.shape[1])
        for rows, strip in self:
            yield rows, strip if strip.dtype == like.dtype else room[: len(strip)].copy_(strip)


def kernel_strips(source: KernelSource, X: Any, landmarks: Int[Tensor, " m"], *, memory: Memory) -> Strips:
    """k(X, X[landmarks]) of a kernel function, features or a matrix, such as one stored on disk.

    Strips fit a quarter of the memory budget.

    Raises:
        InputError: the kernel has several outputs, or the matrix is not square.
    """
    m = len(landmarks)
    if isinstance(source, Precomputed):
        K = source.gram(X)
        check_square(K)
        n, wide, kind = K.shape[0], K.shape[1], torch.empty(0, dtype=K.dtype, device=K.device)

        def make(rows: slice) -> Tensor:
            return _finite(K.block(rows, slice(0, n))[:, landmarks.to(K.device)])
    else:
        centers = take_samples(X, landmarks)
        n, wide = size(X), m
        first = source.cross(take_samples(X, slice(0, 1)), centers)
        kind = first.new_empty(0)
        if first.shape != (1, m):
            raise InputError(
                "landmarks need a kernel with one output",
                expected="k(x, y) of shape (n, m)",
                got="a block kernel",
                hint='outputs="trace", or KernelRegression',
            )

        def make(rows: slice) -> Tensor:
            return _finite(source.cross(take_samples(X, rows), centers))

    # Twice a strip, since a kernel function makes more than its result.
    side = memory_budget(memory, device=kind.device).rows(8 * wide, copies=4 * 2, most=MOST_ROWS)
    return Strips((n, m), side, kind, make)


def landmark_matrix(
    source: KernelSource, X: Any, landmarks: Int[Tensor, " m"], strips: Strips
) -> Float[Tensor, "m m"]:
    """k(landmarks, landmarks): of a function from itself, of a matrix from the strips of its columns."""
    if not isinstance(source, Precomputed):
        centers = take_samples(X, landmarks)
        return _finite(source.cross(centers, centers))
    if strips.held is not None:
        return strips.held[landmarks.to(strips.held.device)]
    parts = []
    for rows, strip in strips:
        inside = landmarks[(landmarks >= rows.start) & (landmarks < rows.stop)] - rows.start
        parts.append(strip[inside.to(strip.device)])
    return torch.cat(parts)


def _finite(strip: Tensor) -> Tensor:
    check_finite(strip, "kernel matrix")
    return strip


def _weighted(rows_of_Y: Tensor, weights: Tensor | None, rows: slice) -> Tensor:
    return rows_of_Y if weights is None else weights[rows, None].to(rows_of_Y) * rows_of_Y
