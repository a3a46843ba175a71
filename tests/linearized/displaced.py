"""A network, its linearization, and displacements of it."""

import torch
from torch import nn

from cases import Case
from tangentkit.core.model.functions import call
from tangentkit.core.seeds import Key
from tangentkit.linearized import LinearizedModel


def on_batch(model, case: Case, batch):
    """A network, or its linearization, on a batch of its case."""
    if case.forward is None:
        return call(model, batch)
    return model(batch) if isinstance(model, LinearizedModel) else case.forward(model, batch)


def displace(model: nn.Module, seed: int = 1, scale: float = 1.0) -> torch.Tensor:
    """Random displacements, also as one vector."""
    generator = Key(seed).torch()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(scale * torch.randn(p.shape, generator=generator))
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def flat_gradient(model: nn.Module) -> torch.Tensor:
    return torch.cat(
        [(p.grad if p.grad is not None else torch.zeros_like(p)).flatten() for p in model.parameters()]
    )


def network() -> nn.Sequential:
    """With everything that evaluation mode is about."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(3, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Dropout(0.5), nn.Linear(6, 2)
    ).double()
    model(torch.randn(20, 3).double())  # in training mode: statistics of its own
    return model.eval()


X = torch.randn(7, 3, generator=torch.Generator().manual_seed(1)).double()
