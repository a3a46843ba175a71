"""Batches: any pytree of tensors whose first axis counts the samples.

A batch is a tensor, or dicts, lists and tuples of tensors, all of one length. Leaves that are not tensors
(None, flags, strings) are constants and travel along unchanged.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader, Dataset

from tangentkit.core.errors import InputError

Batch = Any
"""A tensor, or a dict, list or tuple of batches."""


def as_batch(data: Batch) -> Batch:
    """The data with arrays made tensors and every mapping a dict, checked to be a batch.

    Raises:
        InputError: there is no tensor, the batch is empty, or the first axes differ in length.
    """
    batch = _normalize(data)
    lengths = {leaf.shape[0] if leaf.ndim else None for leaf in tensors(batch)}
    if not lengths:
        raise InputError(
            "not a batch",
            expected="a tensor or a pytree of tensors",
            got=type(data).__name__,
            hint="tk.gram(kernel, dataset) reads a data set piece by piece; of a loader take its `.dataset`"
            if isinstance(data, Dataset | DataLoader)
            else None,
        )
    if None in lengths:
        raise InputError(
            "not a batch",
            expected="tensors with the samples first",
            got="a tensor of no axes",
            hint="x[None] makes a batch of one sample; pass constants by forward=lambda model, batch: ...",
        )
    if len(lengths) > 1:
        raise InputError(
            "not a batch", expected="one length of the first axis", got=f"lengths {sorted(map(str, lengths))}"
        )
    if lengths == {0}:
        raise InputError("empty batch", expected="at least one sample", got="none")
    return batch


def tensors(batch: Batch) -> list[Tensor]:
    """The tensors of a batch, in a fixed order."""
    return [leaf for leaf in pytree.tree_leaves(batch) if isinstance(leaf, Tensor)]


def batch_size(batch: Batch) -> int:
    """The number of samples.

    Example:
        >>> batch_size({"ids": torch.zeros(4, 7), "mask": torch.ones(4, 7), "flag": True})
        4
    """
    return tensors(batch)[0].shape[0]


def take(batch: Batch, index: slice | Tensor | Sequence[int]) -> Batch:
    """The samples of a batch that a slice or a list of indices names."""
    return pytree.tree_map(lambda leaf: leaf[index] if isinstance(leaf, Tensor) else leaf, batch)


def split(batch: Batch, size: int) -> Iterator[Batch]:
    """Consecutive pieces of at most `size` samples."""
    for start in range(0, batch_size(batch), size):
        yield take(batch, slice(start, start + size))


def move(batch: Batch, device: torch.device | str) -> Batch:
    """The batch on a device; dtypes stay as they are."""
    return pytree.tree_map(lambda leaf: leaf.to(device) if isinstance(leaf, Tensor) else leaf, batch)


def copied(batch: Batch) -> Batch:
    """The batch in memory of its own, outside of inference mode."""
    with torch.inference_mode(False):
        return pytree.tree_map(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, batch)


def concatenate(batches: Sequence[Batch]) -> Batch:
    """One batch from several of the same structure.

    Raises:
        InputError: the structures differ.
    """
    check_same_structure(*batches)
    leaves = zip(*(pytree.tree_leaves(batch) for batch in batches), strict=True)
    joined = [torch.cat(parts) if isinstance(parts[0], Tensor) else parts[0] for parts in leaves]
    return pytree.tree_unflatten(joined, pytree.tree_structure(batches[0]))


def check_same_structure(first: Batch, *others: Batch) -> None:
    """Refuses batches whose pytrees, sample shapes or dtypes differ.

    Raises:
        InputError: with the two structures.
    """
    for other in others:
        if describe(first) != describe(other):
            raise InputError("batches do not match", expected=describe(first), got=describe(other))


def describe(batch: Batch) -> str:
    """The structure of a batch in words, without its length.

    Example:
        >>> describe({"x": torch.zeros(5, 2)})
        "{'x': float32 (n, 2)}"
    """

    class Words(str):
        __repr__ = str.__str__

    def words(leaf: object) -> object:
        if not isinstance(leaf, Tensor):
            return leaf
        return Words(
            f"{str(leaf.dtype).removeprefix('torch.')} ({', '.join(['n', *map(str, leaf.shape[1:])])})"
        )

    return str(pytree.tree_map(words, batch))


def _normalize(data: Batch) -> Batch:
    if isinstance(data, np.ndarray):
        # torch shares memory with the array: it would warn about one that is read-only, and cannot walk backwards.
        shared = data.flags.writeable and min(data.strides, default=0) >= 0
        return torch.from_numpy(data if shared else data.copy())
    if isinstance(data, Mapping):
        return {key: _normalize(value) for key, value in data.items()}
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*map(_normalize, data))
    if isinstance(data, (list, tuple)):
        return type(data)(map(_normalize, data))
    return data
