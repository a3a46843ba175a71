"""Data sets and loaders: their samples by number, as one batch."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader, Dataset, IterableDataset, SequentialSampler, default_collate

from tangentkit.core.errors import InputError


def is_data_set(data: Any) -> bool:
    """Whether it is a data set of torch or of Hugging Face, or a loader of one."""
    return isinstance(data, (Dataset, DataLoader)) or hasattr(type(data), "__getitems__")


def number_of_samples(data: Any) -> int:
    """The number of samples of a data set, or of a loader's.

    Raises:
        InputError: they cannot be had by number, there are none, or a loader has an order of its own.
    """
    dataset: Any = data.dataset if isinstance(data, DataLoader) else data
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        raise InputError(
            "samples cannot be read by ranges",
            expected="a map-style data set, with a length and samples by index",
            got=type(dataset).__name__,
        )
    if isinstance(data, DataLoader):
        _check_order(data, len(dataset))
    if not len(dataset):
        raise InputError("empty data set", expected="at least one sample", got="none")
    return len(dataset)


def read_samples(data: Any, numbers: Sequence[int]) -> Any:
    """Some samples as one batch, by the loader's `collate_fn` if it has one of its own.

    Lists of numbers in a sample become tensors.

    Raises:
        InputError: samples of different forms cannot be one batch.

    Example:
        >>> from torch.utils.data import TensorDataset
        >>> read_samples(TensorDataset(torch.arange(6).reshape(3, 2)), [2, 0])
        [tensor([[4, 5],
                [0, 1]])]
    """
    loads = isinstance(data, DataLoader)
    dataset, collate = (data.dataset, data.collate_fn) if loads else (data, default_collate)
    many = getattr(dataset, "__getitems__", None)
    samples = many(list(numbers)) if many else [dataset[i] for i in numbers]
    if collate is default_collate:
        samples = [pytree.tree_map(_as_tensor, sample, is_leaf=_is_numbers) for sample in samples]
    try:
        return collate(samples)
    except (RuntimeError, TypeError, KeyError, ValueError) as error:
        raise InputError(
            f"samples {numbers[0]} to {numbers[-1]} cannot be one batch",
            expected="samples of one form: the same parts, of the same shapes and dtypes",
            got=str(error).strip().partition("\n")[0],
            hint="pad all samples of the data set to one length",
        ) from error


def _check_order(loader: DataLoader, n: int) -> None:
    """Refuses loaders whose samples are not those of the data set in their order: no row would be known again."""
    if loader.batch_sampler is None or loader.batch_size is None:
        reason = "batches of its own making"
    elif not isinstance(loader.sampler, SequentialSampler):
        reason = f"an order of its own ({type(loader.sampler).__name__})"
    elif loader.drop_last and n % loader.batch_size:
        reason = "drop_last"
    else:
        return
    raise InputError(
        "the samples of the loader are not those of its data set in their order",
        expected="DataLoader(dataset, shuffle=False)",
        got=reason,
        hint="loader.dataset",
    )


def _is_numbers(value: Any) -> bool:
    if not isinstance(value, list) or not value or isinstance(value[0], (Tensor, np.ndarray)):
        return False
    try:
        return np.asarray(value).dtype.kind in "biuf"
    except ValueError:  # lists of several lengths
        return False


def _as_tensor(value: Any) -> Any:
    return torch.tensor(value) if isinstance(value, list) else value
