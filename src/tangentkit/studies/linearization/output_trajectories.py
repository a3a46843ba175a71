"""The outputs of a network and of its linearization while they are trained alike: their paths, and their statistics.

Two paths may be far apart at every moment and yet spread alike over images. So paths are compared image by image, by
the mean of |f - f_lin|, and statistics by the least such mean that any pairing of the two models' outputs has: the
Wasserstein distance of their distributions, which is at most that of the paths.
"""

from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from scipy.stats import wasserstein_distance
from torch import Tensor, nn

from tangentkit.core.errors import InputError
from tangentkit.core.seeds import Key
from tangentkit.linearized import Training, linearize, train
from tangentkit.models import lenet
from tangentkit.studies.linearization.images import drawn_images
from tangentkit.studies.linearization.output_trajectories_result import SHOWN
from tangentkit.studies.linearization.output_trajectories_result import result as result
from tangentkit.studies.trials.data import cards, first_here
from tangentkit.studies.trials.fields import check_rising
from tangentkit.studies.trials.trial import Trial, sweep


@dataclass(frozen=True)
class Config:
    """Settings of the study of output trajectories."""

    data: tuple[str, ...] = ("mnist", "fashion-mini")
    """The images, in order of preference."""
    train: int = 512
    """Training images."""
    watched: int = 200
    """Test images whose outputs are followed."""
    widths: tuple[float, ...] = (1.0, 2.0, 4.0)
    """The k of LeNet×k, rising."""
    epochs: int = 12
    """Passes over the training images; outputs are read after each."""
    learning_rate: float = 0.1
    """Of both models, as published."""
    loss: Literal["l2", "l2-mean"] = "l2-mean"
    """Squared error, summed or averaged over the outputs: the publication does not say which."""
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    """Each has its own images, initialization and mini-batches."""

    def __post_init__(self) -> None:
        check_rising("widths", self.widths)
        if self.watched < SHOWN:
            raise InputError("bad watched", expected=f"at least {SHOWN} images", got=self.watched)


SCALES = {
    "quick": Config(),
    "evening": Config(train=2000, watched=500, epochs=15),
    "full": Config(train=60_000, watched=1000, widths=(1.0, 2.0, 5.0, 10.0, 25.0, 60.0), epochs=100),
}


def trials(config: Config) -> list[Trial]:
    """One for each width and seed."""
    fixed = {name: getattr(config, name) for name in ("train", "watched", "epochs", "learning_rate", "loss")}
    return sweep(
        follow, {"width": config.widths, "seed": config.seeds}, data=first_here(config.data), **fixed
    )


def follow(
    *,
    data: str,
    width: float,
    seed: int,
    train: int,
    watched: int,
    epochs: int,
    learning_rate: float,
    loss: Literal["l2", "l2-mean"],
) -> dict[str, Any]:
    """Trains a network and its linearization alike, and compares their outputs on test images after every epoch."""
    key = Key(seed).fold("output-trajectories")
    images, others = drawn_images(data, train, watched, 0, key.fold("images"))
    channels, size = images.inputs.shape[1:3]
    classes = len(images.classes)
    network = lenet(width, channels=channels, size=size, outputs=classes, seed=key.fold("network"))
    settings = Training(epochs, learning_rate, momentum=0.9, weight_decay=5e-5, batch=32, loss=loss)
    paths = {
        name: _paths(model, images.inputs, images.targets, others.inputs, settings, key.fold("batches"))
        for name, model in (("network", deepcopy(network)), ("linearized", linearize(network)))
    }
    own = np.eye(classes, dtype=bool)[others.targets.numpy()]
    return {
        "parameters": sum(p.numel() for p in network.parameters()),
        **compared(paths["network"], paths["linearized"], own),
        **{
            f"{name}_accuracy": 100 * float((path[-1].argmax(1) == others.targets.numpy()).mean())
            for name, path in paths.items()
        },
        **{f"{name}_moments": moments(path, own) for name, path in paths.items()},
        **{f"{name}_shown": path[:, own].astype(np.float32)[:, :SHOWN] for name, path in paths.items()},
        "data_cards": cards(data),
    }


def _paths(
    model: nn.Module, x: Tensor, y: Tensor, watched: Tensor, settings: Training, key: Key
) -> np.ndarray:
    """The outputs on watched images before training and after each epoch, (epochs + 1, n, c)."""
    seen: list[np.ndarray] = []

    @torch.no_grad()
    def look(now: nn.Module, _: Any) -> None:
        seen.append(torch.cat([now(piece) for piece in watched.split(250)]).double().numpy())

    train(model, x, y, settings, key=key, watcher=look)
    return np.stack(seen)


def compared(network: np.ndarray, linearized: np.ndarray, own: np.ndarray) -> dict[str, float]:
    """How far two sets of paths (epochs + 1, n, c) are apart after the start, of which `own` (n, c) is one kind.

    Each number is the mean over the epochs and over the two kinds of outputs. A step is |f(t + 1) - f(t)|.

    Example:
        >>> own = np.array([[True, False], [False, True]])
        >>> one = np.array([np.zeros((2, 2)), [[1.0, 0.0], [0.0, 3.0]]])
        >>> other = np.array([np.zeros((2, 2)), [[3.0, 0.0], [0.0, 1.0]]])
        >>> found = compared(one, other, own)
        >>> found["path_distance"], found["distribution_distance"], found["steps_ratio"]
        (1.0, 0.0, 1.0)
    """
    pairs = [(network[:, kind], linearized[:, kind]) for kind in (own, ~own)]
    apart = [np.abs(f - g)[1:].mean() for f, g in pairs]
    spread = [wasserstein_distance(a, b) for f, g in pairs for a, b in zip(f[1:], g[1:], strict=True)]
    steps = [
        np.mean([np.abs(np.diff(path, axis=0)).mean() for path in both]) for both in zip(*pairs, strict=True)
    ]
    return {
        "path_distance": float(np.mean(apart)),
        "distribution_distance": float(np.mean(spread)),
        "steps_ratio": float(steps[0] / steps[1]),
    }


def moments(path: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Mean and standard deviation of the outputs of each kind at each moment, (kinds, 2, epochs + 1)."""
    return np.stack([[path[:, kind].mean(1), path[:, kind].std(1)] for kind in (own, ~own)]).astype(
        np.float32
    )
