"""Directions of input that an architecture prefers (NADs): their looks, their alignment, and how each is learned.

A linear function u · x of x ~ N(0, I) has the alignment α(u) = ‖E[∂²f/∂θ∂x] u‖² with the tangent kernel (theorem 1).
The NADs are the right singular vectors u_1, u_2, ... of ∂²f/∂θ∂x at x = 0, of falling singular value; D(u) are two
classes that differ along u alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tangentkit import TangentKernel, target_alignment
from tangentkit.analysis import AnisotropyDirections, anisotropy_directions
from tangentkit.analysis.mixed_derivative import MixedDerivative
from tangentkit.core.errors import InputError, NumericalError
from tangentkit.core.model.functions import snapshot
from tangentkit.core.seeds import Key
from tangentkit.data.synthetic import directional_data
from tangentkit.linearized import LinearDecay, Training
from tangentkit.models import lecun_normal, lenet5, mlp, resnet18
from tangentkit.studies.linearization.anisotropy_result import DRAWN, NETWORKS
from tangentkit.studies.linearization.anisotropy_result import result as result
from tangentkit.studies.linearization.eigenspace import sign_accuracy
from tangentkit.studies.trials.fields import check_known, check_rising
from tangentkit.studies.trials.pairs import train_pair
from tangentkit.studies.trials.trial import Trial, sweep

BYTE = 127
"""The largest entry of a direction as it is kept: in whole numbers, for pictures."""


@dataclass(frozen=True)
class Config:
    """Settings of the study of anisotropy directions."""

    size: int = 16
    """Height and width of the images, of one channel."""
    resnet_width: int = 4
    """Channels of the first stage of ResNet-18; published: 64."""
    trained: tuple[str, ...] = ("mlp", "lenet")
    """The networks that learn D(u): "mlp", "lenet", "resnet"."""
    indices: tuple[int, ...] = (1, 16, 64, 256)
    """The j of the directions u_j whose D(u_j) is learned, counted from 1, rising."""
    train: int = 2000
    """Training samples of D(u)."""
    test: int = 2000
    """Test samples."""
    epochs: int = 10
    """Passes over the training samples."""
    batch: int = 128
    """Samples of a step."""
    learning_rate: float = 0.05
    """At the first step; it falls linearly to 0."""
    half_margin: bool = False
    """Whether classes differ by half as much along u, as in the authors' code."""
    sampled: int = 4096
    """Samples x ~ N(0, I) for the alignment by its definition."""
    averaged: int = 512
    """Samples of each of two halves for the mean of the second derivative."""
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    """Each has its own initialization, samples and mini-batches."""

    def __post_init__(self) -> None:
        most = self.size**2
        check_rising("indices", self.indices)
        if not 1 <= self.indices[0] <= self.indices[-1] <= most:
            raise InputError("bad indices", expected=f"rising, from 1 to {most}", got=self.indices)
        check_known("trained", self.trained, NETWORKS)


SCALES = {
    "quick": Config(),
    "evening": Config(
        resnet_width=8,
        indices=(1, 4, 16, 64, 128, 256),
        train=4000,
        epochs=15,
    ),
    "full": Config(
        size=32,
        resnet_width=64,
        trained=("mlp", "lenet", "resnet"),
        indices=(1, 4, 16, 64, 256, 512, 1024),
        train=10_000,
        test=10_000,
        epochs=100,
        sampled=10_000,
        averaged=2000,
    ),
}


def trials(config: Config) -> list[Trial]:
    """One for the directions of each network and seed; then one for each direction that is learned."""
    shared = {"size": config.size, "resnet_width": config.resnet_width}
    watched = tuple(2**i for i in range((config.size**2).bit_length()))
    described = sweep(
        describe,
        {"network": tuple(NETWORKS), "seed": config.seeds},
        watched=watched,
        sampled=config.sampled,
        averaged=config.averaged,
        **shared,
    )
    fixed = ("train", "test", "epochs", "batch", "learning_rate", "half_margin")
    learned = [
        trial
        for network in config.trained
        for trial in sweep(
            learn,
            {"seed": config.seeds, "index": config.indices},
            network=network,
            **shared,
            **{name: getattr(config, name) for name in fixed},
        )
    ]
    return described + learned


def describe(
    *,
    network: str,
    seed: int,
    size: int,
    resnet_width: int,
    watched: tuple[int, ...],
    sampled: int,
    averaged: int,
) -> dict[str, Any]:
    """The directions of a network, and the alignment of some of them: at the origin, by the theorem, by samples."""
    model, found = _directions(network, seed, size, resnet_width)
    key = Key(seed).fold("anisotropy", network)
    chosen = found.directions[[i - 1 for i in watched]]
    x = torch.randn(sampled, *chosen.shape[1:], generator=key.fold("samples").torch())
    first = found.directions[:DRAWN]
    random = torch.randn(first.shape, generator=key.fold("random").torch())
    kept = first / first.flatten(1).abs().amax(1).reshape(-1, 1, 1, 1) * BYTE
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "values": found.values.float().numpy(),
        "frequencies": frequencies(first),
        "random_frequencies": frequencies(random),
        "directions": kept.round().to(torch.int8).numpy(),
        "at_origin": found.alignments[[i - 1 for i in watched]].float().numpy(),
        "by_theorem": theorem_alignment(model, chosen, averaged, key.fold("averaged")).float().numpy(),
        "by_samples": sampled_alignment(model, x, chosen).float().numpy(),
    }


