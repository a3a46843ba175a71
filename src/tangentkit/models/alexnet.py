"""AlexNet×k: the one-tower variant, without dropout."""

from collections import OrderedDict

import torch
from torch import nn

from tangentkit.models.inits import Init, Seed, initialized, pytorch_default


def alexnet(
    scale: float = 1,
    *,
    channels: int = 3,
    outputs: int = 10,
    seed: Seed = 0,
    init: Init = pytorch_default,
) -> nn.Sequential:
    """Five convolutions with ReLU and three max-pools, a 6×6 average, and three linear layers.

    The widths 64, 192, 384, 256, 256, 4096, 4096 are multiplied by `scale` and rounded. Images are meant to
    be 224×224 and must be at least 63×63.

    Args:
        scale: the k of AlexNet×k; a fraction makes a small one.
        channels: of the images.
        outputs: of the network.
        seed: of the initialization.
        init: how weights are drawn.

    Example:
        >>> alexnet(1 / 64)(torch.zeros(2, 3, 64, 64)).shape
        torch.Size([2, 10])
    """
    c1, c2, c3, c4, hidden = (max(1, round(scale * width)) for width in (64, 192, 384, 256, 4096))
    with torch.device("meta"):
        model = nn.Sequential(
            OrderedDict(
                conv1=nn.Conv2d(channels, c1, 11, stride=4, padding=2),
                act1=nn.ReLU(),
                pool1=nn.MaxPool2d(3, stride=2),
                conv2=nn.Conv2d(c1, c2, 5, padding=2),
                act2=nn.ReLU(),
                pool2=nn.MaxPool2d(3, stride=2),
                conv3=nn.Conv2d(c2, c3, 3, padding=1),
                act3=nn.ReLU(),
                conv4=nn.Conv2d(c3, c4, 3, padding=1),
                act4=nn.ReLU(),
                conv5=nn.Conv2d(c4, c4, 3, padding=1),
                act5=nn.ReLU(),
                pool5=nn.MaxPool2d(3, stride=2),
                average=nn.AdaptiveAvgPool2d(6),
                flatten=nn.Flatten(),
                fc1=nn.Linear(c4 * 6 * 6, hidden),
                act6=nn.ReLU(),
                fc2=nn.Linear(hidden, hidden),
                act7=nn.ReLU(),
                fc3=nn.Linear(hidden, outputs),
            )
        )
    return initialized(model, init, seed)
