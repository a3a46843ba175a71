"""A small network with a backdoor, trained once for all tests that ask for it."""

from functools import cache

import torch
from torch import nn

import tangentkit as tk
from tangentkit.core.seeds import Key
from tangentkit.linearized import Training, train

EPOCHS, RATE = 8, 2e-3


def trained(data, *, seed=0, epochs=EPOCHS):
    """A LeNet after some epochs on labeled images."""
    model = tk.models.lenet(seed=seed)
    how = Training(epochs, RATE, optimizer="adam", loss="cross-entropy", batch=64)
    train(model, data.inputs, data.targets, how, key=Key(seed))
    return model.eval()


@cache
def backdoored() -> tuple[nn.Module, tk.data.Data, torch.Tensor]:
    """The network, its training set, and which samples of it are poisoned."""
    dirty, mask = tk.data.poisoned(tk.data.load("fashion-mini", "train"), key=Key(0))
    return trained(dirty), dirty, mask
