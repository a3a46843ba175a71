"""Measures: single numbers that are read off the eigenvalues of a kernel or the singular values of a matrix."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from tangentkit.core.errors import NumericalError
from tangentkit.linalg.operators.checks import below_zero, check_finite


def effective_rank(values: Float[Tensor, " r"]) -> float:
    """exp(-Σ p_i ln p_i) with p_i = value_i / Σ value_j (Roy, Vetterli 2007), from 1 to the number of values.

    Raises:
        NumericalError: a value is negative beyond rounding, or all are zero.

    Example:
        >>> round(effective_rank(torch.ones(5)), 4), round(effective_rank(torch.tensor([1.0, 0.0])), 4)
        (5.0, 1.0)
    """
    values = _positive(values, "effective rank")
    p = values / values.sum()
    return math.exp(float(torch.special.entr(p).sum()))


def participation_ratio(values: Float[Tensor, " r"]) -> float:
    """(Σ value_i)² / Σ value_i², from 1 to the number of values.

    Of the eigenvalues of a covariance or a kernel it is the number of directions that share the variance.

    Raises:
        NumericalError: a value is negative beyond rounding, or all are zero.

    Example:
        >>> participation_ratio(torch.ones(5)), participation_ratio(torch.tensor([3.0, 1.0]))
        (5.0, 1.6...)
    """
    values = _positive(values, "participation ratio")
    p = values / values.max()  # squares of the values themselves may overflow
    return float(p.sum().square() / p.square().sum())


def condition_number(values: Float[Tensor, " r"], *, rtol: float) -> float:
    """The largest value over the smallest that is above rtol times the largest.

    Raises:
        NumericalError: a value is negative beyond rounding, or all are zero.

    Example:
        >>> condition_number(torch.tensor([8.0, 2.0, 1e-9]), rtol=1e-6)
        4.0
    """
    values = _positive(values, "condition number")
    largest = values.max()
    return float(largest / values[values > rtol * largest].min())


def clip(values: Float[Tensor, " r"], *, made_in: torch.dtype | None = None) -> Float[Tensor, " r"]:
    """The eigenvalues of a kernel matrix, with negative ones that are rounding set to zero.

    Args:
        values: the eigenvalues.
        made_in: the precision of the matrix, if it is not theirs.

    Raises:
        NumericalError: a value is negative beyond rounding.

    Example:
        >>> clip(torch.tensor([1.0, -1e-6]))
        tensor([1., 0.])
    """
    check_finite(values, "values")
    smallest, size = float(values.min()), float(values.abs().max())
    allowed = below_zero(made_in or values.dtype)
    if smallest < -allowed * size:
        raise NumericalError(
            "the kernel matrix is not positive semi-definite",
            expected=f"no eigenvalue below -{allowed:.1e} of the largest ({size:.3g})",
            got=f"{smallest:.3g}",
            hint=f"a ridge of {-smallest:.3g}: K + {-smallest:.3g} I in the place of K",
        )
    return values.clamp(min=0)


def _positive(values: Tensor, measure: str) -> Tensor:
    """The values, none of them negative, at least one of them positive."""
    values = clip(values)
    if not values.any():
        raise NumericalError(
            f"the {measure} of zero is not defined", expected="a positive value", got="zeros"
        )
    return values
