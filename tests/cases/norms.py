"""Normalizations."""

import torch
from torch import nn

from cases.case import Zoo
from cases.draws import floats
from cases.formula import Formula

zoo = Zoo()

zoo(
    "layer norm",
    lambda: nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.Tanh(), nn.Linear(5, 2)),
    floats(4),
)
zoo(
    "layer norm over two axes of tokens",
    lambda: Formula(
        lambda m, x: m.b(m.n(m.a(x)).flatten(1)),
        a=nn.Linear(3, 4),
        n=nn.LayerNorm([3, 4], bias=False),
        b=nn.Linear(12, 2),
    ),
    floats(3, 3),
)
zoo(
    "layer norm on tokens, sequence first",
    lambda: Formula(
        lambda m, x: m.b(m.n(m.a(x.transpose(0, 1))).tanh()).sum(0),
        a=nn.Linear(3, 4),
        n=nn.LayerNorm(4),
        b=nn.Linear(4, 2),
    ),
    floats(3, 3),
)
zoo(
    "group norm",
    lambda: nn.Sequential(nn.Conv2d(2, 4, 2), nn.GroupNorm(2, 4), nn.Tanh(), nn.Flatten(), nn.Linear(16, 2)),
    floats(2, 3, 3),
)
zoo(
    "group norm of vectors",
    lambda: nn.Sequential(nn.Linear(3, 6), nn.GroupNorm(3, 6), nn.Tanh(), nn.Linear(6, 2)),
    floats(3),
)
zoo(
    "instance norm 1d",
    lambda: nn.Sequential(
        nn.Conv1d(2, 3, 2), nn.InstanceNorm1d(3, affine=True), nn.Tanh(), nn.Flatten(), nn.Linear(12, 2)
    ),
    floats(2, 5),
)
zoo(
    "instance norm 2d",
    lambda: nn.Sequential(
        nn.Conv2d(2, 3, 2),
        nn.InstanceNorm2d(3, affine=True, track_running_stats=True),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(12, 2),
    ),
    floats(2, 3, 3),
)
zoo(
    "instance norm 2d, own statistics",
    lambda: nn.Sequential(
        nn.Conv2d(2, 3, 2), nn.InstanceNorm2d(3, affine=True), nn.Tanh(), nn.Flatten(), nn.Linear(12, 2)
    ),
    floats(2, 3, 3),
)
zoo("rms norm", lambda: nn.Sequential(nn.Linear(4, 5), nn.RMSNorm(5), nn.Tanh(), nn.Linear(5, 2)), floats(4))
zoo(
    "rms norm by hand",
    lambda: Formula(
        lambda m, x: m.b(x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * m.g).mean(1),
        g=(3,),
        b=nn.Linear(3, 2),
    ),
    floats(4, 3),
)
zoo(
    "batch norm 1d",
    lambda: nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 2)),
    floats(4),
)
zoo(
    "batch norm 1d over positions",
    lambda: nn.Sequential(nn.Conv1d(2, 3, 2), nn.BatchNorm1d(3), nn.Tanh(), nn.Flatten(), nn.Linear(12, 2)),
    floats(2, 5),
)
zoo(
    "batch norm 2d",
    lambda: nn.Sequential(nn.Conv2d(2, 3, 2), nn.BatchNorm2d(3), nn.Tanh(), nn.Flatten(), nn.Linear(12, 2)),
    floats(2, 3, 3),
)
zoo(
    "local response norm",
    lambda: nn.Sequential(nn.Conv2d(2, 4, 2), nn.LocalResponseNorm(2), nn.Flatten(), nn.Linear(16, 2)),
    floats(2, 3, 3),
)
