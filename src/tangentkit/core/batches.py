"""Batches: any pytree of tensors whose first axis counts the samples.

A batch is a tensor, or dicts, lists and tuples of tensors, all of one length. Leaves that are not tensors
(None, flags, strings) are constants and travel along unchanged. Data sets and loaders are batches too: all their
samples, in order.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence
from torch.utils import _pytree as pytree

from tangentkit.core.data_sets import is_data_set, number_of_samples, read_samples
from tangentkit.core.errors import InputError

Batch = Any
"""A tensor, or a dict, list or tuple of batches."""


def as_batch(data: Batch) -> Batch:
    """The data with arrays made tensors and every mapping a dict, checked to be a batch.

    All samples of a data set or loader are read; of labeled data (`tangentkit.data`) the inputs are taken.

    Raises:
        InputError: there is no tensor, the batch is empty, the first axes differ in length, or tensors are not dense.
    """
    given = _read(data)
    batch = _normalize(given)
    leaves = tensors(batch)
    if not leaves:
        raise InputError(
            "not a batch",
            expected="a tensor or a pytree of tensors",
            got=_kind(data),
            hint=_way_to_tensors(batch),
        )
    for leaf in leaves:
        _check_dense(leaf)
    lengths = {leaf.shape[0] if leaf.ndim else None for leaf in leaves}
    if None in lengths:
        raise InputError(
            "not a batch",
            expected="tensors with the samples first",
            got="a tensor of no axes",
            hint="x[None] makes a batch of one sample; pass constants by forward=lambda model, batch: ...",
        )
    if len(lengths) > 1:
        raise InputError(
            "not a batch",
            expected="one length of the first axis",
            got=f"lengths {sorted(map(str, lengths))} in {shapes(batch)}",
            hint="torch.nn.utils.rnn.pad_sequence(samples, batch_first=True), if it is a list of samples"
            if isinstance(batch, list)
            else None,
        )
    if lengths == {0}:
        raise InputError("empty batch", expected="at least one sample", got="none")
    return batch


def from_array(array: np.ndarray) -> Tensor:
    """The array as a tensor, in the same memory where torch can share it.

    It cannot share other byte orders and floats longer than 64 bits, would warn about an array that is read-only, and
    cannot walk backwards.

    Raises:
        InputError: its elements are no numbers.

    Example:
        >>> from_array(np.array([1.0, 2.0], dtype=">f4"))
        tensor([1., 2.])
    """
    kind = array.dtype
    if kind.kind not in "biufc":
        raise InputError("an array without numbers", expected="numbers", got=f"{kind} {array.shape}")
    longest = {"f": np.dtype(np.float64), "c": np.dtype(np.complex128)}.get(kind.kind, kind)
    array = np.asarray(array, dtype=longest if kind.itemsize > longest.itemsize else kind.newbyteorder("="))
    shared = array.flags.writeable and min(array.strides, default=0) >= 0
    return torch.from_numpy(array if shared else array.copy())


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

    A list is as good as a tuple: loaders make lists of samples that are tuples.

    Raises:
        InputError: with the two structures.
    """
    for other in others:
        if describe(_tupled(first)) != describe(_tupled(other)):
            raise InputError(
                "batches do not match",
                expected=describe(first),
                got=describe(other),
                hint=_way_to_match(first, other),
            )


def describe(batch: Batch) -> str:
    """The structure of a batch in words, without its length.

    Example:
        >>> describe({"x": torch.zeros(5, 2)})
        "{'x': float32 (n, 2)}"
    """
    return _in_words(batch, lambda leaf: f"({', '.join(['n', *map(str, leaf.shape[1:])])})")


def shapes(batch: Batch) -> str:
    """The tensors of a batch in words, with all their sizes.

    Example:
        >>> shapes({"x": torch.zeros(5, 2)})
        "{'x': float32 (5, 2)}"
    """
    return _in_words(batch, lambda leaf: str(tuple(leaf.shape)))


