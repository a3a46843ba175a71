"""The CNN of the poisoning forensics on CIFAR-10."""

from collections import OrderedDict
from functools import partial

import torch
from torch import nn

from tangentkit.core.errors import InputError
from tangentkit.models.inits import Init, Seed, initialized, pytorch_default


def poisoning_cnn(
    *,
    channels: int = 3,
    size: int = 32,
    outputs: int = 10,
    seed: Seed = 0,
    init: Init = pytorch_default,
) -> nn.Sequential:
    """Three stages of two (conv 3×3, ReLU, BatchNorm) and a max-pool, then three linear layers.

    The stages have 32, 64 and 128 channels. Of the flattened features every four neighbors are max-pooled to
    one; dropout follows, and two hidden layers of 512 with ReLU and BatchNorm.

    Args:
        channels: of the images.
        size: height and width of the images, at least 8.
        outputs: of the network.
        seed: of the initialization.
        init: how weights are drawn.

    Raises:
        InputError: the images are too small to be pooled three times.

    Example:
        >>> poisoning_cnn().eval()(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """
    if size < 8:
        raise InputError("bad image size for the poisoning CNN", expected="at least 8", got=size)
    features = 128 * (size // 8) ** 2
    with torch.device("meta"):
        model = nn.Sequential(
            OrderedDict(
                stage1=_stage(channels, 32),
                stage2=_stage(32, 64),
                stage3=_stage(64, 128),
                # An axis of one channel: without it the pool would take the batch for channels.
                flatten1=nn.Flatten(),
                channel=nn.Unflatten(1, (1, features)),
                pool=nn.MaxPool1d(4),
                flatten2=nn.Flatten(),
                dropout=nn.Dropout(0.2),
                fc1=nn.Linear(features // 4, 512),
                act1=nn.ReLU(),
                bn1=_norm1d(512),
                fc2=nn.Linear(512, 512),
                act2=nn.ReLU(),
                bn2=_norm1d(512),
                fc3=nn.Linear(512, outputs),
            )
        )
    return initialized(model, init, seed)


_norm1d = partial(nn.BatchNorm1d, momentum=0.01, eps=1e-3)
_norm2d = partial(nn.BatchNorm2d, momentum=0.01, eps=1e-3)


def _stage(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(inputs, outputs, 3, padding=1),
            act1=nn.ReLU(),
            bn1=_norm2d(outputs),
            conv2=nn.Conv2d(outputs, outputs, 3, padding=1),
            act2=nn.ReLU(),
            bn2=_norm2d(outputs),
            pool=nn.MaxPool2d(2),
        )
    )
