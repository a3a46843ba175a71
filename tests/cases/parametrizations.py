"""Weights made of other parameters: parametrizations and adapters."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cases.case import Zoo
from cases.draws import floats
from cases.formula import Formula

zoo = Zoo()

_p = nn.utils.parametrizations
zoo(
    "weight norm",
    lambda: nn.Sequential(_p.weight_norm(nn.Linear(4, 5)), nn.Tanh(), _p.weight_norm(nn.Linear(5, 2))),
    floats(4),
)
zoo(
    "weight norm of a convolution",
    lambda: nn.Sequential(_p.weight_norm(nn.Conv1d(2, 3, 2)), nn.Tanh(), nn.Flatten(), nn.Linear(9, 2)),
    floats(2, 4),
)
zoo(
    "spectral norm",
    lambda: nn.Sequential(_p.spectral_norm(nn.Linear(4, 5)), nn.Tanh(), nn.Linear(5, 2)),
    floats(4),
)
zoo(
    "orthogonal", lambda: nn.Sequential(_p.orthogonal(nn.Linear(4, 4)), nn.Tanh(), nn.Linear(4, 2)), floats(4)
)
zoo(
    "old weight norm",
    lambda: nn.Sequential(nn.utils.weight_norm(nn.Linear(4, 5)), nn.Tanh(), nn.Linear(5, 2)),
    floats(4),
)


class Adapter(nn.Module):
    """A frozen layer and a low-rank correction."""

    def __init__(self, base: nn.Linear, rank: int = 2):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(rank, base.in_features))
        self.b = nn.Parameter(torch.randn(base.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        """W x + B A x / 2."""
        return self.base(x) + x @ self.a.T @ self.b.T / 2


zoo("lora", lambda: nn.Sequential(Adapter(nn.Linear(4, 5)), nn.Tanh(), Adapter(nn.Linear(5, 2))), floats(4))
zoo(
    "lora merged",
    lambda: Formula(
        lambda m, x: F.linear(x, m.f.weight + m.b @ m.a, m.f.bias).tanh(),
        f=nn.Linear(4, 3).requires_grad_(False),
        a=(2, 4),
        b=(3, 2),
    ),
    floats(4),
)
