"""Layers at many positions: tokens, orders of rows, sample axes."""

import torch
from torch import nn
from torch.nn import functional as F

from cases.case import Zoo
from cases.draws import floats
from cases.formula import Formula

zoo = Zoo()

for _t in (1, 2, 3, 4, 6, 7, 31):
    zoo(
        f"last of {_t} tokens",
        lambda: Formula(lambda m, x: m.b(torch.tanh(m.a(x)))[:, -1], a=nn.Linear(3, 4), b=nn.Linear(4, 2)),
        floats(_t, 3),
    )
    zoo(
        f"last of {_t} tokens, sequence first",
        lambda: Formula(
            lambda m, x: m.b(torch.tanh(m.a(x.transpose(0, 1).contiguous())))[-1],
            a=nn.Linear(3, 4),
            b=nn.Linear(4, 2),
        ),
        floats(_t, 3),
    )
zoo(
    "linear over tokens",
    lambda: Formula(lambda m, x: m.b(F.relu(m.a(x)).mean(1)), a=nn.Linear(3, 5), b=nn.Linear(5, 2)),
    floats(4, 3),
)
zoo(
    "linear over two extra axes",
    lambda: Formula(lambda m, x: m.b(F.relu(m.a(x)).sum((1, 2))), a=nn.Linear(3, 5), b=nn.Linear(5, 2)),
    floats(2, 3, 3),
)
zoo(
    "sequence first, mean",
    lambda: Formula(
        lambda m, x: m.b(F.relu(m.a(x.transpose(0, 1).contiguous()))).mean(0),
        a=nn.Linear(3, 5),
        b=nn.Linear(5, 2),
    ),
    floats(4, 3),
)
zoo(
    "sample axis in the middle",
    lambda: Formula(
        lambda m, x: m.b(F.relu(m.a(x.permute(1, 0, 2, 3).contiguous()))).mean((0, 2)),
        a=nn.Linear(3, 4),
        b=nn.Linear(4, 2),
    ),
    floats(3, 2, 3),
)
zoo(
    "sample axis in the middle, one position read",
    lambda: Formula(
        lambda m, x: m.b(F.relu(m.a(x.permute(1, 0, 2, 3).contiguous())))[1, :, 0],
        a=nn.Linear(3, 4),
        b=nn.Linear(4, 2),
    ),
    floats(3, 2, 3),
)
zoo(
    "sample axis last",
    lambda: Formula(lambda m, x: (m.b @ torch.tanh(m.a @ x.T + m.c)).T, a=(5, 4), c=(5, 1), b=(2, 5)),
    floats(4),
)
zoo(
    "samples flattened with heads",
    lambda: Formula(
        lambda m, x: m.b(
            torch.tanh(m.a(x.unflatten(1, (2, 3)).flatten(0, 1))).unflatten(0, (-1, 2)).flatten(1)
        ),
        a=nn.Linear(3, 4),
        b=nn.Linear(8, 2),
    ),
    floats(6),
)
zoo(
    "heads flattened with samples",
    lambda: Formula(
        lambda m, x: m.b(
            torch.tanh(m.a(x.unflatten(1, (2, 3)).transpose(0, 1).flatten(0, 1))).unflatten(0, (2, -1)).sum(0)
        ),
        a=nn.Linear(3, 4),
        b=nn.Linear(4, 2),
    ),
    floats(6),
)
zoo(
    "unfolded windows",
    lambda: Formula(lambda m, x: m.a(x.unfold(1, 3, 2)).amax(1), a=nn.Linear(3, 4)),
    floats(9),
)
zoo(
    "mixer",
    lambda: Formula(
        lambda m, x: m.head((x + m.tokens(x.mT).tanh().mT + m.channels(x).tanh()).mean(1)),
        tokens=nn.Linear(4, 4),
        channels=nn.Linear(3, 3),
        head=nn.Linear(3, 2),
    ),
    floats(4, 3),
)
zoo(
    "head per position",
    lambda: Formula(lambda m, x: torch.einsum("ntd,tde->ne", x, m.w).tanh(), w=(4, 3, 2)),
    floats(4, 3),
)
zoo(
    "only some positions",
    lambda: Formula(lambda m, x: m.b(m.a(x)[:, 1:3].tanh().flatten(1)), a=nn.Linear(3, 2), b=nn.Linear(4, 2)),
    floats(5, 3),
)
