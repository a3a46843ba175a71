"""The randomized-model check: scores that do not change when weights are drawn anew do not explain the network."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int
from torch import Tensor, nn

from tangentkit.analysis.training_ways import redrawn
from tangentkit.core.errors import InputError
from tangentkit.core.progress import Progress, counted_off
from tangentkit.core.seeds import Key
from tangentkit.report import Interval
from tangentkit.surrogate.evaluation.datamodeling import spearman
from tangentkit.surrogate.evaluation.outcome import Outcome
from tangentkit.surrogate.evaluation.scores import Scores, scores_for


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class RandomizedModelCheck(Outcome):
    """Spearman's correlation of scores of the network with those of random ones; Student's interval over these."""

    name = "like a random model"
    better = "low"
    networks: int

    @property
    def note(self) -> str:
        """What it was measured on, in a sentence."""
        return f"{self.networks} networks with random weights; 1 would be scores that do not depend on the network."


def randomized_model_check(
    scores: Scores,
    attribute_by: Callable[[nn.Module], Scores],
    model: nn.Module,
    classes: Int[Tensor, " n"],
    *,
    networks: int = 3,
    seed: int = 0,
    make_model: Callable[[], nn.Module] | None = None,
    progress: bool | Progress = True,
) -> RandomizedModelCheck:
    """How like the scores by a network are to scores by networks of its architecture with random weights.

    Of every test sample Spearman's correlation over the training samples is taken, and the mean over samples. Every
    layer is drawn from its own stream: layers of equal shape must not get equal weights.

    Args:
        scores: of n test samples, by the network.
        attribute_by: a network -> the scores of the same samples by it, everything fitted anew.
        model: the network; it is left as it is.
        classes: one class of each sample, the same for all networks.
        networks: how many random ones.
        seed: of their weights.
        make_model: makes the network with random weights, where its layers cannot draw themselves anew.
        progress: whether to show a bar on a terminal; or a function (stage, done, total).

    Raises:
        InputError: fewer than two networks, of which no interval can be had.

    Example:
        >>> import torch
        >>> scores = torch.randn(3, 10)
        >>> classes = torch.zeros(3, dtype=int)
        >>> round(randomized_model_check(scores, lambda _: scores, nn.Linear(2, 2), classes).value, 3)
        1.0
    """
    if networks < 2:
        raise InputError("no interval from one network", expected="two random networks or more", got=networks)
    own = scores_for(scores, classes)
    found = []
    with counted_off(progress, "random networks", networks) as advance:
        for i in range(networks):
            random = redrawn(model, Key(seed).fold("randomized", i), make_model).eval()
            others = scores_for(attribute_by(random), classes)
            found.append([spearman(a, b) for a, b in zip(own, others, strict=True)])
            advance()
    each = np.array(found)
    interval = Interval.over(each.mean(1).tolist())
    return RandomizedModelCheck(
        value=interval.mean,
        interval=Interval(interval.mean, max(-1.0, interval.low), min(1.0, interval.high)),
        chance=0.0,
        each=each.mean(0),
        networks=networks,
    )
