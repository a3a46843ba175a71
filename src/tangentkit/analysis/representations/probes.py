"""Probes: how well simple classifiers do on the first principal components of a layer."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tangentkit.analysis.representations.collapse import NeuralCollapse
from tangentkit.analysis.representations.components import Components
from tangentkit.core.errors import InputError, UnknownNameError
from tangentkit.report import Column, Table

NEIGHBORS = 10
ENOUGH = 0.9
"""The share of its best accuracy that a classifier must reach."""
GRID = (*range(1, 21), 30, 40, 50, 100, 150, 200, 250, 300, 400, 500)
"""Numbers of components that are tried; and all components of a layer that has fewer than the last."""


def _ten_nearest() -> Any:
    from sklearn.neighbors import KNeighborsClassifier

    return KNeighborsClassifier(NEIGHBORS)


def _nearest_center() -> Any:
    from sklearn.neighbors import NearestCentroid

    return NearestCentroid()


def _linear_svm() -> Any:
    from sklearn.svm import LinearSVC

    # "auto" is the primal here, since components are fewer than samples: Newton's method needs few steps there.
    return LinearSVC(C=1.0, dual="auto", max_iter=10_000, random_state=0)


CLASSIFIERS: dict[str, Callable[[], Any]] = {
    "10-NN": _ten_nearest,
    "nearest center": _nearest_center,
    "linear SVM": _linear_svm,
}


class ProbeWarning(UserWarning):
    """An accuracy may be too low, or something of a layer cannot be told."""


@dataclass(frozen=True)
class LayerProbe:
    """One layer: accuracies over the number of components, collapse, dimensions."""

    name: str
    size: int
    """Numbers that the layer puts out for a sample."""
    dims: tuple[int, ...]
    """Numbers of components that were tried."""
    accuracy: dict[str, tuple[float, ...]]
    """Classifier -> test accuracy for each number of components."""
    variance: tuple[float, ...]
    """The share of the (standardized) variance in so many components."""
    collapse: NeuralCollapse
    """Of the training samples; NC4 beside the network's own classes."""
    two_nn: float | None
    """Intrinsic dimension by nearest neighbors; None where too few points differ, or all neighbors are as near."""
    participation_ratio: float
    """Intrinsic dimension by variances."""
    remark: str = ""
    """What cannot be told of the layer, and why."""

    def best(self, classifier: str) -> float:
        """The best accuracy over all numbers of components."""
        return max(self._of(classifier))

    def needed(self, classifier: str) -> int:
        """The 90 % rule: the fewest components with 0.9 of the best accuracy."""
        return self.dims[self._first(classifier)]

    def variance_needed(self, classifier: str) -> float:
        """The share of the variance that these components explain."""
        return self.variance[self._first(classifier)]

    def table(self) -> Table:
        """A row for each number of components: variance, and the accuracy of each classifier."""
        columns = (
            "components",
            Column("variance", ".1%"),
            *(Column(name, ".3f") for name in self.accuracy),
        )
        rows = zip(self.dims, self.variance, *self.accuracy.values(), strict=True)
        needed = ", ".join(f"{self.needed(name)} for {name}" for name in self.accuracy)
        return Table(
            f"Layer {self.name or 'model'}",
            columns,
            tuple(rows),
            note=f"Components for 0.9 of the best: {needed}.",
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and lists."""
        return {
            **asdict(self),
            "dims": list(self.dims),
            "variance": list(self.variance),
            "accuracy": {c: list(values) for c, values in self.accuracy.items()},
            "needed": {c: self.needed(c) for c in self.accuracy},
            "variance_needed": {c: self.variance_needed(c) for c in self.accuracy},
            "collapse": self.collapse.to_dict(),
        }

    def _first(self, classifier: str) -> int:
        enough = ENOUGH * self.best(classifier)
        return next(i for i, accuracy in enumerate(self._of(classifier)) if accuracy >= enough)

    def _of(self, classifier: str) -> tuple[float, ...]:
        if classifier not in self.accuracy:
            raise UnknownNameError("classifier", classifier, self.accuracy)
        return self.accuracy[classifier]


def dims_of(dims: Sequence[int] | None, components: int) -> tuple[int, ...]:
    """The numbers of components to try where there are so many.

    Example:
        >>> dims_of(None, 30)[-3:], dims_of([1, 5, 50], 8), dims_of([50], 8)
        ((19, 20, 30), (1, 5), (8,))
    """
    if dims is None:
        inside = [d for d in GRID if d < components]
        return tuple(inside) if components > GRID[-1] else (*inside, components)
    return tuple(sorted({d for d in dims if d <= components})) or (components,)


def checked_dims(dims: Sequence[int] | None) -> tuple[int, ...] | None:
    """The numbers of components to try as plain integers.

    Raises:
        InputError: a number is no whole number above 0, or there is none.
    """
    if dims is None:
        return None
    wrong = [d for d in dims if isinstance(d, bool) or not isinstance(d, (int, np.integer)) or d < 1]
    if wrong or not len(dims):
        raise InputError("bad numbers of components", expected="whole numbers from 1", got=repr(list(dims)))
    return tuple(int(d) for d in dims)


def accuracies(
    found: Components, y: NDArray, y_test: NDArray, dims: Sequence[int], layer: str
) -> dict[str, tuple[float, ...]]:
    """Test accuracies of the classifiers, fitted on the first d components for every d of dims."""
    from sklearn.exceptions import ConvergenceWarning

    def accuracy(make: Callable[[], Any], d: int) -> float:
        return float(make().fit(found.train[:, :d], y).score(found.test[:, :d], y_test))

    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always", ConvergenceWarning)
        table = {name: tuple(accuracy(make, d) for d in dims) for name, make in CLASSIFIERS.items()}
    stopped = [w for w in heard if issubclass(w.category, ConvergenceWarning)]
    if stopped:
        how_often = f"{len(stopped)} of {len(dims)} numbers of components"
        text = f"layer {layer!r}: the linear SVM did not converge for {how_often}; there it may do too badly"
        warnings.warn(text, ProbeWarning, stacklevel=4)
    return table
