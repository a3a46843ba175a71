"""Residual, dense and gated blocks."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cases.case import Zoo
from cases.draws import floats
from cases.formula import Formula

zoo = Zoo()

zoo(
    "residual",
    lambda: Formula(
        lambda m, x: m.c(x + m.b(F.relu(m.a(x)))), a=nn.Linear(4, 6), b=nn.Linear(6, 4), c=nn.Linear(4, 2)
    ),
    floats(4),
)
zoo(
    "residual convolutions",
    lambda: Formula(
        lambda m, x: m.c((x + m.b(F.relu(m.n(m.a(x))))).mean((2, 3))),
        a=nn.Conv2d(2, 3, 3, padding=1),
        n=nn.BatchNorm2d(3),
        b=nn.Conv2d(3, 2, 3, padding=1),
        c=nn.Linear(2, 2),
    ),
    floats(2, 4, 4),
)
zoo(
    "dense",
    lambda: Formula(lambda m, x: m.c(_dense(m, x)), a=nn.Linear(4, 3), b=nn.Linear(7, 3), c=nn.Linear(10, 2)),
    floats(4),
)
zoo(
    "gated",
    lambda: Formula(
        lambda m, x: m.c(torch.sigmoid(m.a(x)) * m.b(x)),
        a=nn.Linear(4, 5),
        b=nn.Linear(4, 5),
        c=nn.Linear(5, 2),
    ),
    floats(4),
)
zoo("glu", lambda: nn.Sequential(nn.Linear(4, 10), nn.GLU(), nn.Linear(5, 2)), floats(4))
zoo(
    "squeeze and excitation",
    lambda: Formula(
        lambda m, x: m.c((m.a(x) * torch.sigmoid(m.b(m.a(x).mean((2, 3))))[:, :, None, None]).flatten(1)),
        a=nn.Conv2d(2, 3, 2),
        b=nn.Linear(3, 3),
        c=nn.Linear(12, 2),
    ),
    floats(2, 3, 3),
)
zoo(
    "soft mixture of experts",
    lambda: Formula(
        lambda m, x: (torch.softmax(m.g(x), 1)[:, :, None] * torch.einsum("ni,eio->neo", x, m.e)).sum(1),
        g=nn.Linear(4, 3),
        e=(3, 4, 2),
    ),
    floats(4),
)


def _dense(m: Any, x: Tensor) -> Tensor:
    h = torch.cat([x, F.relu(m.a(x))], 1)
    return torch.cat([h, F.relu(m.b(h))], 1)
