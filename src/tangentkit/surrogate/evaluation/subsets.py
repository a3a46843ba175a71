"""Subsets of the training samples, on which networks are trained again."""

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from tangentkit.core.errors import InputError
from tangentkit.core.seeds import Key


def random_subsets(m: int, number: int, *, share: float = 0.5, seed: int = 0) -> Bool[Tensor, "s m"]:
    """Random subsets of m training samples, all of the same size, as masks: True is in the subset.

    Args:
        m: how many training samples there are.
        number: of subsets.
        share: of the training samples in each.
        seed: subset i is the same whatever the number.

    Raises:
        InputError: a subset would be empty, or all subsets the same.

    Example:
        >>> random_subsets(10, 3).sum(1)
        tensor([5, 5, 5])
    """
    size = round(share * m)
    if not 0 < size < m:
        raise InputError(
            "bad share of the training samples",
            expected=f"some and not all of {m}",
            got=f"{share}, {size} samples",
        )
    return _masks(m, number, size, Key(seed).fold("subset"))


def random_absences(m: int, number: int, *, k: int = 1, seed: int = 0) -> Bool[Tensor, "s m"]:
    """All but k random training samples, as masks: leave-k-out.

    Example:
        >>> (~random_absences(10, 3, k=2)).sum(1)
        tensor([2, 2, 2])
    """
    if not 0 < k < m:
        raise InputError("bad number of samples to leave out", expected=f"1 to {m - 1}", got=k)
    return _masks(m, number, m - k, Key(seed).fold("absence"))


def _masks(m: int, number: int, size: int, key: Key) -> Bool[Tensor, "s m"]:
    if number < 1:
        raise InputError("bad number of subsets", expected="at least 1", got=number)
    masks = np.zeros((number, m), dtype=bool)
    for i in range(number):
        masks[i, key.fold(i).numpy().permutation(m)[:size]] = True
    return torch.from_numpy(masks)
