"""Perceptrons, and which of their parameters are asked for."""

import torch
from torch import nn

from cases.case import Zoo
from cases.draws import floats
from cases.formula import Formula

zoo = Zoo()

zoo("linear", lambda: nn.Linear(4, 3), floats(4))
zoo("linear without bias", lambda: nn.Linear(4, 3, bias=False), floats(4))
zoo(
    "mlp",
    lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 7), nn.Tanh(), nn.Linear(7, 3)),
    floats(4),
)
zoo(
    "mlp of many activations",
    lambda: nn.Sequential(
        nn.Linear(4, 6),
        nn.GELU(),
        nn.Linear(6, 6),
        nn.SiLU(),
        nn.Linear(6, 6),
        nn.Softplus(),
        nn.Linear(6, 6),
        nn.ELU(),
        nn.Linear(6, 6),
        nn.Hardtanh(),
        nn.Linear(6, 6),
        nn.Mish(),
        nn.Linear(6, 2),
    ),
    floats(4),
)
zoo("scalar output", lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)), floats(4))
zoo("hundred outputs", lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 100)), floats(4))
zoo(
    "in-place relu",
    lambda: nn.Sequential(
        nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 8), nn.ReLU(True), nn.Linear(8, 3)
    ),
    floats(4),
)
zoo("in-place relu first", lambda: nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 3)), floats(4))
zoo(
    "dropout in evaluation",
    lambda: nn.Sequential(nn.Linear(4, 8), nn.Dropout(), nn.ReLU(), nn.Linear(8, 3)),
    floats(4),
)
zoo(
    "flattened images",
    lambda: nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.ReLU(), nn.Linear(5, 2)),
    floats(3, 2, 2),
)
zoo(
    "linear on non-contiguous input",
    lambda: Formula(lambda m, x: m.a(x.mT[:, ::2]).flatten(1), a=nn.Linear(3, 2)),
    floats(3, 5),
)
zoo(
    "non-contiguous parameter",
    lambda: Formula(lambda m, x: torch.tanh(x @ m.w), w=nn.Parameter(torch.randn(3, 4).T)),
    floats(4),
)
zoo(
    "frozen first layer",
    lambda: nn.Sequential(nn.Linear(4, 6).requires_grad_(False), nn.Tanh(), nn.Linear(6, 3)),
    floats(4),
)
zoo(
    "frozen middle layer",
    lambda: nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 6).requires_grad_(False), nn.Linear(6, 3)),
    floats(4),
)
zoo(
    "parameters by name",
    lambda: nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)),
    floats(4),
    params=["2.bias", "0.weight"],
)
zoo(
    "parameters by predicate",
    lambda: nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3).requires_grad_(False)),
    floats(4),
    params=lambda _, p: p.ndim == 2,
)
zoo(
    "biases only",
    lambda: nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)),
    floats(4),
    params=["0.bias", "2.bias"],
)
