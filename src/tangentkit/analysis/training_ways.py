"""Ways to use a network on new data: refit its last layer, train all of it, or its linearization, or start anew."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tangentkit.core.batches import Batch
from tangentkit.core.errors import InputError
from tangentkit.core.model.functions import Forward
from tangentkit.core.seeds import Key
from tangentkit.linearized import Training, linearize, train
from tangentkit.machines import refit_last_layer


@dataclass(frozen=True, eq=False)
class Task:
    """One network, one training set, one key: what a way is a function of."""

    model: nn.Module
    """The network before; a way leaves it as it is."""
    x: Batch
    y: Tensor
    training: Training
    key: Key
    forward: Forward | None = None
    random_model: Callable[[], nn.Module] | None = None
    """Makes the network with fresh random weights."""


Way = Callable[[Task], nn.Module]
"""A task -> a network that gives (n, c) logits when it is called as the model is."""


def probe(task: Task) -> nn.Module:
    """The features stay, and the last layer is the optimum for them."""
    return refit_last_layer(task.model.eval(), task.x, task.y, forward=task.forward)


def fine_tune(task: Task) -> nn.Module:
    """All parameters that require grad are trained, from where they are."""
    twin = copy.deepcopy(task.model)
    train(twin, task.x, task.y, task.training, key=task.key, forward=task.forward)
    return twin


def random_features(task: Task) -> nn.Module:
    """As `probe`, of the same network with random weights: what the architecture alone gives."""
    fresh = redrawn(task.model, task.key, task.random_model).eval()
    return refit_last_layer(fresh, task.x, task.y, forward=task.forward)


def linearized(task: Task) -> nn.Module:
    """The first-order model about the weights, trained: fine-tuning without a change of features."""
    lin = linearize(task.model.eval(), forward=task.forward)
    train(lin, task.x, task.y, task.training, key=task.key, forward=whole_batch if task.forward else None)
    return lin


def whole_batch(model: nn.Module, batch: Batch) -> Any:
    """How an expansion with a rule of its own is called: with the batch as one argument, also where it is a dict."""
    return model(batch)


WAYS: dict[str, Way] = {
    "probe": probe,
    "fine-tune": fine_tune,
    "random-features": random_features,
    "linearized": linearized,
}
"""Name -> way."""


def redrawn(model: nn.Module, key: Key, make: Callable[[], nn.Module] | None = None) -> nn.Module:
    """A copy of a network with random weights, as its layers draw them (`reset_parameters`), by a key.

    Every layer draws from its own stream, addressed by its name: layers of equal shapes get different weights.

    Args:
        model: whose architecture.
        key: of the weights; torch's global generator is left as it was.
        make: makes such a network, where layers cannot draw themselves anew.

    Raises:
        InputError: a layer has parameters, no `reset_parameters`, and there is no `make`.

    Example:
        >>> model = nn.Linear(2, 2)
        >>> a, b = redrawn(model, Key(0)), redrawn(model, Key(0))
        >>> torch.equal(a.weight, b.weight), torch.equal(a.weight, model.weight)
        (True, False)
    """
    with torch.random.fork_rng(devices=[]):
        if make is not None:
            torch.default_generator.manual_seed(key.entropy % 2**63)
            return make()
        twin = copy.deepcopy(model)
        for name, layer in twin.named_modules():
            draw = getattr(layer, "reset_parameters", None) or getattr(layer, "_reset_parameters", None)
            if callable(draw):
                torch.default_generator.manual_seed(key.fold("redrawn", name).entropy % 2**63)
                draw()
            elif next(layer.parameters(recurse=False), None) is not None:
                raise InputError(
                    f"layer {name or 'model'!r} cannot draw its parameters anew",
                    expected="a method reset_parameters",
                    got=type(layer).__name__,
                    hint="random_model=lambda: ... that makes the network with random weights",
                )
    return twin
