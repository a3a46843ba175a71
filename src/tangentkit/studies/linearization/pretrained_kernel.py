"""A network linearized where it began and where training took it, both trained on the labels that it had learned.

The linear models are differentials J(w, x) u without the constant f(w, x), so that neither begins with an answer:
only their kernels differ. A third one is the differential at trained weights with a learning rate that makes up for
the size of its kernel. BatchNorm is the affine map of its initial statistics in all of them.
"""

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor, nn

from tangentkit import TangentKernel
from tangentkit.core.errors import InputError
from tangentkit.core.seeds import Key
from tangentkit.linearized import LinearDecay, Training, linearize, train
from tangentkit.studies.linearization.eigenspace import HALF, eigenspace, sign_accuracy, weigh
from tangentkit.studies.linearization.pretrained_kernel_result import CLASSES, NETWORKS
from tangentkit.studies.linearization.pretrained_kernel_result import result as result
from tangentkit.studies.trials.data import cards, first_here
from tangentkit.studies.trials.fields import check_known, check_rising
from tangentkit.studies.trials.trial import Trial, same_records, sweep


@dataclass(frozen=True)
class Config:
    """Settings of the study of pretrained kernels."""

    data: tuple[str, ...] = ("cifar10", "fashion-mini")
    """The images, in order of preference."""
    networks: tuple[str, ...] = ("mlp", "lenet")
    """What is trained and linearized: "mlp", "lenet", "resnet"."""
    resnet_width: int = 8
    """Channels of the first stage of ResNet-18; published: 64."""
    indices: tuple[int, ...] = (4, 32)
    """The eigenfunctions j whose signs are labels, counted from 1, rising."""
    train: int = 512
    """Training samples."""
    test: int = 256
    """Test samples; the eigenfunctions are those of training and test samples together."""
    epochs: int = 30
    """Passes of the network over the training samples."""
    linear_epochs: int = 10
    """Passes of the linear models."""
    batch: int = 64
    """Samples of a step."""
    learning_rate: float = 0.05
    """At the first step; it falls linearly to 0."""
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    """Each has its own samples, initialization and mini-batches."""

    def __post_init__(self) -> None:
        most = self.train + self.test
        check_rising("indices", self.indices, least=1)
        if not 1 <= self.indices[0] <= self.indices[-1] <= most:
            raise InputError("bad indices", expected=f"rising, from 1 to {most}", got=self.indices)
        check_known("networks", self.networks, NETWORKS)


SCALES = {
    "quick": Config(),
    "evening": Config(train=1024, test=512, indices=(1, 8, 64, 256), epochs=40, linear_epochs=20),
    "full": Config(
        networks=("mlp", "lenet", "resnet"),
        resnet_width=64,
        train=50_000,
        test=10_000,
        indices=(1, 5, 10, 50, 100, 250, 500, 1000),
        epochs=100,
        linear_epochs=100,
        batch=128,
    ),
}


def trials(config: Config) -> list[Trial]:
    """For each network and seed the shares of its labels, and one for each of them.

    Those of one seed follow each other, and share their eigenfunctions.
    """
    fixed = {name: getattr(config, name) for name in ("epochs", "linear_epochs", "batch", "learning_rate")}
    found = []
    for network in config.networks:
        space = {
            "data": first_here(config.data),
            "top": config.indices[-1],
            "train": config.train,
            "test": config.test,
            **({"resnet_width": config.resnet_width} if network == "resnet" else {}),
        }
        for seed in config.seeds:
            own = {"network": (network,), "seed": (seed,)}
            found += sweep(weigh, own, indices=config.indices, **space)
            found += sweep(compare, {**own, "index": (CLASSES, *config.indices)}, **space, **fixed)
    return found


@same_records("4092961acce4a2b5979f11520030726db33b58dec956b8f7c035ab489b39772f")
def compare(
    *,
    data: str,
    network: str,
    index: int,
    seed: int,
    top: int,
    train: int,
    test: int,
    epochs: int,
    linear_epochs: int,
    batch: int,
    learning_rate: float,
    resnet_width: int = 64,
) -> dict[str, Any]:
    """Trains a network on labels, and on the same labels its differentials before and after."""
    space = eigenspace(data, network, seed, train, test, top, resnet_width)
    labels = ((space.classes < HALF) if index == CLASSES else (space.vectors[:, index - 1] >= 0)).float()
    key = Key(seed).fold("pretrained-kernel", index)
    trained = deepcopy(space.network)
    losses = _fitted(
        trained, space.x[:train], labels[:train], epochs, learning_rate, batch, key.fold("network")
    )
    found: dict[str, Any] = {
        "network_loss": losses[-1],
        "network_test": sign_accuracy(trained, space.x[train:], labels[train:]),
        "data_cards": cards(data),
    }
    reset_statistics(trained)
    before, after = (mean_square_gradient(one, space.x[:train]) for one in (space.network, trained))
    found["growth"] = after / before
    rates = {"initial": 1.0, "trained": 1.0, "rescaled": before / after}
    for name, factor in rates.items():
        model = linearize(space.network if name == "initial" else trained, constant=False)
        rate = factor * learning_rate
        losses = _fitted(
            model, space.x[:train], labels[:train], linear_epochs, rate, batch, key.fold("linear")
        )
        found |= {
            f"{name}_losses": np.asarray(losses, np.float32),
            f"{name}_train": sign_accuracy(model, space.x[:train], labels[:train]),
            f"{name}_test": sign_accuracy(model, space.x[train:], labels[train:]),
        }
    return found


def reset_statistics(network: nn.Module) -> None:
    """Gives every BatchNorm the statistics of initialization, mean 0 and variance 1; its weights stay as they are."""
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.reset_running_stats()


def mean_square_gradient(model: nn.Module, x: Tensor) -> float:
    """The mean of k(x, x) = |∂f(x)/∂w|² over the samples: the size of the kernel, on which the pace depends."""
    return float(TangentKernel(model).diag(x).double().mean())


def _fitted(
    model: nn.Module, x: Tensor, labels: Tensor, epochs: int, rate: float, batch: int, key: Key
) -> list[float]:
    """The training loss of each epoch."""
    settings = Training(
        epochs, rate, momentum=0.9, batch=batch, drop_last=True, schedule=LinearDecay(), loss="bce"
    )
    return train(model, x, labels, settings, key=key)["train loss"]
