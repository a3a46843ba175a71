"""Checks of what a solver or a spectrum needs: finite, square, symmetric."""

import torch
from torch import Tensor

from tangentkit.core.errors import InputError, NumericalError
from tangentkit.linalg.operators.operator import Memory, Operator

MOST_NOISE = 1e-5
"""Negative eigenvalues up to this share of the largest are rounding, such as of a kernel computed in float32."""

IN_CACHE = 256
"""The side of pieces that are compared with their transpose; three times as fast as with 2048."""


def rounding(dtype: torch.dtype) -> float:
    """√ε of a dtype (1.5e-8, in float32 3.5e-4): what counts as rounding, relative to the largest."""
    return torch.finfo(dtype).eps ** 0.5


def below_zero(dtype: torch.dtype) -> float:
    """How far eigenvalues of a positive kernel may lie below zero by rounding, relative to the largest.

    A kernel may have been computed in float32 and cast to float64, so that this is at least 1e-5.
    """
    return max(MOST_NOISE, rounding(dtype))


def check_finite(numbers: Tensor, what: str) -> None:
    """Refuses NaN and infinities.

    Raises:
        InputError: the numbers are complex.
        NumericalError: with the number of entries that are not finite.
    """
    if numbers.is_complex():
        raise InputError(
            f"complex {what}", expected="real numbers", got=numbers.dtype, hint=".real or .abs()"
        )
    # The extremes carry NaN along and need no memory; only a failure pays for counting.
    if numbers.numel() and not all(torch.isfinite(extreme) for extreme in torch.aminmax(numbers)):
        count = int((~torch.isfinite(numbers)).sum())
        raise NumericalError(
            f"non-finite {what}",
            expected="finite numbers",
            got=f"{count} of {numbers.numel()} that are NaN or infinite",
        )


def check_square(K: Operator) -> None:
    """Refuses operators that are not square.

    Raises:
        InputError: with the shape.
    """
    if K.shape[0] != K.shape[1]:
        raise InputError("the operator is not square", expected="shape (n, n)", got=K.shape)


def asymmetry(K: Operator, *, memory: Memory = None) -> float:
    """The largest |K_ij - K_ji| relative to the largest |K_ij|, read in tiles; 0 of a declared symmetry.

    Example:
        >>> from tangentkit.linalg import DenseOperator
        >>> asymmetry(DenseOperator(torch.tensor([[1.0, 4.0], [3.0, 1.0]])))
        0.25
    """
    check_square(K)
    if K.symmetric:
        return 0.0
    gap = largest = torch.zeros((), dtype=K.dtype, device=K.device)
    for rows, cols in K.tiles(memory):
        if rows.start <= cols.start:
            upper, lower = K.block(rows, cols), K.block(cols, rows)
            gap = torch.maximum(gap, _gap(upper, lower))
            largest = torch.stack(
                [largest, *(end.abs() for part in (upper, lower) for end in torch.aminmax(part))]
            ).max()
    return float(gap / largest) if largest != 0 else 0.0


def _gap(upper: Tensor, lower: Tensor) -> Tensor:
    """The largest |upper - lowerᵀ|, by pieces that stay in the cache while they are read along both axes."""
    differences = (
        piece - other.T
        for row, column in zip(upper.split(IN_CACHE), lower.split(IN_CACHE, dim=1), strict=True)
        for piece, other in zip(row.split(IN_CACHE, dim=1), column.split(IN_CACHE), strict=True)
    )
    return torch.stack([difference.abs().max() for difference in differences]).max()


def is_symmetric(K: Operator, *, memory: Memory = None) -> bool:
    """Whether K = Kᵀ within the rounding of its dtype, or of float32 where every entry is a float32 number."""
    return _is_rounding(asymmetry(K, memory=memory), K, memory)


def check_symmetric(K: Operator, *, memory: Memory = None) -> None:
    """Refuses operators that are not symmetric to within the rounding of the precision they were made in.

    Raises:
        InputError: it is not square.
        NumericalError: with the largest asymmetry.
    """
    gap = asymmetry(K, memory=memory)
    if not _is_rounding(gap, K, memory):
        raise NumericalError(
            "the operator is not symmetric",
            expected=f"max |K_ij - K_ji| within {rounding(K.dtype):.1e} of the largest entry",
            got=f"{gap:.3g} of it",
            hint="where only rounding is to blame, symmetrize: (K + K.T) / 2",
        )


def _is_rounding(gap: float, K: Operator, memory: Memory) -> bool:
    """Whether a relative asymmetry is that of the precision in which the entries were made."""
    # Comparisons that a NaN does not pass.
    if gap <= rounding(K.dtype):
        return True
    return gap <= rounding(torch.float32) and _made_in_float32(K, memory)


def _made_in_float32(K: Operator, memory: Memory) -> bool:
    """Whether a float64 matrix has float32 numbers only: it was computed in float32 and cast."""
    if K.dtype != torch.float64:
        return False
    blocks = (K.block(*tile) for tile in K.tiles(memory))
    return all(torch.equal(block, block.float().double()) for block in blocks)
