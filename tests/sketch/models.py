"""Small networks of three families, with batches."""

import torch
from torch import nn

from tangentkit.models import TransformerClassifier


def mlp():
    return nn.Sequential(nn.Linear(12, 14), nn.ReLU(), nn.Linear(14, 10), nn.Tanh(), nn.Linear(10, 2))


def cnn():
    return nn.Sequential(
        nn.Conv2d(2, 6, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(6, 5, 2), nn.ReLU(), nn.Flatten(),
        nn.Linear(20, 2),
    )  # fmt: skip


def transformer():
    return TransformerClassifier(12, length=5, width=6, depth=1, heads=2, outputs=2)


DRAWS = {
    "mlp": (mlp, lambda rng, n: torch.randn(n, 12, generator=rng).double()),
    "cnn": (cnn, lambda rng, n: torch.randn(n, 2, 6, 6, generator=rng).double()),
    "transformer": (transformer, lambda rng, n: torch.randint(12, (n, 5), generator=rng)),
}


def network(family, n=5):
    """A model in float64 and n samples, the same every time."""
    make, draw = DRAWS[family]
    with torch.random.fork_rng():
        torch.manual_seed(7)
        model = make().double().eval()
        with torch.no_grad():
            for p in model.parameters():
                p.add_(0.2 * torch.randn_like(p))
    return model, draw(torch.Generator().manual_seed(1), n)
