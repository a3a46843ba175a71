"""Samples by ranges: from memory, or from a data set that does not fit in it."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from tangentkit.compute.kernel import Kernel
from tangentkit.core.batches import Batch, as_batch, batch_size, concatenate, describe, take, tensors
from tangentkit.core.data_sets import is_data_set, number_of_samples, read_samples
from tangentkit.core.errors import DataError, InputError
from tangentkit.linalg.operators.spans import spans

SAMPLES_AT_ONCE = 1024
"""Samples that are read at a time when all are looked at."""
HASH_BYTES = 16


@runtime_checkable
class SampleSource(Protocol):
    """Samples in a fixed order, read by ranges."""

    lazy: bool
    """Whether samples are read anew at each call, so that they could have changed."""

    def __len__(self) -> int:
        """The number of samples."""
        ...

    def read(self, span: slice) -> Batch:
        """The samples from span.start to span.stop."""
        ...

    def hashes(self) -> list[bytes]:
        """One hash for each sample."""
        ...


@dataclass(frozen=True, eq=False)
class InMemory:
    """The samples of a batch."""

    batch: Batch
    lazy = False

    def __len__(self) -> int:
        return batch_size(self.batch)

    def read(self, span: slice) -> Batch:
        """A view of some samples."""
        return take(self.batch, span)

    def hashes(self) -> list[bytes]:
        """One hash for each sample."""
        return list(_hashes(self))


class Samples:
    """A data set read by ranges, for data that do not fit in memory.

    It must not change while it is in use, and give the same samples at each reading: no random augmentation. The
    hashes of its samples are taken in one pass and remembered.

    Args:
        dataset: a map-style `Dataset` of torch or of Hugging Face (read one by one, or by `__getitems__`, and
            collated; lists of numbers are tensors), a `DataLoader` of one that does not shuffle, or anything with a
            length whose slices `dataset[a:b]` are batches: memory-mapped, zarr or HDF5 arrays.
        inputs: batch -> the part of it that is the model's input, such as `lambda batch: batch[0]`; sentences
            become numbers here, all padded to one length.

    Raises:
        InputError: the data set has no length or no samples.

    Example:
        >>> from torch.utils.data import TensorDataset
        >>> labeled = TensorDataset(torch.randn(5, 3), torch.arange(5))
        >>> Samples(labeled, inputs=lambda batch: batch[0]).read(slice(0, 2)).shape
        torch.Size([2, 3])
    """

    lazy = True

    def __init__(self, dataset: Any, *, inputs: Callable[[Any], Batch] | None = None):
        if is_data_set(dataset):
            self._length = number_of_samples(dataset)
        elif hasattr(dataset, "__getitem__"):
            # Arrays of zarr have a shape, but no length.
            self._length = len(dataset) if hasattr(dataset, "__len__") else int(dataset.shape[0])
        else:
            raise InputError(
                "samples cannot be read by ranges",
                expected="a length, and samples by index",
                got=type(dataset).__name__,
            )
        if self._length < 1:
            raise InputError("empty data set", expected="at least one sample", got="none")
        self.dataset, self.inputs = dataset, inputs
        self._remembered: list[bytes] | None = None

    def __len__(self) -> int:
        return self._length

    def __getstate__(self) -> dict:
        # Workers do not need the hashes of all samples.
        return vars(self) | {"_remembered": None}

    def read(self, span: slice) -> Batch:
        """The samples of a range, as one batch.

        Raises:
            DataError: the data set gives another number of samples.
            InputError: samples of different forms cannot be one batch.
        """
        rows = list(range(span.start, span.stop))
        raw = read_samples(self.dataset, rows) if is_data_set(self.dataset) else self.dataset[span]
        batch = as_batch(raw if self.inputs is None else self.inputs(raw))
        if batch_size(batch) != len(rows):
            raise DataError(
                "bad range of samples", expected=f"{len(rows)} samples", got=f"{batch_size(batch)}"
            )
        return batch

    def hashes(self) -> list[bytes]:
        """One hash for each sample, in one pass over the data the first time."""
        if self._remembered is None:
            self._remembered = list(_hashes(self))
        return self._remembered


def as_source(x: Any) -> SampleSource:
    """The source that a batch or a data set is.

    Raises:
        InputError: it is neither.

    Example:
        >>> len(as_source(torch.zeros(4, 3)))
        4
    """
    if isinstance(x, (InMemory, Samples)):
        return x
    if is_data_set(x):
        return Samples(x)
    if hasattr(x, "inputs") and hasattr(x, "targets"):
        return InMemory(as_batch(x))
    if isinstance(x, (Tensor, Mapping, list, tuple)) or (
        isinstance(x, np.ndarray) and not isinstance(x, np.memmap)
    ):
        return InMemory(as_batch(x))
    sized = hasattr(x, "__len__") or hasattr(x, "shape")
    if sized and hasattr(x, "__getitem__") and not isinstance(x, (str, bytes)):
        return Samples(x)
    raise InputError(
        "bad samples",
        expected="a tensor, a pytree of tensors, or a data set with a length and samples by index",
        got=type(x).__name__,
    )


def sources_of(kernel: Kernel, x: Any, y: Any = None) -> dict[str, SampleSource]:
    """The samples of both sides, "x" and unless it is None "y", as the kernel takes them.

    Of a data set of pairs (input, target) the inputs are taken where the kernel refuses the pairs.
    """
    given = {"x": x} | ({} if y is None else {"y": y})
    return {side: _as_taken(kernel, as_source(data)) for side, data in given.items()}


def _as_taken(kernel: Kernel, source: SampleSource) -> SampleSource:
    if not isinstance(source, Samples) or source.inputs is not None:
        return source
    first = source.read(slice(0, 1))
    if not isinstance(first, (tuple, list)) or len(first) != 2:
        return source
    try:
        kernel.diag(first)
    except Exception as refusal:
        inputs = Samples(source.dataset, inputs=first_part)
        try:
            kernel.diag(inputs.read(slice(0, 1)))
        except Exception:
            raise refusal from None
        return inputs
    return source


def first_part(batch: Any) -> Any:
    """The inputs of pairs (input, target)."""
    return batch[0]


def identify_samples(source: SampleSource, hashes: list[bytes]) -> dict[str, Any]:
    """What the samples are: their number and form, a digest of their content, and one of their order.

    Equal for equal samples, wherever they come from and in whatever ranges they are read.
    """
    # A sum does not know the order of its terms.
    total = sum(int.from_bytes(one, "little") for one in hashes) % 2 ** (8 * HASH_BYTES)
    return {
        "samples": len(source),
        "form": describe(source.read(slice(0, 1))),
        "content": total.to_bytes(HASH_BYTES, "little").hex(),
        "order": _joined(hashes),
    }


def range_digests(hashes: list[bytes], side: int) -> list[str]:
    """A digest for each range of `side` samples."""
    return [_joined(hashes[span]) for span in spans(len(hashes), side)]


def check_range(batch: Batch, digest: str, span: slice) -> None:
    """Refuses samples that are not those that were there when the matrix was begun.

    Raises:
        DataError: with the range.
    """
    if _joined(list(sample_hashes(batch))) != digest:
        raise DataError(
            f"samples {span.start} to {span.stop - 1} have changed since they were first read",
            expected="the same samples at each reading, on every machine",
            got="others",
            hint="no random augmentation; nothing that writes to them meanwhile; the same files for every worker",
        )


def read_few(source: SampleSource, numbers: list[int], hashes: list[bytes]) -> Batch:
    """Single samples as one batch, checked to be those of these hashes.

    Raises:
        DataError: one of them is not.
    """
    spans = [slice(number, number + 1) for number in numbers]
    samples = [source.read(span) for span in spans]
    for sample, span in zip(samples, spans, strict=True):
        check_range(sample, _joined(hashes[span]), span)
    return concatenate(samples)


def sample_hashes(batch: Batch) -> Iterator[bytes]:
    """The hash of each sample: of the bytes of all its tensors."""
    leaves = [leaf.detach().cpu().contiguous().view(len(leaf), leaf[0].numel()) for leaf in tensors(batch)]
    rows = [leaf.view(torch.uint8).numpy() for leaf in leaves]
    for i in range(batch_size(batch)):
        digest = hashlib.sha256()
        for row in rows:
            digest.update(row[i].data)
        yield digest.digest()[:HASH_BYTES]


def _hashes(source: SampleSource) -> Iterator[bytes]:
    for span in spans(len(source), SAMPLES_AT_ONCE):
        yield from sample_hashes(source.read(span))


def _joined(hashes: list[bytes]) -> str:
    return hashlib.sha256(b"".join(hashes)).hexdigest()
