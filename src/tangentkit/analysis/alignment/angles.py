"""Principal angles between two subspaces."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from tangentkit.core.errors import InputError
from tangentkit.linalg.checks import check_finite
from tangentkit.linalg.matrices import as_tensor


def principal_angles(A: Any, B: Any) -> Float[Tensor, " r"]:
    """The principal angles θ_1 <= θ_2 <= ... between the spans of two sets of columns, in radians.

    cos θ_i is the i-th singular value of Q_Aᵀ Q_B for orthonormal bases Q; small angles come from sines, which keep
    their digits. There are as many angles as the smaller span has dimensions: columns that depend on others add none.

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
    from scipy.linalg import subspace_angles

    bases = [_columns(one, name) for one, name in ((A, "A"), (B, "B"))]
    lengths = [len(basis) for basis in bases]
    if lengths[0] != lengths[1]:
        raise InputError(
            "columns of different lengths",
            expected="A (d, k) and B (d, r) with one d",
            got=" and ".join(str(tuple(basis.shape)) for basis in bases),
            hint="vectors are columns: A.T, if they are your rows",
        )
    found = subspace_angles(*(basis.double().cpu().numpy() for basis in bases))
    return torch.from_numpy(found[::-1].copy()).to(bases[0].device)


def _columns(value: Any, name: str) -> Tensor:
    basis = as_tensor(value, name)
    if basis.ndim not in (1, 2) or basis.numel() == 0:
        raise InputError(f"bad {name}", expected="columns (d, k) or a vector (d,)", got=tuple(basis.shape))
    check_finite(basis, name)
    if not basis.any():
        raise InputError(f"the span of {name} is nothing but zero", expected="a direction", got="zeros")
    return basis if basis.ndim == 2 else basis[:, None]
