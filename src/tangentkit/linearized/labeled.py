"""Labeled samples of a training run: in memory, or read from a data set that does not fit in it."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

from tangentkit.core.batches import Batch, as_batch, batch_size, take
from tangentkit.core.errors import InputError
from tangentkit.core.files.fingerprints import fingerprint

AT_ONCE = 256
"""Samples of one pass over a set."""
Index = slice | Tensor
"""Some samples: a range, or their numbers."""


class Labeled(ABC):
    """Inputs and targets of n samples, taken in any order."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def take(self, index: Index) -> tuple[Batch, Tensor]:
        """Inputs and targets of some samples."""

    def whole(self) -> tuple[Batch, Tensor]:
        """All of them at once, cut from any graph, and no tensors of inference mode."""

        def plain(leaf: object) -> object:
            if not isinstance(leaf, Tensor):
                return leaf
            return leaf.clone() if leaf.is_inference() else leaf.detach()

        with torch.inference_mode(False):
            return pytree.tree_map(plain, self.take(slice(None)))

    def __iter__(self) -> Iterator[tuple[Batch, Tensor]]:
        """All of them, in order, a piece at a time."""
        for start in range(0, len(self), AT_ONCE):
            yield self.take(slice(start, min(start + AT_ONCE, len(self))))

    @cached_property
    def fingerprint(self) -> str:
        """Of all that they are, the same wherever they are kept."""
        return fingerprint([fingerprint(piece) for piece in self])

    @cached_property
    def middle(self) -> float:
        """The middle between the least and the largest target."""
        ends = [float(end) for _, targets in self for end in (targets.min(), targets.max())]
        return (min(ends) + max(ends)) / 2


class InMemory(Labeled):
    """A batch and its targets.

    Args:
        x: inputs.
        y: as many targets.

    Raises:
        InputError: targets are no numbers, or not as many as inputs.
    """

    def __init__(self, x: Batch, y: Any):
        self.x, self.y = as_batch(x), _as_targets(y)
        n = batch_size(self.x)
        if self.y.ndim == 0 or len(self.y) != n:
            raise InputError(
                "inputs and targets differ in number", expected=f"{n} targets", got=tuple(self.y.shape)
            )

    def __len__(self) -> int:
        return len(self.y)

    def take(self, index: Index) -> tuple[Batch, Tensor]:
        """Takes samples by their numbers, from memory."""
        return take(self.x, index), self.y[index]


class Read(Labeled):
    """The pairs (input, target) of a data set, read when they are wanted.

    Args:
        pairs: a map-style torch `Dataset`; by the same index it must give the same pair.
    """

    def __init__(self, pairs: Dataset):
        if isinstance(pairs, IterableDataset) or not hasattr(pairs, "__len__"):
            raise InputError(
                "samples cannot be taken in any order",
                expected="a map-style Dataset with a length",
                got=type(pairs).__name__,
            )
        self.pairs, self.n = pairs, len(pairs)  # pyright: ignore[reportArgumentType]
        if not self.n:
            raise InputError("empty data set", expected="at least one sample", got="none")
        if not (isinstance(first := pairs[0], (tuple, list)) and len(first) == 2):
            raise InputError(
                "not labeled samples", expected="pairs (input, target)", got=type(first).__name__
            )

    def __len__(self) -> int:
        return self.n

    def take(self, index: Index) -> tuple[Batch, Tensor]:
        """Read one by one, or all at once where the data set has `__getitems__`, and collated."""
        numbers = list(range(self.n)[index]) if isinstance(index, slice) else index.tolist()
        many = getattr(self.pairs, "__getitems__", None)
        inputs, targets = default_collate(many(numbers) if many else [self.pairs[i] for i in numbers])
        return inputs, targets


def _as_targets(y: Any) -> Tensor:
    """Targets as a tensor.

    Raises:
        InputError: they are no numbers, such as names of classes.
    """
    try:
        return torch.as_tensor(y)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            "the targets are no numbers",
            expected="numbers, or classes numbered from 0",
            got=str(error)[:100],
            hint="names of classes by torch.as_tensor(np.unique(y, return_inverse=True)[1])",
        ) from error


def labeled(x: Any, y: Any) -> Labeled:
    """The labeled samples that inputs and targets are; where y is None, those of a data set of pairs or labeled data.

    Raises:
        InputError: they do not go together.

    Example:
        >>> from torch.utils.data import TensorDataset
        >>> x, y = torch.arange(6.0).reshape(3, 2), torch.arange(3)
        >>> labeled(x, y).fingerprint == labeled(TensorDataset(x, y), None).fingerprint
        True
    """
    if isinstance(x, Dataset):
        if y is not None:
            raise InputError("targets beside a data set", expected="y=None, since the data set has pairs")
        return Read(x)
    if y is None and hasattr(x, "inputs") and hasattr(x, "targets"):
        return InMemory(x.inputs, x.targets)
    if y is None:
        raise InputError(
            "no targets",
            expected="y, or a Dataset of pairs (input, target)",
            got=type(x).__name__,
            hint="loader.dataset: batches and their order follow from the settings and the key"
            if isinstance(x, DataLoader)
            else None,
        )
    return InMemory(x, y)
