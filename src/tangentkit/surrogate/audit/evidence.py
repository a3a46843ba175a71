"""What an audit looks at: every sample's features, inputs and hash, in one pass over the data."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tangentkit.compute.kernel import Kernel, NormalizedKernel
from tangentkit.compute.sources import Samples, as_source, sample_hashes
from tangentkit.compute.terms import HasFeatures
from tangentkit.core.batches import Batch, batch_size, tensors
from tangentkit.core.data_sets import is_data_set
from tangentkit.core.errors import InputError, NumericalError
from tangentkit.core.memory import Budget
from tangentkit.core.model.functions import ModelFunction
from tangentkit.core.progress import Progress, counted_off
from tangentkit.core.seeds import Key
from tangentkit.linalg.operators.spans import spans
from tangentkit.surrogate.network import class_logits

AT_ONCE = 1024
"""Samples that are read at a time, at most."""
WIDTH = 1024
"""Numbers of an input that are compared: longer ones are projected to so many at random."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """The samples of an audit as it sees them."""

    features: Float[Tensor, "n d"]
    """Of the kernel, of length 1."""
    inputs: Float[Tensor, "n w"] | None
    """The numbers of the samples themselves, projected where they are many; None for whole numbers."""
    rows: bool
    """Whether samples are rows of numbers, of which multiples differ; a picture that is only darker is a copy."""
    hashes: tuple[bytes, ...]
    labels: Int[np.ndarray, " n"] | None
    """0, 1, ...; None for samples without labels."""
    classes: tuple[str, ...]
    network_accuracy: float | None = None
    """The share of samples to which the network gives their label; None where outputs and labels are not matched."""

    def __len__(self) -> int:
        return len(self.hashes)


def gather(
    kernel: Kernel, network: ModelFunction, data: Any, *, seed: int, budget: Budget, progress: bool | Progress
) -> Evidence:
    """Reads all samples once.

    Raises:
        InputError: the kernel has no features, or labels do not fit.
        NumericalError: a feature is not finite.
    """
    base = kernel.kernel if isinstance(kernel, NormalizedKernel) else kernel
    if not isinstance(base, HasFeatures):
        raise InputError(
            "an audit needs the features of a kernel",
            expected="ConjugateKernel(model) or SketchedTangentKernel(model, dim)",
            got=repr(kernel),
        )
    source, labels, names = labeled_samples(data)
    kept: dict[str, list] = {"features": [], "inputs": [], "hashes": [], "labels": [], "logits": []}
    shorten = Shortening(Key(seed).fold("inputs"))
    first = source.read(slice(0, 1))
    size = sum(leaf.nbytes for leaf in tensors(first))
    side = budget.rows(size, copies=8, most=AT_ONCE)
    n = len(source)
    with counted_off(progress, "reading samples", -(-n // side)) as advance:
        for span in spans(n, side):
            x, y = _parts(source.read(span), paired=labels is PAIRED)
            features = _finite(base.features(x).detach().cpu(), span, "features")
            kept["features"].append(torch.nn.functional.normalize(features, dim=1))
            with torch.no_grad():
                kept["logits"].append(class_logits(network(network.params, x).detach().cpu()))
            kept["hashes"].extend(sample_hashes(x))
            if (short := shorten(x)) is not None:
                kept["inputs"].append(_finite(short, span, "inputs"))
            if y is not None:
                kept["labels"].append(_numbers(y))
            advance()
    given = np.concatenate(kept["labels"]) if kept["labels"] else labels
    found, classes = read_labels(given, n, names)
    return Evidence(
        torch.cat(kept["features"]),
        torch.cat(kept["inputs"]) if kept["inputs"] else None,
        all(leaf.ndim <= 2 for leaf in tensors(first)),
        tuple(kept["hashes"]),
        found,
        classes,
        _accuracy(torch.cat(kept["logits"]), given, found, len(classes)),
    )


def _accuracy(
    logits: Float[Tensor, "n c"], given: Any, labels: Int[np.ndarray, " n"] | None, classes: int
) -> float | None:
    """The share of labels that the network gives; of words nobody knows which output is whose."""
    if labels is None or _numbers(given).dtype.kind not in "iub" or logits.shape[1] != classes:
        return None
    return float((logits.argmax(1).numpy() == labels).mean())


PAIRED = object()
"""Labels come with the samples."""


def labeled_samples(data: Any) -> tuple[Any, Any, tuple[str, ...]]:
    """The samples, their labels (None without, PAIRED where samples are pairs) and the names of classes."""
    if hasattr(data, "inputs") and hasattr(data, "targets"):
        if isinstance(data.inputs, list):
            raise InputError(
                "sentences are no numbers",
                expected="(tokenizer(sentences, padding=True, return_tensors='pt'), labels)",
                got=repr(data),
            )
        return as_source(data.inputs), data.targets, tuple(getattr(data, "classes", ()))
    if is_data_set(data):
        source = Samples(data)
        first = source.read(slice(0, 1))
        paired = isinstance(first, (tuple, list)) and len(first) == 2
        return source, PAIRED if paired else None, ()
    if isinstance(data, (tuple, list)) and len(data) == 2:
        return as_source(data[0]), data[1], ()
    return as_source(data), None, ()


def read_labels(
    labels: Any, n: int, names: tuple[str, ...]
) -> tuple[Int[np.ndarray, " n"] | None, tuple[str, ...]]:
    """Labels as 0, 1, ... and the names of their classes; words become numbers.

    Raises:
        InputError: they are of another number, or no classes.

    Example:
        >>> read_labels(["b", "a", "b"], 3, ())
        (array([1, 0, 1]), ('a', 'b'))
    """
    if labels is None:
        return None, ()
    y = _numbers(labels)
    if y.shape != (n,):
        raise InputError("labels do not match the samples", expected=f"shape ({n},)", got=y.shape)
    if y.dtype.kind == "O":
        kinds = sorted({type(label).__name__ for label in y})
        if len(kinds) > 1:
            raise InputError(
                "labels are of several kinds", expected="words, or whole numbers, alone", got=", ".join(kinds)
            )
    if y.dtype.kind == "f":
        raise InputError(
            "labels are no classes", expected="whole numbers or words", got=f"{y.dtype}", hint="y.long()"
        )
    if y.dtype.kind in "iu" and names and y.min() >= 0 and y.max() < len(names):
        return y.astype(np.int64), names
    values, indices = np.unique(y, return_inverse=True)
    if y.dtype.kind in "iub":
        shown = [names[v] if names and 0 <= v < len(names) else str(v) for v in values.tolist()]
    else:
        shown = [str(v) for v in values]
    return indices.astype(np.int64), tuple(shown)


def _numbers(y: Any) -> np.ndarray:
    return y.detach().cpu().numpy() if isinstance(y, Tensor) else np.asarray(y)


def _parts(batch: Any, *, paired: bool) -> tuple[Batch, Any]:
    return (batch[0], batch[1]) if paired else (batch, None)


def _finite(values: Tensor, span: slice, what: str) -> Tensor:
    values = values if values.dtype == torch.float64 else values.float()
    finite = values.isfinite().all(1)
    if not finite.all():
        bad = [span.start + i for i in (~finite).nonzero().flatten().tolist()]
        raise NumericalError(
            f"{what} are not finite", got=f"nan or inf for samples {bad[:5]} ({len(bad)} in this piece)"
        )
    return values


class Shortening:
    """The floating-point numbers of samples as at most `WIDTH` ones: by a count sketch where they are more.

    A count sketch adds numbers with random signs to random places, and keeps distances on average.
    """

    def __init__(self, key: Key):
        self.key = key
        self._places: tuple[Tensor, Tensor] | None = None

    def __call__(self, x: Batch) -> Float[Tensor, "n w"] | None:
        """(n, w), or None where samples have no floating-point numbers."""
        rows = [leaf.detach().cpu().flatten(1).float() for leaf in tensors(x) if leaf.is_floating_point()]
        if not rows:
            return None
        flat = torch.cat(rows, 1)
        width = flat.shape[1]
        if width <= WIDTH:
            return flat
        if self._places is None:
            generator = self.key.torch()
            places = torch.randint(WIDTH, (width,), generator=generator)
            signs = torch.randint(2, (width,), generator=generator) * 2.0 - 1
            self._places = places, signs
        places, signs = self._places
        return torch.zeros(batch_size(x), WIDTH).index_add_(1, places, flat * signs)


def strips(n: int, width: int, budget: Budget) -> Iterator[slice]:
    """Ranges of samples of which several copies of (range, width) numbers fit."""
    return spans(n, budget.rows(8 * width, copies=4, most=n))
