"""The training samples that a kernel finds nearest: those of the largest kernel values."""

from dataclasses import dataclass
from numbers import Integral
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tangentkit.compute.kernel import Kernel
from tangentkit.core.errors import InputError, briefly
from tangentkit.core.progress import Progress, counted_off
from tangentkit.linalg.operators.operator import Operator
from tangentkit.surrogate.cross_matrix import cross_matrix


@dataclass(frozen=True, eq=False, repr=False)
class Neighbors:
    """The k nearest training samples of each of n samples, the nearest first."""

    indices: Int[Tensor, "n k"]
    """Numbers of training samples."""
    values: Float[Tensor, "n k"]
    """Their kernel values, falling; of equal ones the training sample with the lower number comes first."""
    candidates: int
    """Training samples in all."""

    def __repr__(self) -> str:
        n, k = self.indices.shape
        return f"Neighbors(k={k}, samples={n:,}, training samples={self.candidates:,})"

    def overlap(self, other: "Neighbors") -> Float[Tensor, " n"]:
        """The share of each sample's neighbors that are among those that another kernel finds.

        Raises:
            InputError: the two are not of the same samples.

        Example:
            >>> one, two = torch.tensor([[0, 1]]), torch.tensor([[1, 2]])
            >>> Neighbors(one, one.double(), 3).overlap(Neighbors(two, two.double(), 3))
            tensor([0.5000])
        """
        if len(self.indices) != len(other.indices) or self.candidates != other.candidates:
            raise InputError("neighbors of other samples", expected=repr(self), got=repr(other))
        return (self.indices[:, :, None] == other.indices[:, None, :]).any(2).float().mean(1)


@briefly
def neighbors(
    kernel: Kernel | Operator,
    x: Any = None,
    train: Any = None,
    k: int = 5,
    *,
    progress: bool | Progress = True,
) -> Neighbors:
    """The k training samples with the largest kernel values for each sample, in blocks of rows.

    Rows of the matrix k(x, train) come and go: it need not fit in memory. Large values are near; samples of large
    norm are near to many, so `kernel.normalized()`, the cosine, is often what is meant.

    Args:
        kernel: any kernel of one number for each pair; or a matrix k(x, train) as an operator, as `tk.gram` gives.
        x: samples: a batch or a data set. With an operator x and train are left out.
        train: the training samples, likewise.
        k: how many, at most as many as there are training samples.
        progress: whether to show a bar on a terminal; or a function (stage, done, total).

    Returns:
        `.indices` (n, k) and `.values` (n, k).

    Raises:
        InputError: a bad k, or a kernel between outputs.
        NumericalError: a kernel value is not finite.

    Example:
        >>> from tangentkit import ConjugateKernel
        >>> kernel = ConjugateKernel(torch.nn.Linear(1, 1))  # k(x, y) = x y
        >>> train = torch.tensor([[1.0], [3.0], [2.0], [3.0]])
        >>> found = neighbors(kernel, torch.tensor([[1.0], [-1.0]]), train, 2)
        >>> found.indices, found
        (tensor([[1, 3],
                [0, 2]]), Neighbors(k=2, samples=2, training samples=4))
    """
    matrix = cross_matrix(kernel, x, train)
    m = matrix.shape[1]
    if isinstance(k, bool) or not isinstance(k, Integral) or not 1 <= k <= m:
        raise InputError("bad number of neighbors", expected=f"an integer from 1 to {m}", got=repr(k))
    found = []
    with counted_off(progress, "neighbors", len(matrix.ranges())) as advance:
        for _, strip in matrix.strips():
            found.append(largest(strip, int(k)))
            advance()
    values, indices = (torch.cat(parts) for parts in zip(*found, strict=True))
    return Neighbors(indices, values, m)


def largest(values: Float[Tensor, "n m"], k: int) -> tuple[Float[Tensor, "n k"], Int[Tensor, "n k"]]:
    """The k largest values of each row and their columns, in order; of equal ones the first columns.

    Example:
        >>> largest(torch.tensor([[1.0, 3.0, 2.0, 3.0]]), 2)
        (tensor([[3., 3.]]), tensor([[1, 3]]))
    """
    top = values.topk(min(k + 1, values.shape[1]))
    found, columns = top.values[:, :k], top.indices[:, :k]
    # Of equal values topk takes any: where the first that is left out equals the last one, all are put in order.
    tied = (top.values[:, k:] == found[:, -1:]).any(1)
    if tied.any():
        everything = torch.arange(values.shape[1], device=values.device).expand(int(tied.sum()), -1)
        found[tied], columns[tied] = (part[:, :k] for part in _ordered(values[tied], everything))
    return _ordered(found, columns)


def _ordered(values: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Rows by falling values, equal ones by rising numbers."""
    by = numbers.argsort(1)
    by = by.gather(1, values.gather(1, by).sort(dim=1, descending=True, stable=True).indices)
    return values.gather(1, by), numbers.gather(1, by)
