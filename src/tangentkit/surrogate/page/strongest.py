"""A kernel in few numbers: mean scores of each training class, and the strongest samples for and against."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, UInt32
from numpy.typing import NDArray

from tangentkit.surrogate.page.explanation import Explanation, KernelView

OUTPUTS = 12
"""Outputs that are kept of every test sample."""


@dataclass(frozen=True, eq=False)
class Strongest:
    """Of every test sample and r outputs: class means, and the k training samples of the largest and least scores."""

    outputs: UInt32[np.ndarray, "n r"]
    means: Float32[np.ndarray, "n r classes"]
    """Mean score over the training samples of each class; 0 where a class has none."""
    indices: UInt32[np.ndarray, "n r two k"]
    """Of the largest scores first the largest; of the least first the least."""
    scores: Float32[np.ndarray, "n r two k"]


def strongest(view: KernelView, explanation: Explanation, k: int) -> Strongest:
    """The summary of a kernel, a few rows of its matrix at a time.

    Args:
        view: the kernel, one of the explanation's.
        explanation: of which samples and classes.
        k: samples for, and as many against; fewer where there are fewer training samples.
    """
    (n, m), classes = view.shape, len(explanation.classes)
    k, kept, share = min(k, m), kept_outputs(view, explanation), _shares(explanation.train_labels, classes)
    found = Strongest(
        kept,
        np.zeros((*kept.shape, classes), np.float32),
        np.zeros((*kept.shape, 2, k), np.uint32),
        np.zeros((*kept.shape, 2, k), np.float32),
    )
    for span, block in view.rows():
        for i, row in zip(range(n)[span], block, strict=True):
            scores = view.coefficients[:, kept[i]].T * row + view.offsets[kept[i], None] / m
            ends = np.stack([_least(-scores, k), _least(scores, k)], axis=1)
            found.means[i] = scores @ share
            found.indices[i] = ends
            found.scores[i] = np.take_along_axis(scores[:, None, :], ends, axis=2)
    return found


def kept_outputs(view: KernelView, explanation: Explanation) -> UInt32[np.ndarray, "n r"]:
    """At most `OUTPUTS` outputs of each test sample: the network's answer, the true class, and the largest logits."""
    first = view.logits.copy()
    n, c = first.shape
    if c > 1:
        for labels in (explanation.logits.argmax(axis=1), explanation.test_labels):
            if labels is not None:
                first[np.arange(n), labels] = np.inf
    return np.sort(np.argsort(-first, axis=1)[:, :OUTPUTS], axis=1).astype(np.uint32)


def _shares(labels: NDArray[np.int64], classes: int) -> NDArray[np.float64]:
    """The matrix (m, classes) that takes the mean over each class."""
    member = labels[:, None] == np.arange(classes)
    return member / np.maximum(member.sum(axis=0), 1)


def _least(table: NDArray[np.float64], k: int) -> NDArray[np.int64]:
    """The columns of the k least entries of every row, the least first."""
    some = np.argpartition(table, k - 1, axis=1)[:, :k]
    order = np.argsort(np.take_along_axis(table, some, axis=1), axis=1)
    return np.take_along_axis(some, order, axis=1)
