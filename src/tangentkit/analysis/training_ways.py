"""Ways to use a network on new data: refit its last layer, train all of it, or its linearization, or start anew."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

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


MAKE = "random_model=lambda: ... that makes the network with random weights"


def probe(task: Task) -> nn.Module:
    """The features stay, and the last layer is the optimum for them."""
    return refit_last_layer(task.model.eval(), task.x, task.y, forward=task.forward)


def fine_tune(task: Task) -> nn.Module:
    """All parameters that require grad are trained, from where they are."""
    twin = _twin(task.model)
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
REFITTED = (probe, random_features)
"""Ways whose last layer is solved for, which takes samples of every class."""


def redrawn(model: nn.Module, key: Key, make: Callable[[], nn.Module] | None = None) -> nn.Module:
    """A copy of a network with random weights, as its layers draw them (`reset_parameters`), by a key.

    Every layer draws from its own stream, addressed by its name: layers of equal shapes get different weights.

    Args:
        model: whose architecture.
        key: of the weights; torch's global generator is left as it was.
        make: makes such a network, where layers cannot draw themselves anew.

    Raises:
        InputError: a layer has parameters that no `reset_parameters` of its own draws, and there is no `make`.

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
        twin = _twin(model)
        for name, layer in twin.named_modules():
            torch.default_generator.manual_seed(key.fold("redrawn", name).entropy % 2**63)
            if kept := _kept_by_draw(layer):
                raise InputError(
                    f"layer {name or 'model'!r} cannot draw its parameters anew",
                    expected="a method reset_parameters that draws all of them",
                    got=f"{type(layer).__name__}, which keeps {', '.join(kept)}",
                    hint=MAKE,
                )
    return twin


def _twin(model: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(model)
    except Exception as error:
        # Weights that a hook computes, as of the old weight_norm, are part of a graph.
        raise InputError(
            "the model cannot be copied",
            got=str(error)[:100],
            hint="torch.nn.utils.parametrizations in the place of the older weight_norm and spectral_norm",
        ) from error


@torch.no_grad()
def _kept_by_draw(layer: nn.Module) -> list[str]:
    """Draws a layer's own parameters anew; which of them it has left as they were, in part or as a whole."""
    own = {name: p for name, p in layer.named_parameters(recurse=False) if not is_lazy(p)}
    draw = getattr(layer, "reset_parameters", None) or getattr(layer, "_reset_parameters", None)
    if not callable(draw):
        return list(own)
    for p in own.values():
        p.fill_(torch.nan)  # what is still there afterwards was not drawn
    draw()
    return [name for name, p in own.items() if p.isnan().any()]
