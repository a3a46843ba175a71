"""Sparse, complex and empty tensors; parameters in lists; models that differentiate themselves."""

from typing import Any

import torch
from torch import Tensor, nn

from cases.case import Zoo
from cases.draws import floats
from cases.formula import Formula

zoo = Zoo()


class Graphs(nn.Module):
    """Two steps along the edges of a graph of five nodes, by its sparse matrix."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 2)
        self.register_buffer("edges", ((torch.arange(25).view(5, 5) % 3) == 1).float().to_sparse())

    def forward(self, x: Tensor) -> Tensor:
        """(n, 5, 3) -> (n, 2)."""
        return self._step(self.b(torch.tanh(self._step(self.a(x))))).sum(1)

    def _step(self, h: Tensor) -> Tensor:
        moved = torch.sparse.mm(self.edges, h.transpose(0, 1).flatten(1))
        return moved.unflatten(1, (len(h), -1)).transpose(0, 1)


class Spectral(nn.Module):
    """A Fourier layer: real maps, and complex weights for the lowest frequencies."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(1, 3), nn.Linear(3, 2)
        self.modes = nn.Parameter(torch.randn(3, 3, 3, dtype=torch.cfloat) / 3)
        self.phase = nn.Parameter(torch.randn(3, dtype=torch.cfloat))
        self.fixed = nn.Parameter(torch.randn(3, dtype=torch.cfloat), requires_grad=False)
        self.register_buffer("shift", torch.randn(3, dtype=torch.cfloat))

    def forward(self, x: Tensor) -> Tensor:
        """(n, 8, 1) -> (n, 2)."""
        h = self.a(x)
        f = torch.fft.rfft(h, dim=1)
        low = torch.einsum("nki,kio->nko", f[:, :3], self.modes) * self.phase + self.fixed * self.shift
        lifted = torch.fft.irfft(torch.cat([low, torch.zeros_like(f[:, 3:])], 1), n=x.shape[1], dim=1)
        return self.b(torch.tanh(lifted + h)).mean(1)


class InLists(nn.Module):
    """Parameters that the code finds in a list, a dict, a closure and a default beside their own names."""

    def __init__(self):
        super().__init__()
        self.v, self.w, self.b = (nn.Parameter(torch.randn(s) / 2) for s in ((3, 4), (4, 2), (2,)))
        self.steps, self.last = [self.v, {"w": (self.w,)}], lambda h, b=self.b: h * b
        w = self.w
        self.again = lambda h: h @ w

    def forward(self, x: Tensor) -> Tensor:
        """(n, 3) -> (n, 2)."""
        h = torch.tanh(x @ self.steps[0])
        return torch.tanh(h @ self.steps[1]["w"][0]) + self.last(self.again(h))


def network(inputs: int = 2) -> nn.Module:
    """A smooth function."""
    return nn.Sequential(nn.Linear(inputs, 5), nn.Tanh(), nn.Linear(5, 1))


def residual(model: Any, x: Tensor) -> Tensor:
    """u_xx + u u_y, as the code of physics-informed networks has it: gradients are taken to be enabled."""
    x = x.requires_grad_()
    u = model(x)
    (slope,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    (bend,) = torch.autograd.grad(slope[:, 0].sum(), x, create_graph=True)
    return bend[:, :1] + u * slope[:, 1:]


zoo("graph network of sparse matrices", Graphs, floats(5, 3))
zoo("fourier layer with complex weights", Spectral, floats(8, 1))
zoo("parameters in lists and closures", InLists, floats(3))
zoo("residual of a differential equation", network, floats(2), forward=residual)
zoo(
    "layers of width zero",
    lambda: Formula(
        lambda m, x: m.b(torch.cat([m.a(x).tanh(), m.none(x)], 1)) + m.rest(m.none(x)),
        a=nn.Linear(3, 4),
        none=nn.Linear(3, 0),
        rest=nn.Linear(0, 2),
        b=nn.Linear(4, 2),
    ),
    floats(3),
)
