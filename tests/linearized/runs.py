"""A network and settings of training runs."""

import torch
from torch import nn

from tangentkit.linearized import (
    LinearDecay,
    StepDecay,
    Training,
)

N = 26
X = torch.randn(N, 4, generator=torch.Generator().manual_seed(0)).double()
Y = (X[:, 0] > 0).long() + (X[:, 1] > 0).long()
SETTINGS = {
    "sgd": Training(
        epochs=4, learning_rate=0.05, momentum=0.9, weight_decay=1e-3, batch=8, schedule=LinearDecay()
    ),
    "adam": Training(epochs=4, learning_rate=0.01, optimizer="adam", batch=6, loss="cross-entropy"),
    "adagrad": Training(
        epochs=4, learning_rate=0.1, optimizer="adagrad", batch=8, schedule=StepDecay(2, 0.5)
    ),
    "gradient descent": Training(epochs=4, learning_rate=0.05, batch=None, loss="l2-mean"),
}


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return (
        nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 3))
        .double()
        .eval()
    )


def same(a: nn.Module, b: nn.Module) -> bool:
    return all(
        torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True)
    )
