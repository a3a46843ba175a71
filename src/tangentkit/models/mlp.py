"""Multilayer perceptrons in the standard parameterization."""

from collections.abc import Sequence

import torch
from torch import nn

from tangentkit.core.errors import InputError
from tangentkit.models.inits import Init, Seed, initialized, pytorch_default
from tangentkit.models.layers import Activation


def mlp(
    sizes: Sequence[int],
    *,
    activation: Activation = nn.ReLU,
    bias: bool = True,
    seed: Seed = 0,
    init: Init = pytorch_default,
) -> nn.Sequential:
    """Flatten, then `W x + b` and the activation layer by layer; the last layer is linear.

    Layers are called fc1, act1, fc2, ...

    Args:
        sizes: widths from the inputs to the outputs, such as (784, 100, 100, 10).
        activation: class of the activation.
        bias: whether layers have biases.
        seed: of the initialization.
        init: how weights are drawn.

    Raises:
        InputError: fewer than two sizes, or one below 1.

    Example:
        >>> mlp((3072, 100, 100, 1))(torch.zeros(5, 3, 32, 32)).shape
        torch.Size([5, 1])
    """
    sizes = check_sizes(sizes)
    with torch.device("meta"):
        model = nn.Sequential()
        model.add_module("flatten", nn.Flatten())
        for i in range(1, len(sizes)):
            model.add_module(f"fc{i}", nn.Linear(sizes[i - 1], sizes[i], bias=bias))
            if i < len(sizes) - 1:
                model.add_module(f"act{i}", activation())
    return initialized(model, init, seed)


def check_sizes(sizes: Sequence[int]) -> tuple[int, ...]:
    """The widths of a perceptron, if they are ones.

    Raises:
        InputError: fewer than two sizes, or one below 1.
    """
    if len(sizes) < 2 or min(sizes) < 1:
        raise InputError(
            "bad layer sizes", expected="widths from inputs to outputs, each at least 1", got=tuple(sizes)
        )
    return tuple(sizes)
