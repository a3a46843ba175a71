"""The narrow ResNets for CIFAR-10 of He et al. (2016), of depth 6n + 2, with parameter-free shortcuts."""

from collections import OrderedDict

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tangentkit.core.errors import InputError
from tangentkit.models.inits import Init, Seed, initialized, pytorch_default
from tangentkit.models.resnet import BasicBlock


class PaddedShortcut(nn.Module):
    """Shortcut without parameters ("option A"): every second pixel, and zero channels on both sides."""

    def __init__(self, channels: int):
        super().__init__()
        self.channels = channels

    def forward(self, x: Tensor) -> Tensor:
        """(n, c, h, w) -> (n, channels, ⌈h/2⌉, ⌈w/2⌉)."""
        extra = self.channels - x.shape[1]
        return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, extra // 2, extra - extra // 2))


def cifar_resnet(
    depth: int = 20, *, outputs: int = 10, seed: Seed = 0, init: Init = pytorch_default
) -> nn.Sequential:
    """ResNet-20, 32, 44, 56, ...: three stages of (depth - 2)/6 basic blocks with 16, 32 and 64 channels.

    `load_cifar_resnet` gives the trained ones, whose checkpoints fit the names of the parameters here.

    Args:
        depth: 6n + 2 layers.
        outputs: of the network.
        seed: of the initialization.
        init: how weights are drawn.

    Raises:
        InputError: the depth is not 6n + 2.

    Example:
        >>> cifar_resnet(8).eval()(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """
    blocks, rest = divmod(depth - 2, 6)
    if blocks < 1 or rest:
        raise InputError("bad depth", expected="6n + 2, such as 20, 32, 44 or 56", got=depth)
    with torch.device("meta"):
        model = nn.Sequential(
            OrderedDict(
                conv1=nn.Conv2d(3, 16, 3, padding=1, bias=False),
                bn1=nn.BatchNorm2d(16),
                act1=nn.ReLU(),
                layer1=_stage(16, 16, blocks),
                layer2=_stage(16, 32, blocks),
                layer3=_stage(32, 64, blocks),
                pool=nn.AdaptiveAvgPool2d(1),
                flatten=nn.Flatten(),
                linear=nn.Linear(64, outputs),
            )
        )
    return initialized(model, init, seed)


def _stage(inputs: int, outputs: int, blocks: int) -> nn.Sequential:
    if inputs == outputs:
        first = BasicBlock(inputs, outputs, stride=1, shortcut=nn.Identity())
    else:
        first = BasicBlock(inputs, outputs, stride=2, shortcut=PaddedShortcut(outputs))
    others = (BasicBlock(outputs, outputs, stride=1, shortcut=nn.Identity()) for _ in range(blocks - 1))
    return nn.Sequential(first, *others)
