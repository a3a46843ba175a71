"""A network at its initialization, some samples, and the eigenfunctions of its tangent kernel on them."""

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from tangentkit import TangentKernel, eigenfunctions
from tangentkit.core.seeds import Key
from tangentkit.models import lecun_normal, lenet5, mlp, resnet18
from tangentkit.studies.trials.data import cards, drawn
from tangentkit.studies.trials.records import Records

HALF = 5
"""Classes below this number are one of the two of the two-class task (CIFAR2), the others the second."""
RARE = 0.05
"""An eigenfunction one of whose signs fewer of the samples have, in any seed, is no task of two classes."""


@dataclass(frozen=True, eq=False)
class Eigenspace:
    """A network at its initialization, samples, and the eigenfunctions of its kernel on them."""

    network: nn.Module
    x: Tensor
    """Training samples, and after them test samples."""
    vectors: Tensor
    """The first eigenvectors on all samples, as columns."""
    values: Tensor
    """Their eigenvalues."""
    classes: Tensor
    """The class of each sample."""


@lru_cache(maxsize=2)
def eigenspace(
    data: str, network: str, seed: int, train: int, test: int, top: int, resnet_width: int = 64
) -> Eigenspace:
    """The first eigenfunctions of a network; made once for all that the same process does with one seed."""
    begun, x, classes = start(data, network, seed, train, test, resnet_width)
    found = eigenfunctions(TangentKernel(begun), x, top)
    return Eigenspace(begun, x, found.vectors, found.values, classes)


def start(
    data: str, network: str, seed: int, train: int, test: int, resnet_width: int = 64
) -> tuple[nn.Module, Tensor, Tensor]:
    """A network at its initialization; training samples and after them test samples; and their classes.

    Args:
        data: name of a data set of images.
        network: "mlp" for hidden layers of 100 and 100, "lenet", or "resnet" for ResNet-18 in evaluation mode.
        seed: of samples and weights.
        train: number of training samples.
        test: number of test samples.
        resnet_width: channels of the first stage of ResNet-18.

    Example:
        >>> network, x, classes = start("fashion-mini", "lenet", 0, 20, 10)
        >>> x.shape, network(x).shape
        (torch.Size([30, 1, 28, 28]), torch.Size([30, 1]))
    """
    key = Key(seed).fold("eigenfunctions", data)
    sets = drawn(data, train, test, key=key.fold("samples"), standardized=True)
    x, classes = (torch.cat(both) for both in zip(*((one.inputs, one.targets) for one in sets), strict=True))
    channels, size = x.shape[1:3]
    weights = key.fold("network", network)
    if network == "mlp":
        return mlp((prod(x.shape[1:]), 100, 100, 1), seed=weights, init=lecun_normal), x, classes
    if network == "resnet":
        return resnet18(channels=channels, width=resnet_width, seed=weights).eval(), x, classes
    return lenet5(channels=channels, size=size, seed=weights), x, classes


@torch.no_grad()
def sign_accuracy(model: nn.Module, x: Tensor, labels: Tensor) -> float:
    """The share of samples whose logit has the sign of their label 0 or 1, in percent."""
    logits = torch.cat([model(piece).flatten() for piece in x.split(512)])
    return 100 * float(((logits > 0) == (labels > 0.5)).double().mean())


def weigh(
    *,
    data: str,
    network: str,
    indices: tuple[int, ...],
    seed: int,
    top: int,
    train: int,
    test: int,
    resnet_width: int = 64,
) -> dict[str, Any]:
    """A trial: the share of the samples at which each eigenfunction is not negative, and whose label is 1."""
    space = eigenspace(data, network, seed, train, test, top, resnet_width)
    shares = [float((space.vectors[:, index - 1] >= 0).double().mean()) for index in indices]
    return {"shares": shares, "data_cards": cards(data)}


def rarer_shares(records: Records) -> dict[tuple[str, int], float]:
    """(network, index of an eigenfunction) -> the share of samples with its rarer label, the least of all seeds."""
    found: dict[tuple[str, int], float] = {}
    for row in records.having("shares"):
        for index, share in zip(row["indices"], row["shares"], strict=True):
            where = row["network"], index
            found[where] = min(found.get(where, 1.0), share, 1 - share)
    return found
