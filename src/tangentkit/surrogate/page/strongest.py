"""A kernel in few numbers: mean scores of each training class, and the strongest samples for and against."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, UInt32
from numpy.typing import NDArray

from tangentkit.surrogate.page.explanation import KernelView


@dataclass(frozen=True, eq=False)
class Strongest:
    """Of every test sample and output: class means, and the k training samples of the largest and least scores."""

    means: Float32[np.ndarray, "n c classes"]
    """Mean score over the training samples of each class; 0 where a class has none."""
    indices: UInt32[np.ndarray, "n c two k"]
    """Of the largest scores first the largest; of the least first the least."""
    scores: Float32[np.ndarray, "n c two k"]


def strongest(view: KernelView, labels: NDArray[np.int64], classes: int, k: int) -> Strongest:
    """The summary of a kernel, a few rows of its matrix at a time.

    Args:
        view: the kernel.
        labels: classes of the training samples.
        classes: how many classes there are.
        k: samples for, and as many against; fewer where there are fewer training samples.

    Example:
        >>> view = KernelView("linear", [[1.0, 2.0, -1.0]], [[1.0], [1.0], [1.0]], [0.0])
        >>> found = strongest(view, np.array([0, 1, 1]), 2, k=1)
        >>> found.means.tolist(), found.indices.tolist(), found.scores.tolist()
        ([[[1.0, 0.5]]], [[[[1], [2]]]], [[[[2.0], [-1.0]]]])
    """
    m, c = view.coefficients.shape
    k = min(k, m)
    share = _shares(labels, classes)
    found = Strongest(
        np.zeros((view.shape[0], c, classes), np.float32),
        np.zeros((view.shape[0], c, 2, k), np.uint32),
        np.zeros((view.shape[0], c, 2, k), np.float32),
    )
    for span, block in view.rows():
        for o in range(c):
            scores = block * view.coefficients[:, o] + view.offsets[o] / m
            ends = _ends(scores, k)
            found.means[span, o] = scores @ share
            found.indices[span, o] = ends
            found.scores[span, o] = np.take_along_axis(scores[:, None, :], ends, axis=2)
    return found


def _shares(labels: NDArray[np.int64], classes: int) -> NDArray[np.float64]:
    """The matrix (m, classes) that takes the mean over each class."""
    member = labels[:, None] == np.arange(classes)
    return member / np.maximum(member.sum(axis=0), 1)


def _ends(table: NDArray[np.float64], k: int) -> NDArray[np.int64]:
    """Columns of the k largest and of the k least entries of every row, (n, 2, k)."""
    return np.stack([_least(-table, k), _least(table, k)], axis=1)


def _least(table: NDArray[np.float64], k: int) -> NDArray[np.int64]:
    some = np.argpartition(table, k - 1, axis=1)[:, :k]
    order = np.argsort(np.take_along_axis(table, some, axis=1), axis=1)
    return np.take_along_axis(some, order, axis=1)
