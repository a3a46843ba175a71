"""Two LeNets: LeNet×k with max-pooling, and LeNet5 with average pooling and SAME padding."""

from collections import OrderedDict

import torch
from torch import nn

from tangentkit.core.errors import InputError
from tangentkit.models.inits import Init, Seed, initialized, lecun_normal, pytorch_default
from tangentkit.models.layers import Activation


def lenet(
    scale: float = 1,
    *,
    channels: int = 1,
    size: int = 28,
    outputs: int = 10,
    seed: Seed = 0,
    init: Init = pytorch_default,
) -> nn.Sequential:
    """LeNet×k: two 5×5 convolutions with ReLU and max-pooling, then three linear layers.

    The widths 6, 16, 120, 84 are multiplied by `scale` and rounded. The first convolution pads its images
    to 32×32: by 2 on the 28×28 of MNIST, by nothing on CIFAR-10.

    Args:
        scale: the k of LeNet×k.
        channels: of the images.
        size: height and width of the images, even and at most 32.
        outputs: of the network.
        seed: of the initialization.
        init: how weights are drawn.

    Raises:
        InputError: the images cannot be padded to 32×32.

    Example:
        >>> lenet(2, channels=3, size=32)(torch.zeros(5, 3, 32, 32)).shape
        torch.Size([5, 10])
    """
    if not 0 < size <= 32 or size % 2:
        raise InputError("bad image size for LeNet×k", expected="an even number up to 32", got=size)
    c1, c2, h1, h2 = (max(1, round(scale * width)) for width in (6, 16, 120, 84))
    with torch.device("meta"):
        model = nn.Sequential(
            OrderedDict(
                conv1=nn.Conv2d(channels, c1, 5, padding=(32 - size) // 2),
                act1=nn.ReLU(),
                pool1=nn.MaxPool2d(2),
                conv2=nn.Conv2d(c1, c2, 5),
                act2=nn.ReLU(),
                pool2=nn.MaxPool2d(2),
                flatten=nn.Flatten(),
                fc1=nn.Linear(c2 * 5 * 5, h1),
                act3=nn.ReLU(),
                fc2=nn.Linear(h1, h2),
                act4=nn.ReLU(),
                fc3=nn.Linear(h2, outputs),
            )
        )
    return initialized(model, init, seed)


def lenet5(
    *,
    channels: int = 3,
    size: int = 32,
    outputs: int = 1,
    activation: Activation = nn.ReLU,
    seed: Seed = 0,
    init: Init = lecun_normal,
) -> nn.Sequential:
    """LeNet5 of the eigenfunction studies: average pooling, SAME padding, one output.

    Args:
        channels: of the images.
        size: height and width of the images, at least 4.
        outputs: of the network.
        activation: class of the activation; the studies of anisotropy directions use `nn.GELU`.
        seed: of the initialization.
        init: how weights are drawn.

    Raises:
        InputError: the images are too small to be pooled twice.

    Example:
        >>> lenet5(activation=nn.GELU)(torch.zeros(5, 3, 32, 32)).shape
        torch.Size([5, 1])
    """
    if size < 4:
        raise InputError("bad image size for LeNet5", expected="at least 4", got=size)
    with torch.device("meta"):
        model = nn.Sequential(
            OrderedDict(
                conv1=nn.Conv2d(channels, 6, 5, padding=2),
                act1=activation(),
                pool1=nn.AvgPool2d(2),
                conv2=nn.Conv2d(6, 16, 5, padding=2),
                act2=activation(),
                pool2=nn.AvgPool2d(2),
                flatten=nn.Flatten(),
                fc1=nn.Linear(16 * (size // 4) ** 2, 120),
                act3=activation(),
                fc2=nn.Linear(120, 84),
                act4=activation(),
                fc3=nn.Linear(84, outputs),
            )
        )
    return initialized(model, init, seed)
