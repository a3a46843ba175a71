"""Labels and other functions on n samples, as columns."""

import warnings
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from tangentkit.core.callers import users_level
from tangentkit.core.errors import InputError
from tangentkit.linalg.operators.checks import check_finite
from tangentkit.linalg.operators.matrices import as_tensor


class ClassNumbersWarning(UserWarning):
    """Numbers of classes are taken as they are, as values of one function."""


def as_columns(y: Any, n: int, *, what: str = "labels") -> Float[Tensor, "n c"]:
    """Functions on n samples as columns, one or several.

    A warning meets whole numbers 0, 1, 2, ... or 1, 2, 3, ..., also as floats, each for two samples or more in
    the mean: they look like those of classes, of which the third is not twice the second.

    Raises:
        InputError: they are not of shape (n,) or (n, c), or all zero.
        NumericalError: a number is not finite.

    Example:
        >>> as_columns(torch.tensor([1, -1, 1]), 3).shape
        torch.Size([3, 1])
    """
    _refuse_words(y, what)
    y = as_tensor(y, what)
    if y.ndim not in (1, 2) or y.shape[0] != n or y.numel() == 0:
        raise InputError(f"bad {what}", expected=f"shape ({n},) or ({n}, c)", got=tuple(y.shape))
    if _are_class_numbers(y):
        ends = f"{int(y.min())} to {int(y.max())}"
        text = f"{what} {ends} are taken as numbers; classes are a column each, one_hot(y)"
        warnings.warn(text, ClassNumbersWarning, stacklevel=users_level())
    if not y.is_floating_point():
        y = y.double()
    check_finite(y, what)
    if not y.any():
        raise InputError(
            f"the {what} are zero",
            expected="one that is not, of two classes or values at least",
            got=f"0 for all {n} samples",
        )
    return y if y.ndim == 2 else y[:, None]


def near_one(numbers: Tensor) -> Tensor:
    """The numbers times the power of two that brings the largest to about 1: no digit is lost, no square overflows.

    Example:
        >>> near_one(torch.tensor([1e30, -2e30]))
        tensor([ 0.3944, -0.7889])
        >>> near_one(torch.tensor([0, 3]))
        tensor([0.0000, 0.7500], dtype=torch.float64)
    """
    numbers = numbers if numbers.is_floating_point() else numbers.double()
    exponent = numbers.abs().max().frexp().exponent
    # In two steps, since the inverse of the smallest numbers is beyond the largest.
    return numbers.ldexp(-(exponent // 2)).ldexp(-(exponent - exponent // 2))


def _are_class_numbers(y: Tensor) -> bool:
    if y.ndim != 1 or y.is_complex() or y.dtype == torch.bool:
        return False
    least, most = float(y.min()), float(y.max())
    if not y.is_floating_point() and least == 0 and most > 1:
        return True
    if least not in (0, 1) or not least + 1 < most < least + len(y) / 2:
        return False
    seen = y.unique()
    return len(seen) == most - least + 1 and bool((seen == seen.round()).all())


def _refuse_words(y: Any, what: str) -> None:
    if isinstance(y, np.ndarray):
        are_words = y.dtype.kind in "USO"
    else:
        are_words = isinstance(y, (list, tuple)) and any(isinstance(one, (str, bytes)) for one in y)
    if are_words:
        raise InputError(
            f"the {what} are no numbers",
            expected="numbers, such as -1 and 1, or a column of 0 and 1 for each class",
            got=f"words, such as {str(y[0])!r}" if len(y) else "none",
            hint="np.unique(y, return_inverse=True)[1] numbers classes, and one_hot of it makes columns",
        )


def centered(y: Float[Tensor, "n c"], *, what: str = "labels") -> Float[Tensor, "n c"]:
    """The columns without their means.

    Raises:
        InputError: nothing is left.
    """
    left = y - y.mean(0)
    if float(left.abs().max()) <= 8 * torch.finfo(y.dtype).eps * float(y.abs().max()):
        raise InputError(
            f"the {what} are constant, and centering leaves nothing",
            expected="two classes or values at least",
            got="one",
        )
    return left
