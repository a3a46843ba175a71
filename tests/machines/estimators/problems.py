"""Kernels, features and networks that regressors are tried on."""

import torch
from torch import nn

from tangentkit.core.seeds import Key

DUAL = ["cholesky", "eigh", "cg"]


ALL = [*DUAL, "features", "normal"]


def features(n, d, *, seed=0):
    return torch.randn(n, d, dtype=torch.float64, generator=Key(seed).fold(n, d).torch())


def kernel_of(n, *, seed=0):
    Phi = features(n, n + 5, seed=seed)
    return Phi @ Phi.T / n


def network(outputs=2):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, outputs)).double()
