"""Small post-scaled networks: all weights and biases N(0, 1), and each layer's output scaled.

A hidden linear layer is divided by √width, a 3×3 convolution by √(9 channels). They tell two classes of
MNIST, Fashion-MNIST or CIFAR-10 apart by one output.
"""

from collections.abc import Sequence
from math import sqrt

import torch
from torch import nn

from tangentkit.core.errors import InputError
from tangentkit.models.inits import Seed, initialized, standard_normal
from tangentkit.models.layers import Scale
from tangentkit.models.mlp import check_sizes


def mnist2_mlp(sizes: Sequence[int] = (784, 100, 100, 100, 1), *, seed: Seed = 0) -> nn.Sequential:
    """`h ← relu((W h + b) / √width)` in each hidden layer, then a linear one.

    Args:
        sizes: widths from the inputs to the outputs.
        seed: of the initialization.

    Raises:
        InputError: fewer than two sizes, or one below 1.

    Example:
        >>> mnist2_mlp()(torch.zeros(5, 1, 28, 28)).shape
        torch.Size([5, 1])
    """
    sizes = check_sizes(sizes)
    with torch.device("meta"):
        model = nn.Sequential()
        model.add_module("flatten", nn.Flatten())
        for i in range(1, len(sizes)):
            model.add_module(f"fc{i}", nn.Linear(sizes[i - 1], sizes[i]))
            if i < len(sizes) - 1:
                model.add_module(f"scale{i}", Scale(1 / sqrt(sizes[i])))
                model.add_module(f"act{i}", nn.ReLU())
    return initialized(model, standard_normal, seed)


def mnist2_cnn(
    width: int = 8, *, channels: int = 1, size: int = 28, outputs: int = 1, seed: Seed = 0
) -> nn.Sequential:
    """Three convolutions of 8w, 4w and w channels with average pooling, then linear layers of 128 and 64.

    `h ← avgpool(relu(conv(h)) / √(9 channels))`, `h ← relu(W h + b) / √width`. (The published network has
    one more ReLU after each pool, where nothing is negative any more.)

    Args:
        width: the w of the channels.
        channels: of the images.
        size: height and width of the images, at least 8.
        outputs: of the network.
        seed: of the initialization.

    Raises:
        InputError: the images are too small to be pooled three times.

    Example:
        >>> mnist2_cnn()(torch.zeros(5, 1, 28, 28)).shape
        torch.Size([5, 1])
    """
    stages = [[8 * width], [4 * width], [width]]
    return _cnn(stages, nn.AvgPool2d, channels=channels, size=size, outputs=outputs, seed=seed)


def cifar2_cnn(
    width: int = 8, *, channels: int = 3, size: int = 32, outputs: int = 1, seed: Seed = 0
) -> nn.Sequential:
    """As `mnist2_cnn`, with two convolutions in each stage and max-pooling.

    Args:
        width: the w of the channels.
        channels: of the images.
        size: height and width of the images, at least 8.
        outputs: of the network.
        seed: of the initialization.

    Raises:
        InputError: the images are too small to be pooled three times.

    Example:
        >>> cifar2_cnn()(torch.zeros(5, 3, 32, 32)).shape
        torch.Size([5, 1])
    """
    stages = [[8 * width, 8 * width], [4 * width, 4 * width], [width, width]]
    return _cnn(stages, nn.MaxPool2d, channels=channels, size=size, outputs=outputs, seed=seed)


def _cnn(
    stages: list[list[int]],
    pool: type[nn.AvgPool2d] | type[nn.MaxPool2d],
    *,
    channels: int,
    size: int,
    outputs: int,
    seed: Seed,
) -> nn.Sequential:
    if size < 8:
        raise InputError("bad image size", expected="at least 8, for three pools", got=size)
    with torch.device("meta"):
        model, last = nn.Sequential(), channels
        for i, stage in enumerate(stages, 1):
            for j, width in enumerate(stage, 1):
                model.add_module(f"conv{i}_{j}", nn.Conv2d(last, width, 3, padding=1))
                model.add_module(f"act{i}_{j}", nn.ReLU())
                model.add_module(f"scale{i}_{j}", Scale(1 / sqrt(9 * width)))
                last = width
            model.add_module(f"pool{i}", pool(2))
        model.add_module("flatten", nn.Flatten())
        last *= (size // 8) ** 2
        for i, width in enumerate((128, 64), 1):
            model.add_module(f"fc{i}", nn.Linear(last, width))
            model.add_module(f"act{i}", nn.ReLU())
            model.add_module(f"scale{i}", Scale(1 / sqrt(width)))
            last = width
        model.add_module("fc3", nn.Linear(last, outputs))
    return initialized(model, standard_normal, seed)
