"""Scores in one form, whatever made them: a row for each sample, a column for each training sample.

A score says how much a training sample speaks for one class of a sample: the more positive, the more. Their unit
does not matter here: every evaluation looks at their order alone.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tangentkit.core.errors import InputError, NumericalError
from tangentkit.surrogate.attribution import Attribution

Scores = Attribution | Tensor | np.ndarray
"""Of n samples: an attribution, or a matrix (n, m)."""
Attribute = Callable[[Any], Scores]
"""A method of attribution: samples -> their scores."""


def scores_for(given: Scores, classes: Int[Tensor, " n"]) -> Float[np.ndarray, "n m"]:
    """How much each training sample speaks for one class of each sample.

    Of an attribution to classes the scores of these classes are taken. An attribution to margins, and a matrix, are
    taken as they are.

    Raises:
        InputError: they are of another number of samples.
        NumericalError: a score is not finite.

    Example:
        >>> scores_for(torch.eye(2), torch.tensor([1, 0]))
        array([[1., 0.],
               [0., 1.]])
    """
    plain = not isinstance(given, Attribution)
    if plain and not isinstance(given, (Tensor, np.ndarray)):
        raise InputError(
            "a method gives no scores",
            expected="an Attribution, or a matrix (n, m)",
            got=type(given).__name__,
        )
    scores = torch.as_tensor(given).detach() if plain else _of_attribution(given, classes)
    if scores.ndim != 2 or len(scores) != len(classes):
        raise InputError(
            "scores do not match the samples",
            expected=f"({len(classes)}, m), a row for each sample and a column for each training sample",
            got=tuple(scores.shape),
        )
    return _finite(scores)


def self_scores_of(given: Scores, labels: Int[Tensor, " m"]) -> Float[np.ndarray, " m"]:
    """How much each training sample speaks for its own label: the diagonal of the scores of the training samples.

    Args:
        given: scores of the training samples themselves, of all in their order.
        labels: theirs.

    Raises:
        InputError: they are not square.
        NumericalError: a score is not finite.

    Example:
        >>> self_scores_of(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([0, 1]))
        array([1., 4.])
    """
    shape = given.cross.shape if isinstance(given, Attribution) else tuple(given.shape)
    if shape != (len(labels), len(labels)):
        raise InputError(
            "not the scores of the training samples themselves",
            expected=f"({len(labels)}, {len(labels)}), all training samples in their order",
            got=tuple(shape),
        )
    if not isinstance(given, Attribution):
        return _finite(torch.as_tensor(given).detach().diagonal())
    # A strip at a time: all scores of all training samples would be m x m numbers for each class.
    diagonal = torch.cat([k[:, rows].diagonal() for rows, k in given.cross.strips()]).to(given.weights)
    own = _outputs(given, labels.to(given.weights.device))
    W = given.weights.gather(1, own[:, None])[:, 0]
    return _finite(W * diagonal + given.offset[own] / len(labels))


def _of_attribution(given: Attribution, classes: Int[Tensor, " n"]) -> Float[Tensor, "n m"]:
    if len(classes) != len(given.network):
        return given.network[:0]  # refused by the caller, with both numbers
    return given.of(_outputs(given, classes.to(given.weights.device)))


def _outputs(given: Attribution, classes: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
    """The output of each sample that tells of its class."""
    return torch.zeros_like(classes) if given.about == "margin" else classes


def _finite(scores: Tensor) -> np.ndarray:
    if not bool(scores.isfinite().all()):
        raise NumericalError("scores that are no numbers", expected="finite ones", got="nan or infinity")
    return scores.double().cpu().numpy()