def _tupled(batch: Batch) -> Batch:
    """The batch with tuples for lists."""
    if isinstance(batch, dict):
        return {name: _tupled(part) for name, part in batch.items()}
    return tuple(map(_tupled, batch)) if type(batch) in (list, tuple) else batch


class _Words(str):
    """A text that prints as it is within lists and dicts."""

    __repr__ = str.__str__


def _in_words(batch: Batch, sizes: Callable[[Tensor], str]) -> str:
    def words(leaf: object) -> object:
        if not isinstance(leaf, Tensor):
            return leaf
        return _Words(f"{str(leaf.dtype).removeprefix('torch.')} {sizes(leaf)}")

    return str(pytree.tree_map(words, batch))


def _read(data: Any) -> Any:
    """The samples of a data set or loader, the inputs of labeled data; anything else as it is."""
    if is_data_set(data):
        return read_samples(data, range(number_of_samples(data)))
    if isinstance(data, (Tensor, Mapping, list, tuple, np.ndarray)):
        return data
    return data.inputs if hasattr(data, "inputs") and hasattr(data, "targets") else data


def _check_dense(leaf: Tensor) -> None:
    if leaf.is_nested:
        raise InputError(
            "nested inputs",
            expected="dense tensors, all samples of one length",
            got="a nested tensor",
            hint="torch.nested.to_padded_tensor(x, 0.0), and a mask of what counts",
        )
    if leaf.layout != torch.strided:
        raise InputError(
            "sparse inputs",
            expected="dense tensors",
            got=f"{leaf.layout} {tuple(leaf.shape)}",
            hint="x.to_dense()",
        )


def _kind(data: Any) -> str:
    """What a user calls it: the class, and of what."""
    name = type(data).__name__
    if isinstance(data, (list, tuple)) and data:
        return f"{name} of {type(data[0]).__name__}"
    return name


def _way_to_tensors(data: Any) -> str | None:
    """What makes tensors of data that are none."""
    leaves = pytree.tree_leaves(data)
    first = leaves[0] if leaves else None
    if isinstance(first, str):
        return 'tokenizer(sentences, padding=True, return_tensors="pt") makes a batch of sentences'
    if isinstance(first, (bool, int, float)):
        return 'torch.tensor(numbers); or tokenizer(sentences, padding=True, return_tensors="pt")'
    if hasattr(first, "to_numpy"):
        return "x.to_numpy(), the array of a data frame"
    if type(first).__module__.partition(".")[0] == "PIL":
        return (
            "torch.stack([torchvision.transforms.functional.to_tensor(image) for image in images]), "
            "as the images of training were prepared"
        )
    return None


def _way_to_match(first: Batch, other: Batch) -> str | None:
    """What makes two dicts alike: the same entries, of one length."""
    if not isinstance(first, dict) or not isinstance(other, dict):
        return None
    one_sided = [key for key in {**first, **other} if key not in first or key not in other]
    if one_sided:
        return f"leave out {', '.join(map(repr, one_sided))}, or give it in both"
    if list(first) != list(other):
        return "the entries in one order"
    if any(describe(first[key]) != describe(other[key]) for key in ("input_ids",) if key in first):
        return 'tokenizer(sentences, padding="max_length", max_length=...) gives both one length'
    return None


def _normalize(data: Batch) -> Batch:
    if isinstance(data, PackedSequence):
        raise InputError(
            "a packed sequence has no axis of samples",
            expected="padded sequences (n, t, ...) and their lengths (n,)",
            got="PackedSequence",
            hint="kernel({'x': padded, 'lengths': lengths}) with a forward= that packs them; or, one-directional and "
            "many times faster, that runs the padded ones and takes output[torch.arange(n), lengths - 1]",
        )
    if isinstance(data, np.ndarray):
        return from_array(data)
    if isinstance(data, Mapping):
        return {key: _normalize(value) for key, value in data.items()}
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*map(_normalize, data))
    if isinstance(data, (list, tuple)):
        return type(data)(map(_normalize, data))
    return data
