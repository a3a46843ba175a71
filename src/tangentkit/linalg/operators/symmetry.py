"""Symmetry to the last bit: k(x_i, x_j) and k(x_j, x_i) are one number, whatever rounding made of them."""

from torch import Tensor

from tangentkit.linalg.operators.spans import spans

SIDE = 256
"""Rows that are copied at a time: a transposed copy is quick where it fits the cache."""


def mirrored(matrix: Tensor) -> Tensor:
    """The matrix, its lower triangle copied to the upper one in place.

    Args:
        matrix: symmetric but for rounding, (n, n); or (n, c, n, c), which counts as (n c, n c).

    Example:
        >>> import torch
        >>> mirrored(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        tensor([[1., 3.],
                [3., 4.]])
    """
    square = matrix.reshape(matrix.shape[0] * matrix.shape[1], -1) if matrix.ndim == 4 else matrix
    for rows in spans(len(square), SIDE):
        square[: rows.start, rows] = square[rows, : rows.start].mT
        corner = square[rows, rows]
        corner.copy_(corner.tril() + corner.tril(-1).mT)
    return square.reshape(matrix.shape)
