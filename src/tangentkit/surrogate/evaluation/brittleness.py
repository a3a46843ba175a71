"""Brittleness: how few training samples must be missing for a prediction to change.

The k training samples that speak most for a network's prediction are left out, a network is trained on the others,
and asked again. What it says is compared with what the network *predicted*, not with the label: a misclassified
sample has not changed before anything is left out. Networks differ from training to training, so that some
predictions change for no reason: k = 0 tells how many, and so do the scores of the random baseline.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from tangentkit.compute.sources import as_source
from tangentkit.core.errors import InputError
from tangentkit.core.model.functions import Forward
from tangentkit.core.progress import Progress, counted_off
from tangentkit.core.seeds import Key
from tangentkit.report import Column, Figure, Lines, Series, Table
from tangentkit.surrogate.evaluation.outcome import Outcome, share_interval
from tangentkit.surrogate.evaluation.retraining import Retrain, retrained_logits
from tangentkit.surrogate.evaluation.scores import Scores, scores_for


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Brittleness(Outcome):
    """The share of predictions that change, for the most training samples left out, with Wilson's interval."""

    name = "brittleness"
    numbers: tuple[int, ...]
    """How many training samples were left out."""
    changed: Bool[np.ndarray, "n k"]
    """Whose prediction changed, for each of these numbers."""

    @property
    def note(self) -> str:
        """What it was measured on, in a sentence."""
        return f"{len(self.changed):,} predictions; {self.numbers[-1]:,} training samples left out for each."

    def table(self) -> Table:
        """One row a number of training samples left out."""
        n = len(self.changed)
        found = [share_interval(int(column.sum()), n) for column in self.changed.T]
        rows = tuple((k, one.mean, one.low, one.high) for k, one in zip(self.numbers, found, strict=True))
        columns = (
            "left out",
            Column("share that changes", ".3f"),
            Column("95 % from", ".3f"),
            Column("to", ".3f"),
        )
        return Table(
            "Predictions that change when training samples are left out", columns, rows, note=self.note
        )

    def figure(self) -> Figure:
        """The share that changes, over the number of training samples left out."""
        return Lines(
            title="Brittleness",
            caption=f"The share of predictions that change, over the training samples left out. {self.note}",
            series={"changed": Series(self.numbers, self.changed.mean(0))},
            x_label="training samples left out",
            y_label="share of predictions that change",
        )

    def to_dict(self) -> dict[str, Any]:
        """The results as plain numbers."""
        shares = self.changed.mean(0).tolist()
        return super().to_dict() | {"numbers": list(self.numbers), "shares": shares}


def brittleness(
    scores: Scores,
    predicted: Int[Tensor, " n"],
    retrain: Retrain,
    test: Any,
    *,
    numbers: Sequence[int],
    seed: int = 0,
    forward: Forward | None = None,
    progress: bool | Progress = True,
) -> Brittleness:
    """Leaves out the training samples that speak most for each prediction, and trains again: does it change?

    It trains n networks for each of the numbers. Those of one sample have the same seed for all methods.

    Args:
        scores: of n test samples.
        predicted: the class that the network itself predicts for each, whatever its label.
        retrain: (numbers of training samples, seed) -> a network trained on them, or its logits on the test samples.
        test: the test samples.
        numbers: how many training samples are left out; 0 among them trains on all.
        seed: of all networks.
        forward: how a network is called, (model, batch) -> (n, c).
        progress: whether to show a bar on a terminal; or a function (stage, done, total).

    Raises:
        InputError: bad numbers.
    """
    own, source = scores_for(scores, predicted), as_source(test)
    (n, m), ks = own.shape, sorted(set(numbers))
    if not ks or not all(isinstance(k, int) and 0 <= k < m for k in ks):
        raise InputError(
            "bad numbers of samples to leave out", expected=f"integers from 0 to {m - 1}", got=list(numbers)
        )
    changed = np.zeros((n, len(ks)), dtype=bool)
    with counted_off(progress, "retraining without the strongest", n * len(ks)) as advance:
        for i, row in enumerate(own):
            strongest = np.argsort(-row, kind="stable")
            key = Key(seed).fold("brittleness", i)
            for j, k in enumerate(ks):
                mask = torch.ones(m, dtype=torch.bool)
                mask[strongest[:k].copy()] = False
                logits = retrained_logits(retrain, mask, source, key, forward)[i]
                changed[i, j] = int(logits.argmax()) != int(predicted[i])
                advance()
    last = changed[:, -1]
    interval = share_interval(int(last.sum()), n)
    return Brittleness(
        value=interval.mean,
        interval=interval,
        chance=float("nan"),
        each=last.astype(float),
        numbers=tuple(ks),
        changed=changed,
    )
