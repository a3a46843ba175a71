"""Convolutions of all kinds."""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

from cases.case import Zoo
from cases.draws import Draw, floats
from cases.formula import Formula

zoo = Zoo()


def conv(layer: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    """A convolution, an activation and all its outputs summed to three."""
    return lambda: nn.Sequential(layer(), nn.Tanh(), nn.Flatten(), nn.LazyLinear(3))


def lazy(make: Callable[[], nn.Module], draw: Draw) -> Callable[[], nn.Module]:
    """A module with lazy layers, initialized by a batch."""

    def made() -> nn.Module:
        model = make()
        model(draw(torch.Generator().manual_seed(0), 2))
        return model

    return made


for _name, _layer, _shape in [
    ("conv1d", lambda: nn.Conv1d(3, 4, 3), (3, 7)),
    ("conv1d stride dilation padding", lambda: nn.Conv1d(3, 4, 3, stride=2, dilation=2, padding=3), (3, 9)),
    ("conv1d 1x1", lambda: nn.Conv1d(3, 4, 1), (3, 5)),
    ("conv2d", lambda: nn.Conv2d(3, 4, 3), (3, 5, 6)),
    ("conv2d without bias", lambda: nn.Conv2d(2, 3, 3, bias=False), (2, 5, 5)),
    ("conv2d stride padding", lambda: nn.Conv2d(2, 4, (3, 2), stride=(2, 1), padding=(1, 2)), (2, 5, 4)),
    ("conv2d dilation", lambda: nn.Conv2d(2, 3, 2, dilation=(2, 3)), (2, 5, 5)),
    ("conv2d groups", lambda: nn.Conv2d(4, 6, 3, groups=2, padding=1), (4, 4, 4)),
    ("conv2d depthwise", lambda: nn.Conv2d(4, 4, 3, groups=4, padding=1), (4, 4, 4)),
    ("conv2d depthwise multiplier", lambda: nn.Conv2d(3, 6, 2, groups=3), (3, 4, 4)),
    ("conv2d same with even kernel", lambda: nn.Conv2d(2, 3, (2, 4), padding="same"), (2, 4, 5)),
    ("conv2d whole image", lambda: nn.Conv2d(2, 5, 4), (2, 4, 4)),
    ("conv3d", lambda: nn.Conv3d(2, 3, 2, stride=(1, 2, 1), padding=1), (2, 3, 3, 2)),
    ("conv3d groups", lambda: nn.Conv3d(2, 4, (1, 2, 2), groups=2), (2, 2, 3, 3)),
    ("transposed conv1d", lambda: nn.ConvTranspose1d(3, 2, 3, stride=2, padding=1, output_padding=1), (3, 4)),
    ("transposed conv2d", lambda: nn.ConvTranspose2d(3, 2, 3, stride=2, dilation=2), (3, 3, 2)),
    ("transposed conv2d groups", lambda: nn.ConvTranspose2d(4, 6, 2, stride=2, groups=2), (4, 3, 3)),
    ("transposed conv3d", lambda: nn.ConvTranspose3d(2, 2, 2, stride=2, padding=1), (2, 2, 3, 2)),
    *[
        (f"conv2d {mode} padding", lambda mode=mode: nn.Conv2d(2, 3, 3, padding=1, padding_mode=mode), (2, 4, 4))  # pyright: ignore
        for mode in ("circular", "reflect", "replicate")
    ],
]:  # fmt: skip
    zoo(_name, lazy(conv(_layer), floats(*_shape)), floats(*_shape))

zoo(
    "small convolutional network",
    lambda: nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 4, 3, padding=1),
        nn.GroupNorm(2, 4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 3),
    ),
    floats(2, 6, 6),
)
zoo(
    "conv in channels-last memory",
    lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(36, 2)),
    lambda g, n: torch.randn(n, 3, 5, 5, generator=g).to(memory_format=torch.channels_last),
)
zoo(
    "conv at two resolutions",
    lambda: Formula(
        lambda m, x: torch.cat(
            [m.conv(x).tanh().mean((2, 3)), m.conv(F.avg_pool2d(x, 2)).tanh().mean((2, 3))], 1
        ),
        conv=nn.Conv2d(2, 3, 2),
    ),
    floats(2, 6, 6),
)
zoo(
    "conv over frames",
    lambda: Formula(
        lambda m, x: m.conv(x.flatten(0, 1)).tanh().unflatten(0, x.shape[:2]).mean((1, 3, 4)),
        conv=nn.Conv2d(2, 3, 2),
    ),
    floats(3, 2, 4, 4),
)
zoo(
    "conv on reshaped tokens",
    lambda: Formula(
        lambda m, x: m.head(m.conv(m.embed(x).mT.unflatten(2, (2, 3))).flatten(1)),
        embed=nn.Linear(3, 4),
        conv=nn.Conv2d(4, 2, 2),
        head=nn.Linear(4, 2),
    ),
    floats(6, 3),
)
zoo(
    "unet",
    lambda: Formula(
        lambda m, x: m.out(torch.cat([m.up(F.relu(m.down(x))), x], 1)).mean(3).flatten(1),
        down=nn.Conv2d(2, 3, 2, stride=2),
        up=nn.ConvTranspose2d(3, 2, 2, stride=2),
        out=nn.Conv2d(4, 1, 1),
    ),
    floats(2, 4, 4),
)
zoo(
    "pixel shuffle and interpolate",
    lambda: Formula(
        lambda m, x: F.interpolate(F.pixel_shuffle(m.conv(x), 2), scale_factor=0.5, mode="nearest").flatten(
            1
        )[:, ::3],
        conv=nn.Conv2d(2, 4, 3),
    ),
    floats(2, 5, 5),
)
zoo(
    "weights from a sample",
    lambda: Formula(
        lambda m, x: torch.einsum("ni,nio->no", x, m.hyper(x).unflatten(1, (4, 3))), hyper=nn.Linear(4, 12)
    ),
    floats(4),
)
