"""Whether a matrix that is there already is the kernel of these samples: a few of its entries, computed again."""

import numpy as np
import torch
from torch import Tensor

from tangentkit.compute.kernel import Kernel
from tangentkit.compute.sources import SampleSource
from tangentkit.core.batches import Batch, concatenate
from tangentkit.core.errors import InputError
from tangentkit.linalg.operators.operator import Operator

TRIED = 4
"""Samples of each side of which the kernel is computed again."""
SLACK = 2e-3
"""How far entries may be from those computed again, relative to the largest: rounding of long sums in float32."""


def check_matrix(given: Operator, kernel: Kernel, x: SampleSource, train: SampleSource, what: str) -> None:
    """Refuses a matrix whose entries are not those of the kernel.

    Args:
        given: κ(x, train) as it is there.
        kernel: κ.
        x: samples of its rows.
        train: samples of its columns.
        what: the matrix in words, for the error.

    Raises:
        InputError: the entries differ.
    """
    rows, columns = _spread(len(x)), _spread(len(train))
    expected = kernel(_samples(x, rows), _samples(train, columns)).detach().double().cpu()
    if expected.ndim != 2:  # a kernel between outputs, which is refused elsewhere
        return
    found = torch.stack([_entries(given, i, columns) for i in rows])
    gap, size = float((found - expected).abs().max()), float(expected.abs().max())
    if not gap <= SLACK * size:
        i, j = divmod(int((found - expected).abs().argmax()), len(columns))
        raise InputError(
            f"{what} is not that of this kernel and these samples",
            expected=f"κ(x_{rows[i]}, x_{columns[j]}) = {expected[i, j]:.5g}, as {kernel!r} gives it",
            got=f"{found[i, j]:.5g}",
            hint="a matrix of this kernel, of the network as it is now, and of these samples in this order",
        )


def _spread(n: int) -> list[int]:
    """A few numbers from the first to the last."""
    return np.unique(np.linspace(0, n - 1, TRIED).round().astype(int)).tolist()


def _samples(source: SampleSource, numbers: list[int]) -> Batch:
    return concatenate([source.read(slice(number, number + 1)) for number in numbers])


def _entries(given: Operator, row: int, columns: list[int]) -> Tensor:
    parts = [given.block(slice(row, row + 1), slice(j, j + 1)) for j in columns]
    return torch.cat([part.detach().double().cpu().flatten() for part in parts])
