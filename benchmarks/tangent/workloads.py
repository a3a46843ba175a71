"""The models and batches that every contender gets."""

import torch
from torch import nn

from tangentkit import models

C = {"mlp": 10, "lenet": 10, "resnet18": 10, "transformer": 2}
"""Outputs of each model."""


class Transformer(nn.Module):
    """Four encoder layers of width 256 over 32 tokens, two outputs."""

    def __init__(self, width: int = 256, layers: int = 4, vocabulary: int = 1000):
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
        self.embedding = nn.Embedding(vocabulary, width)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 2)

    def forward(self, ids):
        return self.head(self.encoder(self.embedding(ids)).mean(1))


def mlp(width: int = 512, outputs: int = 10) -> nn.Module:
    """784 - width - width - outputs."""
    return nn.Sequential(
        nn.Linear(784, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, outputs)
    )


def workload(name: str, n: int) -> tuple[nn.Module, torch.Tensor]:
    """A model in evaluation mode and n samples, the same in every process."""
    torch.manual_seed(0)
    if name == "mlp":
        return mlp(), torch.randn(n, 784)
    if name == "lenet":
        return models.lenet().eval(), torch.randn(n, 1, 28, 28)
    if name == "resnet18":
        return models.resnet18(outputs=10, zero_init_residual=False).eval(), torch.randn(n, 3, 32, 32)
    if name == "transformer":
        return Transformer().eval(), torch.randint(0, 1000, (n, 32))
    raise KeyError(name)
