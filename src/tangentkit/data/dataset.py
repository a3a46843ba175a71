"""A data set in memory: inputs, targets, and where they come from."""

import operator
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tangentkit.core.errors import InputError, UnknownNameError
from tangentkit.core.files.fingerprints import fingerprint
from tangentkit.core.seeds import Key
from tangentkit.core.text import counted


@dataclass(frozen=True, eq=False, repr=False)
class Data:
    """Samples with their targets and their papers; never changed in place.

    Example:
        >>> data = Data(torch.rand(4, 1, 8, 8), torch.tensor([0, 1, 0, 1]), "toy", "train", ("cat", "dog"))
        >>> data
        Data(toy/train: 4 samples, inputs float32 (1, 8, 8), 2 classes)
        >>> data.only(["dog"]).targets
        tensor([0, 0])
    """

    inputs: Any
    """Images (n, channels, height, width) in [0, 1], points (n, d), or a list of n sentences."""
    targets: Tensor
    """Labels 0, 1, ... (n,), int64; for regression values (n,) of a floating dtype."""
    name: str
    split: str
    classes: tuple[str, ...] = ()
    """The name of each label; empty for regression."""
    source: str = ""
    licence: str = ""
    note: str = ""
    """What one must know to use it honestly, and what was done to it."""
    weights: Tensor | None = None
    """Quadrature weights (n,) where the samples are the nodes of an integral."""

    def __post_init__(self) -> None:
        if len(self.inputs) != len(self.targets):
            raise InputError(
                "inputs do not match", expected=f"{len(self.targets)} inputs", got=len(self.inputs)
            )

    def __len__(self) -> int:
        return len(self.targets)

    def __repr__(self) -> str:
        if isinstance(self.inputs, Tensor):
            kind = f"{str(self.inputs.dtype).removeprefix('torch.')} {tuple(self.inputs.shape[1:])}"
        else:
            kind = "sentences"
        goal = counted(len(self.classes), "class") if self.classes else "regression"
        return f"Data({self.name}/{self.split}: {counted(len(self), 'sample')}, inputs {kind}, {goal})"

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of inputs, targets and weights, in their order."""
        return fingerprint([self.inputs, self.targets, self.weights])

    @property
    def counts(self) -> dict[str, int]:
        """The number of samples of each class."""
        numbers = (
            torch.bincount(self.targets, minlength=len(self.classes)) if self.classes else torch.empty(0)
        )
        return dict(zip(self.classes, numbers.tolist(), strict=True))

    def take(self, index: Sequence[int] | Int[Tensor, " m"]) -> "Data":
        """The samples that a list of indices names, in its order.

        Raises:
            InputError: the samples are nodes of a quadrature, whose weights fit the whole set only.
        """
        if self.weights is not None:
            raise InputError(f"{self.name} has quadrature weights: no part of it is a set of its own")
        rows = torch.as_tensor(index, dtype=torch.int64)
        is_tensor = isinstance(self.inputs, Tensor)
        inputs = self.inputs[rows] if is_tensor else [self.inputs[row] for row in rows.tolist()]
        return replace(self, inputs=inputs, targets=self.targets[rows])

    def only(self, classes: Sequence[int | str]) -> "Data":
        """The samples of some classes, labeled 0, 1, ... in the order given.

        Raises:
            InputError: the set has no classes, none was given, one came twice, or a number is out of range.
            UnknownNameError: there is no class of that name.
        """
        if not self.classes:
            raise InputError(f"{self.name} has no classes to choose from: its targets are values")
        labels = [] if isinstance(classes, str) else [self._label(one) for one in classes]
        if not labels or len(set(labels)) < len(labels):
            raise InputError("bad classes", expected="a list of classes, each once", got=repr(classes))
        relabel = torch.full((len(self.classes),), -1, device=self.targets.device)
        relabel[labels] = torch.arange(len(labels), device=relabel.device)
        chosen = self.take(torch.nonzero(relabel[self.targets] >= 0).flatten())
        return replace(
            chosen, targets=relabel[chosen.targets], classes=tuple(self.classes[label] for label in labels)
        )

    def partition(self, n: int, *, key: Key) -> tuple["Data", "Data"]:
        """Random n samples, of each class the same number as far as there are as many; and the others.

        Both keep the order of the set. With the same key, fewer samples are a part of more samples.

        Raises:
            InputError: n is not between 1 and the number of samples.
        """
        chosen = self._chosen(n, key)
        first, rest = (torch.from_numpy(np.flatnonzero(mask)) for mask in (chosen, ~chosen))
        return self.take(first), self.take(rest)

    def some(self, n: int, *, key: Key) -> "Data":
        """The first part of `partition` alone: of a large set the others take long to copy.

        Raises:
            InputError: n is not between 1 and the number of samples.
        """
        return self.take(torch.from_numpy(np.flatnonzero(self._chosen(n, key))))

    def _chosen(self, n: int, key: Key) -> Bool[np.ndarray, " n"]:
        n = _sample_count(n, len(self), self.name)
        names = self.classes or ("",)
        labels = self.targets.numpy(force=True) if self.classes else np.zeros(len(self), int)
        members = [np.flatnonzero(labels == label) for label in range(len(names))]
        quotas = balanced_quotas([len(rows) for rows in members], n)
        chosen = np.zeros(len(self), bool)
        for name, rows, quota in zip(names, members, quotas, strict=True):
            chosen[key.fold("partition", name).numpy().permutation(rows)[:quota]] = True
        return chosen

    def map(self, function: Callable[[Any], Any], *, note: str) -> "Data":
        """The set with its inputs mapped; the note says how."""
        return replace(self, inputs=function(self.inputs), note="; ".join(filter(None, (self.note, note))))

    def moments(self) -> tuple[Float[Tensor, " channels"], Float[Tensor, " channels"]]:
        """Mean and standard deviation of each channel over all samples and pixels."""
        others = [axis for axis in range(self.inputs.ndim) if axis != 1]
        std, mean = torch.std_mean(self.inputs, dim=others, correction=0)
        return mean, std

    def standardized(self, mean: Any, std: Any) -> "Data":
        """The set with inputs (x - mean) / std, both one number or one for each channel.

        Test data take the moments of the training data: `test.standardized(*train.moments())`.

        Raises:
            InputError: a standard deviation is not positive.
        """
        if not (torch.as_tensor(std) > 0).all():
            raise InputError("bad standard deviation", expected="positive numbers", got=std)
        trailing = (1,) * (self.inputs.ndim - 2)
        mean, std = (
            torch.as_tensor(value, dtype=self.inputs.dtype, device=self.inputs.device).reshape(-1, *trailing)
            for value in (mean, std)
        )
        return self.map(lambda inputs: (inputs - mean) / std, note="standardized by channel")

    def _label(self, wanted: int | str) -> int:
        if isinstance(wanted, str):
            if wanted not in self.classes:
                raise UnknownNameError(f"class of {self.name}", wanted, self.classes)
            return self.classes.index(wanted)
        label = operator.index(wanted)
        if not 0 <= label < len(self.classes):
            raise InputError(f"bad class of {self.name}", expected=f"0..{len(self.classes) - 1}", got=label)
        return label


def balanced_quotas(counts: Sequence[int], total: int) -> list[int]:
    """How many of each class make a total, as equal as the counts allow; leftovers go to the first classes.

    quota_c = min(count_c, level) with the largest level that does not exceed the total.

    Example:
        >>> balanced_quotas([10, 2, 10], 9)
        [4, 2, 3]
    """

    def filled(level: int) -> int:
        return sum(min(count, level) for count in counts)

    level = bisect_right(range(max(counts) + 1), total, key=filled) - 1
    quotas = [min(count, level) for count in counts]
    left = total - sum(quotas)
    for label, count in enumerate(counts):
        if left and count > level:
            quotas[label] += 1
            left -= 1
    return quotas


def _sample_count(n: int, most: int, name: str) -> int:
    try:
        count = -1 if isinstance(n, bool) else operator.index(n)
    except TypeError:
        count = -1
    if not 1 <= count <= most:
        raise InputError(f"bad number of samples of {name}", expected=f"an integer from 1 to {most:,}", got=n)
    return count
