"""Labels of classes: as indices, as targets of one class against the rest, and back."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, column_or_1d
from torch import Tensor

from tangentkit.core.batches import from_array
from tangentkit.core.errors import InputError
from tangentkit.linalg.operators.matrices import as_tensor
from tangentkit.machines.estimators.machine import gives_tensors, sample_weights

ANY: Any = None
"""scikit-learn's word for labels of any type."""


def read_labels(y: Any, *, name: str) -> tuple[np.ndarray, Int[Tensor, " n"]]:
    """The classes in order, and the index of every sample's class.

    Args:
        y: labels (n,), numbers or words.
        name: of the machine, for messages.

    Raises:
        InputError: labels are missing, not labels, or all of one class.
    """
    if y is None:
        raise InputError(f"{name} requires y to be passed, but the target y is None", expected="labels")
    y = as_tensor(y, "labels").cpu().numpy() if isinstance(y, Tensor) else y
    y = check_array(y, ensure_2d=False, dtype=ANY, allow_nd=True, input_name="y", estimator=name)
    if y.ndim > 2 or (y.ndim == 2 and y.shape[1] > 1):
        raise InputError(
            "bad labels",
            expected="shape (n,)",
            got=y.shape,
            hint="y[0]: labels in one row" if len(y) == 1 else "y.argmax(1) turns one-hot rows into labels",
        )
    y = column_or_1d(y, warn=True)
    check_classification_targets(y)
    classes, indices = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise InputError(
            "nothing to tell apart",
            expected="labels of two classes or more",
            got=f"one class, {classes.tolist()[0]!r}",
        )
    return classes, torch.from_numpy(indices)


def check_one_label_each(labels: Int[Tensor, " n"], samples: int | None) -> None:
    """Refuses more or fewer labels than samples, where these are known.

    Raises:
        InputError: with both numbers.
    """
    if samples not in (None, len(labels)):
        raise InputError("labels do not match the samples", expected=f"{samples} labels", got=len(labels))


def label_weights(weights: Any, labels: Int[Tensor, " n"], classes: np.ndarray) -> Float[Tensor, " n"]:
    """Weights of the samples, 1 by default.

    Raises:
        InputError: of all samples of a class the weight is zero.
    """
    ones = torch.ones(len(labels), dtype=torch.float64)
    w = sample_weights(weights, n=len(labels), like=ones)
    w = ones if w is None else w
    mass = torch.bincount(labels, weights=w)
    if not (mass > 0).all():
        empty = classes[(mass == 0).numpy()].tolist()
        raise InputError(
            "a class is empty",
            expected="a weight above 0 in every class",
            got=f"none in class {empty[0]!r}",
        )
    return w


def one_against_rest(labels: Int[Tensor, " n"], classes: int) -> Float[Tensor, "n c"]:
    """1 in the column of the sample's class and -1 in the others.

    Example:
        >>> one_against_rest(torch.tensor([0, 2]), 3)
        tensor([[ 1., -1., -1.],
                [-1., -1.,  1.]], dtype=torch.float64)
    """
    return 2 * torch.nn.functional.one_hot(labels, classes).double() - 1


def winning(scores: Tensor, classes: np.ndarray, X: Any) -> Any:
    """The class of the largest score, in the kind of the inputs; of scores (m,) the second class above zero."""
    winners = (scores > 0).long() if scores.ndim == 1 else scores.argmax(1)
    labels = classes[winners.cpu().numpy()]
    if not gives_tensors(X) or labels.dtype.kind not in "biuf":
        return labels
    return from_array(labels).to(scores.device)
