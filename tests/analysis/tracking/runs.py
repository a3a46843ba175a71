"""A small training to be tracked, the same in every process."""

import os
import signal
from pathlib import Path

import torch
from torch import nn

from tangentkit.analysis import Tracker

MEASURES = ["loss", "ntk", "ck", "weights", "kta", "alignment", "distance", "lazy"]


def problem() -> tuple[nn.Sequential, torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(1)
    x = torch.randn(24, 5, generator=g)
    y = (x[:, 0] * x[:, 1] > 0).long() + (x[:, 2] > 0.5).long()
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(5, 12), nn.ReLU(), nn.Dropout(0.2), nn.Linear(12, 3))
    return model, x, y


def descend(model: nn.Module, x: torch.Tensor, y: torch.Tensor, steps: int, tracker: Tracker | None) -> None:
    """Full-batch steps with dropout from torch's global generator; the tracker sees the start and every step."""
    torch.manual_seed(3)
    sgd = torch.optim.SGD(model.parameters(), lr=0.3)
    model.train()
    if tracker:
        tracker.step(model)
    for _ in range(steps):
        sgd.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        sgd.step()
        if tracker:
            tracker.step(model)


def run(folder=None, *, steps=6, what=("distance", "lazy"), every=2):
    """The training, tracked."""
    model, x, y = problem()
    tracker = Tracker(what, every=every, probe=(x, y), folder=folder, tensorboard=False)
    descend(model, x, y, steps, tracker)
    return tracker


def die_at_step_4(folder: Path) -> None:
    """Tracks until the tensors of step 4 are there, and its record is not yet."""
    replace = os.replace

    def deadly(source, target):
        if str(target).endswith("4.json"):
            os.kill(os.getpid(), signal.SIGKILL)
        replace(source, target)

    os.replace = deadly
    run(folder)
