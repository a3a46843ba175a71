"""Batches of other structure, outputs of other kinds."""

import torch
from torch import nn

from cases.case import Zoo
from cases.draws import floats, joined, named, tokens
from cases.formula import Formula

zoo = Zoo()

zoo(
    "tuple of inputs",
    lambda: Formula(lambda m, a, b: m.a(a) * m.b(b), a=nn.Linear(3, 2), b=nn.Linear(4, 2)),
    joined(floats(3), floats(4)),
)
zoo(
    "dict with constants",
    lambda: Formula(
        lambda m, x, scale, flag, none: m.a(x) * scale if flag and none is None else m.b(x),
        a=nn.Linear(3, 2),
        b=nn.Linear(3, 2),
    ),
    named(x=floats(3), scale=2.5, flag=True, none=None),
    unused=True,
)
zoo(
    "nested batch",
    lambda: Formula(lambda m, x: m.a(x["a"][0]).tanh() + m.a(x["a"][1]), a=nn.Linear(3, 2)),
    named(a=joined(floats(3), floats(3))),
    forward=lambda m, batch: m(batch),
)
zoo(
    "integer inputs to a float network",
    lambda: Formula(lambda m, i: m.a(i.to(m.a.weight.dtype)).tanh(), a=nn.Linear(3, 2)),
    tokens(9, 3),
)
zoo(
    "forward picks outputs",
    lambda: nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 8)),
    floats(4),
    forward=lambda m, x: m(x).log_softmax(1)[:, 2:5],
)
zoo(
    "outputs of all tokens",
    lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)),
    floats(3, 3),
    forward=lambda m, x: m(x).flatten(1),
)
zoo(
    "scalar output by squeeze",
    lambda: nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1)),
    floats(4),
    forward=lambda m, x: m(x).squeeze(1)[:, None],
)
zoo(
    "normalized outputs",
    lambda: nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)),
    floats(4),
    forward=lambda m, x: m(x).softmax(1) * torch.tensor([1.0, -2.0, 3.0]),
)
