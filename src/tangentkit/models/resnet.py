"""ResNet-18 for small images, and the basic block that all residual networks here are made of."""

from collections import OrderedDict

import torch
from torch import Tensor, nn

from tangentkit.models.inits import Init, Seed, initialized, lecun_normal
from tangentkit.models.layers import Activation


class BasicBlock(nn.Module):
    """`σ(shortcut(x) + BN(conv(σ(BN(conv(x))))))` with 3×3 convolutions, the first one strided."""

    def __init__(
        self, inputs: int, outputs: int, *, stride: int, shortcut: nn.Module, activation: Activation = nn.ReLU
    ):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.act1 = activation()
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = shortcut
        self.act2 = activation()

    def forward(self, x: Tensor) -> Tensor:
        """The block's output; a stride of 2 halves height and width."""
        residual = self.bn2(self.conv2(self.act1(self.bn1(self.conv1(x)))))
        return self.act2(self.shortcut(x) + residual)


def resnet18(
    *,
    channels: int = 3,
    outputs: int = 1,
    width: int = 64,
    activation: Activation = nn.ReLU,
    zero_init_residual: bool = True,
    seed: Seed = 0,
    init: Init = lecun_normal,
) -> nn.Sequential:
    """ResNet-18 with a 3×3 stem: four stages of two basic blocks, a global mean and a linear layer.

    The defaults are those of the eigenfunction studies; outputs=10 gives the usual network for CIFAR-10.
    (Strided convolutions pad by one pixel on each side; SAME padding in JAX pads one side only.)

    Args:
        channels: of the images.
        outputs: of the network.
        width: channels of the stem; the stages have 1, 2, 4 and 8 times as many.
        activation: class of the activation.
        zero_init_residual: start with zero scales in the last norm of each block. Blocks are then only their
            shortcuts, and of their residual branches only that norm has a gradient.
        seed: of the initialization.
        init: how weights are drawn.

    Example:
        >>> resnet18(width=4, outputs=10).eval()(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """
    with torch.device("meta"):
        model = nn.Sequential(
            OrderedDict(
                conv1=nn.Conv2d(channels, width, 3, padding=1, bias=False),
                bn1=nn.BatchNorm2d(width),
                act1=activation(),
                layer1=_stage(width, width, stride=1, activation=activation),
                layer2=_stage(width, 2 * width, stride=2, activation=activation),
                layer3=_stage(2 * width, 4 * width, stride=2, activation=activation),
                layer4=_stage(4 * width, 8 * width, stride=2, activation=activation),
                pool=nn.AdaptiveAvgPool2d(1),
                flatten=nn.Flatten(),
                fc=nn.Linear(8 * width, outputs),
            )
        )
    initialized(model, init, seed)
    if zero_init_residual:
        for block in model.modules():
            if isinstance(block, BasicBlock):
                nn.init.zeros_(block.bn2.weight)
    return model


def _stage(inputs: int, outputs: int, *, stride: int, activation: Activation) -> nn.Sequential:
    projection = nn.Sequential(
        OrderedDict(
            conv=nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False),
            bn=nn.BatchNorm2d(outputs),
        )
    )
    first = projection if stride > 1 or inputs != outputs else nn.Identity()
    return nn.Sequential(
        BasicBlock(inputs, outputs, stride=stride, shortcut=first, activation=activation),
        BasicBlock(outputs, outputs, stride=1, shortcut=nn.Identity(), activation=activation),
    )
