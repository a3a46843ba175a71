"""Forensics of a backdoor: are samples poisoned, by the votes of their nearest training samples?"""

from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Int

from tangentkit.compute.kernel import Kernel
from tangentkit.core.errors import InputError, briefly
from tangentkit.core.progress import Progress
from tangentkit.linalg.operators.operator import Operator
from tangentkit.report import Column, Figure, Histogram, Table, drawn
from tangentkit.surrogate.nearest import Neighbors, neighbors
from tangentkit.surrogate.shares import Share, precision_and_recall

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False, repr=False)
class Forensics:
    """Which test samples were judged to be poisoned, and how well."""

    votes: Int[np.ndarray, " m"]
    """Of the nearest training samples of each test sample, how many are poisoned."""
    truth: Bool[np.ndarray, " m"]
    """Whether the test sample is poisoned."""
    needed: int
    """Votes that make a sample count as poisoned."""
    near: Neighbors
    """The training samples that voted."""

    @property
    def flagged(self) -> Bool[np.ndarray, " m"]:
        """Whether the sample has enough votes."""
        return self.votes >= self.needed

    @cached_property
    def precision(self) -> Share:
        """The share of flagged samples that are poisoned, with its 95 % interval."""
        return precision_and_recall(self.flagged, self.truth)[0]

    @cached_property
    def recall(self) -> Share:
        """The share of poisoned samples that are flagged, with its 95 % interval."""
        return precision_and_recall(self.flagged, self.truth)[1]

    @cached_property
    def false_alarms(self) -> Share:
        """The share of clean samples that are flagged, with its 95 % interval."""
        return Share(int((self.flagged & ~self.truth).sum()), int((~self.truth).sum()))

    def __repr__(self) -> str:
        return f"Forensics(precision {self.precision}; recall {self.recall})"

    def table(self) -> Table:
        """Precision, recall and false alarms in percent, with their 95 % intervals."""
        shares = {"precision": self.precision, "recall": self.recall, "false alarms": self.false_alarms}
        rows = []
        for name, share in shares.items():
            low, high = share.interval
            value = 100 * share.value if share.of else None
            rows.append((name, value, 100 * low, 100 * high, share.hits, share.of))
        percent = ("%", "from %", "to %")
        k = self.near.indices.shape[1]
        return Table(
            "Poisoned samples by the votes of their neighbors",
            ("share", *(Column(name, ".2f") for name in percent), "samples", "of"),
            tuple(rows),
            f"Poisoned: {self.needed} or more of the {k} nearest training samples are. Exact 95 % intervals.",
        )

    def figure(self) -> Figure:
        """How many votes clean and poisoned samples get."""
        k = self.near.indices.shape[1]
        return Histogram(
            title="Votes of the nearest training samples",
            caption=f"Poisoned ones among the {k} nearest training samples; {self.needed} or more make a flag.",
            samples={"clean": self.votes[~self.truth], "poisoned": self.votes[self.truth]},
            bins=k + 1,
            x_label="poisoned neighbors",
            y_label="density",
        )

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draws the votes on axes, its own where none are given."""
        return drawn(self.figure(), ax)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and lists."""
        return {
            "precision": self.precision.to_dict(),
            "recall": self.recall.to_dict(),
            "false_alarms": self.false_alarms.to_dict(),
            "votes": self.votes.tolist(),
            "flagged": self.flagged.tolist(),
            "needed": self.needed,
        }


@briefly
def forensics(
    kernel: Kernel | Operator,
    train: Any,
    poisoned: Any,
    test: Any,
    neighbours: int = 5,
    votes: int = 3,
    *,
    progress: bool | Progress = True,
) -> Forensics:
    """How well a kernel traces poisoned test samples to the poisoned training samples that taught the backdoor.

    A test sample counts as poisoned where at least `votes` of the `neighbours` training samples with the largest
    kernel values are. Precision and recall are those of this rule over all test samples.

    Args:
        kernel: any kernel of one number for each pair, `.normalized()` as a rule; or the matrix k(test, train) as an
            operator, as `tk.gram` gives.
        train: the training samples: a batch or a data set; None with an operator.
        poisoned: (n,), whether each training sample is poisoned, as `tk.data.poisoned` tells it.
        test: a pair (samples, truth): a batch or data set, and (m,), whether each of its samples is poisoned. With an
            operator the truth alone.
        neighbours: how many training samples vote.
        votes: how many of them make a flag.
        progress: whether to show a bar on a terminal; or a function (stage, done, total).

    Raises:
        InputError: masks do not match the samples, or the numbers of votes do not fit.

    Example:
        >>> from tangentkit import ConjugateKernel
        >>> train = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
        >>> test = torch.tensor([[2.0, 0.1], [0.1, 2.0], [0.0, 3.0]])
        >>> kernel = ConjugateKernel(torch.nn.Linear(2, 1)).normalized()
        >>> found = forensics(kernel, train, [True, True, False, False], (test, [True, False, True]), 2, 2)
        >>> found.flagged.tolist(), found.precision.value, found.recall.value
        ([True, False, False], 1.0, 0.5)
    """
    _check_votes(neighbours, votes)
    if isinstance(kernel, Operator):
        near, truth = neighbors(kernel, k=neighbours, progress=progress), test
    elif isinstance(test, (tuple, list)) and len(test) == 2:
        near, truth = neighbors(kernel, test[0], train, neighbours, progress=progress), test[1]
    else:
        raise InputError(
            "bad test samples",
            expected="a pair (samples, truth), truth saying of each whether it is poisoned",
            got=type(test).__name__,
            hint="(torch.cat([clean, stamped]), torch.arange(2 * n) >= n)",
        )
    return Forensics(
        votes_of(near, read_mask(poisoned, near.candidates, "poisoned")),
        read_mask(truth, len(near.indices), "truth"),
        votes,
        near,
    )


def votes_of(near: Neighbors, poisoned: Bool[np.ndarray, " n"]) -> Int[np.ndarray, " m"]:
    """How many of the neighbors of each sample are poisoned."""
    return poisoned[near.indices.cpu().numpy()].sum(1)


def read_mask(mask: Any, n: int, name: str) -> Bool[np.ndarray, " n"]:
    """A mask of n samples.

    Raises:
        InputError: it is of another length, or not of truth values.
    """
    found = mask.detach().cpu().numpy() if isinstance(mask, torch.Tensor) else np.asarray(mask)
    if found.dtype != bool:
        raise InputError(
            f"bad mask {name!r}",
            expected=f"{n} truth values",
            got=f"{found.dtype} {found.shape}",
            hint="torch.zeros(n, dtype=torch.bool), with True at the numbers that are meant",
        )
    if found.shape != (n,):
        raise InputError(f"mask {name!r} does not match", expected=f"shape ({n},)", got=found.shape)
    return found


def _check_votes(neighbours: int, votes: int) -> None:
    whole = isinstance(votes, Integral) and isinstance(neighbours, Integral)
    if not whole or isinstance(votes, bool) or not 1 <= votes <= neighbours:
        raise InputError(
            "bad votes", expected=f"from 1 to neighbours = {neighbours!r}, whole numbers", got=repr(votes)
        )
