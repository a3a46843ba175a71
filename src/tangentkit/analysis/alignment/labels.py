"""Labels and other functions on n samples, as columns."""

import warnings
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from tangentkit.core.errors import InputError
from tangentkit.linalg.operators.checks import check_finite
from tangentkit.linalg.operators.matrices import as_tensor


class ClassNumbersWarning(UserWarning):
    """Numbers of classes are taken as they are, as values of one function."""


def as_columns(y: Any, n: int, *, what: str = "labels") -> Float[Tensor, "n c"]:
    """Functions on n samples as columns, one or several.

    A warning meets whole numbers 0, 1, 2, ...: they look like those of classes, of which the third is not twice the
    second.

    Raises:
        InputError: they are not of shape (n,) or (n, c), or all zero.
        NumericalError: a number is not finite.

    Example:
        >>> as_columns(torch.tensor([1, -1, 1]), 3).shape
        torch.Size([3, 1])
    """
    y = as_tensor(y, what)
    if y.ndim not in (1, 2) or y.shape[0] != n or y.numel() == 0:
        raise InputError(f"bad {what}", expected=f"shape ({n},) or ({n}, c)", got=tuple(y.shape))
    if not y.is_floating_point():
        if y.ndim == 1 and y.min() == 0 and y.max() > 1:
            text = f"{what} 0 to {int(y.max())} are taken as numbers; classes are a column each, one_hot(y)"
            warnings.warn(text, ClassNumbersWarning, stacklevel=3)
        y = y.double()
    check_finite(y, what)
    if not y.any():
        raise InputError(
            f"the {what} are zero",
            expected="one that is not, of two classes or values at least",
            got=f"0 for all {n} samples",
        )
    return y if y.ndim == 2 else y[:, None]


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
