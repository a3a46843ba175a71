"""What the first principal components of each layer know of the classes (Figures 17 and 18).

Activations of every residual block of a trained network, standardized by the training images; their principal
components; and on the first d of these 10 nearest neighbors (10-NN), the nearest class center (NCC) and a linear
support vector machine (SVM). `tk.probe_layers` does it; this study asks it of pre-trained networks.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from tangentkit.analysis.representations.layers import probe_layers
from tangentkit.core.errors import DataError, InputError
from tangentkit.core.seeds import Key
from tangentkit.models.checkpoints import CIFAR_RESNET_MEAN, CIFAR_RESNET_STD, load_cifar_resnet
from tangentkit.studies.representations.layer_pca_report import report
from tangentkit.studies.trials.data import cards, check_images, drawn, first_here
from tangentkit.studies.trials.records import Records
from tangentkit.studies.trials.study import Result
from tangentkit.studies.trials.trial import Trial, sweep

DATA = "cifar10"
PUBLISHED_DIMS = (
    *range(1, 21),
    *(30, 40, 50, 100, 150, 200, 250, 300, 400, 500, 750, 1_000, 1_250, 1_500, 1_750),
    *range(2_000, 66_000, 1_000),
)
"""Numbers of components that the publication tries, up to the size of its largest layer."""
AT_ONCE = 200
"""Images of one pass."""


@dataclass(frozen=True)
class Config:
    """Settings of the study of principal components layer by layer."""

    depths: tuple[int, ...] = (20, 56)
    """Pre-trained ResNets for CIFAR-10: 20, 32, 44 or 56 layers."""
    train: int = 600
    """Images that components and classifiers are fitted on."""
    test: int = 600
    """Images that they are judged on."""
    most: int = 100
    """The largest number of components: the published ones up to here are tried."""
    layers: int = 10
    """Layers of a network that are looked at: the input of the first block and blocks spread evenly over depth."""
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    """One draw of images for each; the networks are the same."""

    def __post_init__(self) -> None:
        if self.layers < 5:
            raise InputError(
                "bad layers", expected="at least 5, to see a profile over depth", got=self.layers
            )
        if not 20 <= self.most < self.train:
            raise InputError("bad most", expected=f"from 20 to {self.train - 1}", got=self.most)


SCALES = {
    "quick": Config(),
    "evening": Config(train=1_500, test=1_500, most=150),
    "full": Config(train=45_000, test=10_000, most=20_000, layers=28),
}


def trials(config: Config) -> list[Trial]:
    """One for each network and seed, once data and networks are known to be here."""
    first_here((DATA,))
    check_images(DATA, train=config.train, test=config.test)
    for depth in config.depths:
        try:
            load_cifar_resnet(depth)
        except DataError as error:
            raise InputError(f"no model for this study, {error.problem}", hint=error.hint) from error
    return sweep(
        probe,
        {"depth": config.depths, "seed": config.seeds},
        train=config.train,
        test=config.test,
        most=config.most,
        layers=config.layers,
    )


def probe(*, depth: int, seed: int, train: int, test: int, most: int, layers: int) -> dict[str, Any]:
    """Probes the layers of a network on one draw of images."""
    sets = drawn(DATA, train, test, key=Key(seed).fold("layer-pca"))
    images, others = (one.standardized(CIFAR_RESNET_MEAN, CIFAR_RESNET_STD) for one in sets)
    network = trained(depth)
    names = looked_at(network, layers)
    found = probe_layers(
        network,
        images.inputs,
        images.targets,
        others.inputs,
        others.targets,
        layers=list(names),
        dims=[d for d in PUBLISHED_DIMS if d <= most],
    ).to_dict()
    kept = ("name", "size", "dims", "accuracy", "variance", "needed", "variance_needed")
    return {
        "network_accuracy": accuracy(network, others.inputs, others.targets),
        "collapse_depth": names.get(found["collapse_layer"]),
        "layers_found": [
            {
                "depth": names[layer["name"]],
                **{name: layer[name] for name in kept},
                "nc1": layer["collapse"]["nc1"],
            }
            for layer in found["layers"]
        ],
        "data_cards": cards(DATA),
    }


def result(config: Config, records: Records) -> Result:
    """Tables, figures and claims."""
    return report(config.depths, config.train, config.most, records)


@cache
def trained(depth: int) -> nn.Sequential:
    """The pre-trained network, read once for each process."""
    return load_cifar_resnet(depth)


def looked_at(network: nn.Sequential, layers: int) -> dict[str, float]:
    """Name -> relative depth (0 before the first block, 1 after the last) of at most so many layers.

    Example:
        >>> from tangentkit.models import cifar_resnet
        >>> looked_at(cifar_resnet(20), 5)
        {'act1': 0.0, 'layer1.1': 0.2222222222222222, 'layer2.0': 0.4444444444444444, 'layer3.0': \
0.7777777777777778, 'layer3.2': 1.0}
    """
    stages = ("layer1", "layer2", "layer3")
    names = [
        "act1",
        *(
            f"{stage}.{i}"
            for stage in stages
            for i in range(len(list(network.get_submodule(stage).children())))
        ),
    ]
    blocks = len(names) - 1
    chosen = (
        sorted({round(i * blocks / (layers - 1)) for i in range(layers)})
        if layers <= blocks
        else range(blocks + 1)
    )
    return {names[i]: i / blocks for i in chosen}


@torch.no_grad()
def accuracy(network: nn.Module, x: Tensor, y: Tensor) -> float:
    """The share of images whose largest output is that of their class."""
    answers = torch.cat([network(part).argmax(1) for part in x.split(AT_ONCE)])
    return float((answers == y).double().mean())
