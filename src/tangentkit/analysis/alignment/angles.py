"""Principal angles between two subspaces."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from tangentkit.core.errors import InputError
from tangentkit.linalg.operators.checks import check_finite
from tangentkit.linalg.operators.matrices import as_tensor


def principal_angles(A: Any, B: Any) -> Float[Tensor, " r"]:
    """The principal angles between the spans of two sets of columns, ascending, in radians.

    For θ_1 <= θ_2 <= ..., cos θ_i are the singular values of Q_Aᵀ Q_B for orthonormal bases Q, and sin θ_i those of
    Q_B - Q_A Q_Aᵀ Q_B: with both, small angles and right ones keep their digits. There are as many angles as the
    smaller span has dimensions: columns that depend on others add none.

    Args:
        A: columns (d, k), or one vector (d,), not necessarily orthonormal.
        B: likewise (d, r).

    Raises:
        InputError: the columns differ in length, or all are zero.
        NumericalError: a number is not finite.

    Example:
        >>> line, plane = torch.tensor([1.0, 0.0, 1.0]), torch.eye(3)[:, :2]
        >>> torch.rad2deg(principal_angles(line, plane)).round()
        tensor([45.], dtype=torch.float64)
    """
    bases = [_columns(one, name) for one, name in ((A, "A"), (B, "B"))]
    lengths = [len(basis) for basis in bases]
    if lengths[0] != lengths[1]:
        raise InputError(
            "columns of different lengths",
            expected="A (d, k) and B (d, r) with one d",
            got=" and ".join(str(tuple(basis.shape)) for basis in bases),
            hint="vectors are columns: A.T, if they are your rows",
        )
    large, small = sorted(map(_orthonormal, bases), key=lambda basis: -basis.shape[1])
    inner = large.T @ small
    cosines, sines = torch.linalg.svdvals(inner), torch.linalg.svdvals(small - large @ inner)
    return torch.atan2(sines.flip(0), cosines)


def _orthonormal(basis: Tensor) -> Tensor:
    """An orthonormal basis of the span of columns, in float64."""
    vectors, values, _ = torch.linalg.svd(basis.double(), full_matrices=False)
    rounding = torch.finfo(basis.dtype if basis.is_floating_point() else torch.float64).eps
    return vectors[:, values > max(basis.shape) * rounding * values[0]]


def _columns(value: Any, name: str) -> Tensor:
    basis = as_tensor(value, name)
    if basis.ndim not in (1, 2) or basis.numel() == 0:
        raise InputError(f"bad {name}", expected="columns (d, k) or a vector (d,)", got=tuple(basis.shape))
    check_finite(basis, name)
    if not basis.any():
        raise InputError(f"the span of {name} is nothing but zero", expected="a direction", got="zeros")
    return basis if basis.ndim == 2 else basis[:, None]
