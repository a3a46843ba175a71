"""Optimizers walk on the linearized model as on the linear model with features J."""

import pytest
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from cases import gap
from linearized.displaced import X, network
from tangentkit import reference
from tangentkit.core.seeds import Key
from tangentkit.linearized import linearize


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (torch.optim.SGD, {"lr": 0.05}),
        (torch.optim.SGD, {"lr": 0.01, "momentum": 0.9, "nesterov": True, "weight_decay": 1e-2}),
        (torch.optim.Adam, {"lr": 0.01}),
        (torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.1}),
        (torch.optim.Adagrad, {"lr": 0.05}),
        (torch.optim.RMSprop, {"lr": 0.01}),
        (torch.optim.NAdam, {"lr": 0.01}),
        (torch.optim.Rprop, {"lr": 0.01}),
        (torch.optim.LBFGS, {"lr": 0.5, "max_iter": 5}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_every_optimizer_walks_as_on_the_features(make, options):
    net = network().eval()
    j, f0 = reference.jacobian(net, X), net(X).detach()
    targets = torch.randn(7, 2, generator=Key(4).torch()).double()
    model = linearize(net)
    flat = torch.zeros(j.shape[2], dtype=torch.float64, requires_grad=True)

    def walk(parameters, predict):
        optimizer = make(parameters, **options)

        def loss():
            optimizer.zero_grad()
            value = (predict() - targets).square().mean()
            value.backward()
            return value

        for _ in range(12):
            optimizer.step(loss)
        return predict().detach()

    features = walk([flat], lambda: f0 + j @ flat)
    assert gap(walk(model.parameters(), lambda: model(X)), features) <= 1e-8
    assert (features - targets).norm() < (f0 - targets).norm()


def test_schedulers_and_loaders():
    net = network().eval()
    model = linearize(net)
    loader = DataLoader(TensorDataset(X, X[:, :2].clone()), batch_size=3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.05, total_steps=60)
    losses = []
    for _ in range(20):
        total = 0.0
        for x, y in loader:
            loss = F.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            total += loss.item()
        losses.append(total)
    assert losses[-1] < losses[0] / 2
