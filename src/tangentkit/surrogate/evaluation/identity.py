"""Identity tests: what speaks most for a decision is of its class; what speaks most for a copy is its original.

They are easy, and a method may fail them for a good reason: scores that count how badly a sample was fitted give the
original of a copy nothing where it was fitted well.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int
from numpy.typing import ArrayLike
from torch import Tensor

from tangentkit.core.errors import InputError
from tangentkit.report import Interval
from tangentkit.surrogate.evaluation.outcome import Outcome, share_interval
from tangentkit.surrogate.evaluation.scores import Scores, scores_for


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Identity(Outcome):
    """The share of samples whose strongest training sample is what it should be, with Wilson's interval."""

    name = "identity"
    what: str

    @property
    def note(self) -> str:
        """What it was measured on, in a sentence."""
        return f"{len(self.each):,} samples; a hit: {self.what}."


def same_class(scores: Scores, train_labels: Int[Tensor, " m"], predicted: Int[Tensor, " n"]) -> Identity:
    """The share of test samples whose strongest training sample has the class that the network predicts for them.

    Not the label: a misclassified sample is explained by the class it was taken for. Subclasses work alike:
    `train_labels` and `predicted` are then subclasses, of a network that was trained on the classes.

    Args:
        scores: of n test samples, for these classes.
        train_labels: of m training samples.
        predicted: the class of each test sample by the network.

    Example:
        >>> import torch
        >>> same_class(torch.eye(2), torch.tensor([0, 1]), torch.tensor([0, 0])).value
        0.5
    """
    own, labels = scores_for(scores, predicted), np.asarray(train_labels)
    if labels.shape != (own.shape[1],):
        raise InputError(
            "labels do not match the training samples", expected=f"{own.shape[1]} labels", got=labels.shape
        )
    right = labels[None, :] == np.asarray(predicted)[:, None]
    what = "the strongest training sample is of the predicted class"
    return _identity(own, right, what)


def same_sample(scores: Scores, originals: ArrayLike | Tensor, classes: Int[Tensor, " n"]) -> Identity:
    """The share of copies of training samples whose strongest training sample is their original.

    Args:
        scores: of n copies.
        originals: the number of each one's original among the training samples.
        classes: the labels of the originals.

    Example:
        >>> import torch
        >>> same_sample(torch.eye(3)[:2], [0, 2], torch.tensor([0, 0])).value
        0.5
    """
    own, numbers = scores_for(scores, classes), np.asarray(originals)
    n, m = own.shape
    if numbers.shape != (n,) or not ((numbers >= 0) & (numbers < m)).all():
        raise InputError(
            "bad originals", expected=f"{n} numbers of training samples, 0 to {m - 1}", got=numbers.shape
        )
    right = np.arange(m)[None, :] == numbers[:, None]
    return _identity(own, right, "the strongest training sample is the original")


def _identity(own: np.ndarray, right: np.ndarray, what: str) -> Identity:
    # Among equally strong ones each is as good as another.
    strongest = own == own.max(1, keepdims=True)
    each = (strongest & right).sum(1) / strongest.sum(1)
    value = float(each.mean())
    ends = share_interval(round(value * len(own)), len(own))
    return Identity(
        value=value,
        interval=Interval(value, ends.low, ends.high),
        chance=float(right.mean(1).mean()),
        each=each,
        what=what,
    )
