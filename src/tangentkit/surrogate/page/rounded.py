"""A kernel matrix in one byte a value: every row has a middle, a step and a bound of its error."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Float64, Int8

LEVELS = 127
"""Codes run from -127 to 127."""
SINGLE = 2.0**-24
"""The relative error of a number in single precision."""


@dataclass(frozen=True, eq=False)
class Rounded:
    """κ_ij ≈ middle_i + step_i code_ij, and no value of row i is off by more than bound_i.

    A score W_jc κ_ij + b_c / m is then off by at most |W_jc| bound_i, and their sum by bound_i Σ_j |W_jc|;
    weights that are rounded to single precision are covered as well.
    """

    codes: Int8[np.ndarray, "n m"]
    middle: Float32[np.ndarray, " n"]
    step: Float32[np.ndarray, " n"]
    bound: Float32[np.ndarray, " n"]

    def values(self) -> Float64[np.ndarray, "n m"]:
        """What a reader of the codes sees."""
        return _values(self.codes, self.middle, self.step)


def rounded(blocks: Iterable[np.ndarray]) -> Rounded:
    """Consecutive rows of a matrix, rounded to 255 levels between the least and the largest value of each.

    The bound is measured, and rounded upwards: about half a step, which is 1/508 of the range of the row, and 2⁻²⁴ of
    the largest value for weights in single precision.

    Example:
        >>> small = rounded([np.array([[0.0, 0.3, 1.0]])])
        >>> small.codes.tolist(), bool(abs(small.values() - [[0.0, 0.3, 1.0]]).max() <= small.bound[0])
        ([[-127, -51, 127]], True)
    """
    parts = [_rounded_rows(np.asarray(block, dtype=np.float64)) for block in blocks]
    return Rounded(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _rounded_rows(rows: Float64[np.ndarray, "n m"]) -> tuple[np.ndarray, ...]:
    # Halves first: the sum of two huge numbers may overflow.
    low, high = rows.min(axis=1) / 2, rows.max(axis=1) / 2
    middle, step = (low + high).astype(np.float32), ((high - low) / LEVELS).astype(np.float32)
    off_middle = rows - middle[:, None].astype(np.float64)
    steps = np.divide(off_middle, step[:, None], out=np.zeros_like(rows), where=step[:, None] > 0)
    codes = np.clip(np.rint(steps), -LEVELS, LEVELS).astype(np.int8)
    error = np.abs(rows - _values(codes, middle, step)).max(axis=1)
    error += SINGLE * np.abs(rows).max(axis=1)
    bound = np.nextafter(error.astype(np.float32), np.float32(np.inf))
    return codes, middle, step, bound


def _values(codes: np.ndarray, middle: np.ndarray, step: np.ndarray) -> np.ndarray:
    return middle[:, None].astype(np.float64) + step[:, None].astype(np.float64) * codes