def learn(
    *,
    network: str,
    index: int,
    seed: int,
    size: int,
    resnet_width: int,
    train: int,
    test: int,
    epochs: int,
    batch: int,
    learning_rate: float,
    half_margin: bool,
) -> dict[str, Any]:
    """Trains a network and its linearization on two classes that differ along one of its directions alone.

    Raises:
        NumericalError: training of one of them diverged.
    """
    model, found = _directions(network, seed, size, resnet_width)
    key = Key(seed).fold("anisotropy", network, index)
    u = found.directions[index - 1]
    first, second = (
        directional_data(u, n, half_margin=half_margin, key=key.fold(split))
        for split, n in (("train", train), ("test", test))
    )
    settings = Training(
        epochs, learning_rate, momentum=0.9, batch=batch, drop_last=True, schedule=LinearDecay(), loss="bce"
    )
    pair = train_pair(model, first.inputs, first.targets.float(), settings, key=key.fold("batches"))
    lost = [name for name, value in pair.last("train loss").items() if np.isnan(value)]
    if lost:
        raise NumericalError(f"{' and '.join(lost)} diverged", hint="a smaller --learning-rate")
    return {
        "alignment": float(found.alignments[index - 1]),
        **{
            f"{split}_{name}": sign_accuracy(one, data.inputs, data.targets)
            for split, data in (("train", first), ("test", second))
            for name, one in (("network", pair.network), ("linearized", pair.linearized))
        },
    }


def sampled_alignment(model: nn.Module, x: Tensor, directions: Tensor) -> Tensor:
    """α(u) of each direction by its definition E[(u·x) k(x, x') (u·x')], as the mean over pairs of other samples.

    Pairs of a sample with itself, which the mean over all pairs has too, would add E[(u·x)² k(x, x)] / n.
    """
    n = len(x)
    f = x.flatten(1) @ directions.flatten(1).T
    own = f.double().square().T @ TangentKernel(model).diag(x).double()
    return (n**2 * target_alignment(model, x, f) - own) / (n * (n - 1))


def theorem_alignment(model: nn.Module, directions: Tensor, samples: int, key: Key) -> Tensor:
    """α(u) = ‖E[∂²f/∂θ∂x] u‖² of each direction, as the inner product of the means of two independent halves.

    The square of one mean would add its variance.
    """
    function, shape = snapshot(model), tuple(directions.shape[1:])
    halves = []
    for half in range(2):
        x = torch.randn(samples, *shape, generator=key.fold(half).torch())
        mixed = MixedDerivative(function, _pieces(x), samples, torch.ones(1, 1), shape)
        responses = [mixed.times(u)[0].values() for u in directions]
        halves.append(
            torch.stack([torch.cat([part.flatten() for part in one]) for one in responses]).double()
        )
    return (halves[0] * halves[1]).sum(1)


def _pieces(x: Tensor) -> Callable[[], Any]:
    return lambda: iter(x.split(256))


def frequencies(directions: Tensor) -> np.ndarray:
    """(Σ power)² / Σ power² of each image: of how many Fourier components it is made.

    Example:
        >>> flat, point = torch.ones(1, 4, 4), torch.zeros(1, 4, 4)
        >>> point[0, 0, 0] = 1.0
        >>> frequencies(torch.stack([flat, point])).round(3)
        array([ 1., 16.], dtype=float32)
    """
    power = torch.fft.fft2(directions).abs().square().flatten(1)
    return (power.sum(1).square() / power.square().sum(1)).float().numpy()


@lru_cache(maxsize=2)
def _directions(
    network: str, seed: int, size: int, resnet_width: int
) -> tuple[nn.Module, AnisotropyDirections]:
    """A network at its initialization, with GELU, and all of its directions."""
    key = Key(seed).fold("anisotropy", "network", network)
    if network == "mlp":
        model = mlp((size**2, 100, 100, 1), activation=nn.GELU, seed=key, init=lecun_normal)
    elif network == "lenet":
        model = lenet5(channels=1, size=size, activation=nn.GELU, seed=key)
    else:
        # In evaluation mode, where BatchNorm has the statistics of initialization.
        model = resnet18(channels=1, width=resnet_width, activation=nn.GELU, seed=key).eval()
    return model, anisotropy_directions(model, (1, size, size), size**2)
