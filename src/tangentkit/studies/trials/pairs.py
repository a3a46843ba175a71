"""A network and its linearization, trained alike: from the same weights, on the same mini-batches."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass

from torch import Tensor, nn

from tangentkit.core.errors import NumericalError
from tangentkit.core.seeds import Key
from tangentkit.linearized import History, Training, linearize, train


@dataclass(frozen=True, eq=False)
class Pair:
    """The two models after training, and what each has seen; a history is None where training diverged."""

    network: nn.Module
    linearized: nn.Module
    network_history: History | None
    linearized_history: History | None

    def last(self, metric: str) -> dict[str, float]:
        """The last value of a metric for "network" and "linearized"; nan where training diverged."""
        histories = {"network": self.network_history, "linearized": self.linearized_history}
        return {name: one[metric][-1] if one else float("nan") for name, one in histories.items()}


def train_pair(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    training: Training,
    *,
    key: Key,
    linearized_training: Training | None = None,
    watch: Mapping[str, tuple[Tensor, Tensor]] | None = None,
) -> Pair:
    """Trains a copy of a network and its linearization at the network's weights; the network stays as it is.

    Args:
        model: at its initial weights.
        x: the inputs.
        y: the targets.
        training: the settings of both.
        key: of the mini-batches, the same for both.
        linearized_training: other settings for the linearization.
        watch: name -> inputs and targets of sets to be evaluated after each epoch.

    Example:
        >>> import torch
        >>> x = torch.linspace(-1, 1, 32)[:, None]
        >>> net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
        >>> pair = train_pair(net, x, x**2, Training(30, 0.1, batch=8), key=Key(0))
        >>> sorted(pair.last("train loss"))
        ['linearized', 'network']
    """
    network, linearized = deepcopy(model), linearize(deepcopy(model))
    histories = [
        _trained(one, x, y, settings, key, watch)
        for one, settings in ((network, training), (linearized, linearized_training or training))
    ]
    return Pair(network, linearized, *histories)


def _trained(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    training: Training,
    key: Key,
    watch: Mapping[str, tuple[Tensor, Tensor]] | None,
) -> History | None:
    try:
        return train(model, x, y, training, key=key, watch=watch)
    except NumericalError:
        return None
