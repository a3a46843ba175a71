"""Eigenfunctions of a network's tangent kernel as targets: how well, how fast and how far it learns each of them.

The kernel is that of the network at its initialization, on training and test samples together. The label of a sample
is the sign of the j-th eigenvector there.
"""

from dataclasses import dataclass
from math import isnan
from typing import Any, Literal

import torch
from torch import Tensor, nn

from tangentkit import TangentKernel, gram, spectrum, target_alignment
from tangentkit.core.errors import InputError, NumericalError
from tangentkit.core.seeds import Key
from tangentkit.data.registry import SETS
from tangentkit.linearized import History, LinearDecay, Training
from tangentkit.studies.linearization.eigenfunctions_result import result as result
from tangentkit.studies.linearization.eigenspace import HALF, weigh
from tangentkit.studies.linearization.eigenspace import eigenspace as _space
from tangentkit.studies.linearization.eigenspace import sign_accuracy as _accuracy
from tangentkit.studies.linearization.eigenspace import start as _start
from tangentkit.studies.trials.data import cards, first_here
from tangentkit.studies.trials.fields import check_known, check_rising
from tangentkit.studies.trials.pairs import Pair, train_pair
from tangentkit.studies.trials.trial import Trial, sweep

LEARNED = 0.01
"""The training loss at which iterations are counted."""


@dataclass(frozen=True)
class Config:
    """Settings of the study of eigenfunctions."""

    cases: tuple[str, ...] = ("cifar10 mlp sgd", "cifar10 mlp adam", "cifar10 lenet sgd", "mnist mlp sgd")
    """What is trained: data, network ("mlp" or "lenet") and optimizer ("sgd" or "adam")."""
    fallback: str = "fashion-mini"
    """Data in the place of those that are not here."""
    train: int = 512
    """Training samples."""
    test: int = 256
    """Test samples; the eigenfunctions are those of training and test samples together."""
    indices: tuple[int, ...] = (1, 8, 64, 256)
    """The eigenfunctions j that are learned, counted from 1, rising."""
    watched: int = 12
    """Eigenfunctions between these whose alignment is followed beside."""
    epochs: int = 20
    """Passes over the training samples."""
    batch: int = 64
    """Samples of a step."""
    sgd_rate: float = 0.05
    """The learning rate of SGD at the first step; it falls linearly to 0."""
    adam_rate: float = 0.001
    """That of Adam; the publication does not say which."""
    energy_samples: int = 512
    """Training samples of the kernel whose eigenvectors hold the labels' energy."""
    energy_top: int = 50
    """Eigenvectors that count for the concentration of energy."""
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    """Each has its own samples, initialization and mini-batches."""

    def __post_init__(self) -> None:
        most = self.train + self.test
        check_rising("indices", self.indices, least=1)
        check_known("fallback", (self.fallback,), SETS)
        if self.watched > most:
            raise InputError("bad watched", expected=f"at most {most}", got=self.watched)
        if not 1 <= self.indices[0] <= self.indices[-1] <= most:
            raise InputError("bad indices", expected=f"rising, from 1 to {most}", got=self.indices)
        if not 1 <= self.energy_top <= self.energy_samples <= self.train:
            raise InputError(
                "bad sizes of the energy",
                expected=f"energy_top <= energy_samples <= {self.train}",
                got=f"{self.energy_top} and {self.energy_samples}",
            )
        for case in self.cases:
            words = case.split()
            if len(words) != 3 or words[1] not in ("mlp", "lenet") or words[2] not in ("sgd", "adam"):
                raise InputError("bad case", expected="such as 'cifar10 mlp sgd'", got=case)


EVERY_CASE = tuple(
    f"{data} {net} {rule}"
    for data in ("cifar10", "mnist")
    for net in ("mlp", "lenet")
    for rule in ("sgd", "adam")
)
SCALES = {
    "quick": Config(),
    "evening": Config(
        cases=(
            "cifar10 mlp sgd",
            "cifar10 lenet sgd",
            "cifar10 lenet adam",
            "mnist mlp sgd",
            "mnist lenet sgd",
        ),
        train=768,
        test=512,
        indices=(1, 5, 20, 100, 400),
        epochs=30,
        energy_samples=768,
    ),
    "full": Config(
        cases=EVERY_CASE,
        train=50_000,
        test=10_000,
        indices=(1, 5, 10, 50, 100, 250, 500, 1000),
        epochs=100,
        batch=128,
        energy_samples=12_000,
    ),
}


def trials(config: Config) -> list[Trial]:
    """One for each case, seed and eigenfunction, the shares of their labels, and for SGD the two classes."""
    shared = {name: getattr(config, name) for name in ("train", "test", "epochs", "batch")}
    found = []
    for case in config.cases:
        wanted, network, optimizer = case.split()
        rate = config.sgd_rate if optimizer == "sgd" else config.adam_rate
        data = first_here((wanted, config.fallback))
        fixed = {"data": data, "network": network, "optimizer": optimizer, "rate": rate, **shared}
        if optimizer == "sgd":
            energy = {"energy_samples": config.energy_samples, "energy_top": config.energy_top}
            found += sweep(concentrate, {"seed": config.seeds}, **energy, **fixed)
        watched = watched_indices(config.indices, config.watched)
        space = {name: fixed[name] for name in ("data", "network", "train", "test")}
        found += sweep(weigh, {"seed": config.seeds}, indices=config.indices, top=max(watched), **space)
        found += sweep(learn, {"seed": config.seeds, "index": config.indices}, watched=watched, **fixed)
    return list({trial.key: trial for trial in found}.values())


def watched_indices(indices: tuple[int, ...], more: int) -> tuple[int, ...]:
    """The learned indices, and others between the first and the last at equal ratios.

    Example:
        >>> watched_indices((1, 10, 100), 4)
        (1, 5, 10, 22, 100)
    """
    first, last = indices[0], indices[-1]
    others = (round(first * (last / first) ** (i / (more - 1))) for i in range(more)) if more > 1 else ()
    return tuple(sorted({*indices, *others}))


def learn(
    *,
    data: str,
    network: str,
    optimizer: Literal["sgd", "adam"],
    rate: float,
    index: int,
    seed: int,
    train: int,
    test: int,
    epochs: int,
    batch: int,
    watched: tuple[int, ...],
) -> dict[str, Any]:
    """Trains a network and its linearization on the sign of an eigenfunction.

    Raises:
        NumericalError: training of one of them diverged.
    """
    space = _space(data, network, seed, train, test, max(watched))
    labels = (space.vectors[:, index - 1] >= 0).float()
    start = space.network
    pair = _trained(start, space.x[:train], labels[:train], optimizer, rate, epochs, batch, seed)
    followed = [i - 1 for i in watched]
    functions = space.vectors[:, followed] * len(space.x) ** 0.5
    after = target_alignment(pair.network, space.x, functions)
    before = space.values[followed].double() / len(space.x)
    assert pair.network_history
    steps, reached = _steps_to(LEARNED, pair.network_history)
    w0, w = (torch.cat([p.detach().flatten() for p in one.parameters()]) for one in (start, pair.network))
    return {
        "test_network": _accuracy(pair.network, space.x[train:], labels[train:]),
        "test_linearized": _accuracy(pair.linearized, space.x[train:], labels[train:]),
        "iterations": steps,
        "reached": reached,
        "distance": float((w - w0).norm()),
        "cosine_distance": 1 - float(torch.cosine_similarity(w, w0, dim=0)),
        "overlap": float(space.vectors[:, index - 1].abs().sum() / len(space.x) ** 0.5),
        "alignment_before": before.float().numpy(),
        "alignment_after": after.float().numpy(),
        "data_cards": cards(data),
    }


def concentrate(
    *,
    data: str,
    network: str,
    optimizer: Literal["sgd", "adam"],
    rate: float,
    seed: int,
    train: int,
    test: int,
    epochs: int,
    batch: int,
    energy_samples: int,
    energy_top: int,
) -> dict[str, Any]:
    """Trains on the first five classes against the others, and compares the kernels before and after.

    Raises:
        NumericalError: training of the network or of its linearization diverged.
    """
    start, x, classes = _start(data, network, seed, train, test)
    labels = (classes < HALF).float()
    pair = _trained(start, x[:train], labels[:train], optimizer, rate, epochs, batch, seed)
    some, aims = x[:energy_samples], 2 * labels[:energy_samples] - 1
    energies = {
        f"energy_{when}": spectrum(gram(TangentKernel(model), some, progress=False), energy_top).energy(aims)
        for when, model in (("before", start), ("after", pair.network))
    }
    return {
        "two_class_network": _accuracy(pair.network, x[train:], labels[train:]),
        "two_class_linearized": _accuracy(pair.linearized, x[train:], labels[train:]),
        **energies,
        "data_cards": cards(data),
    }


def _trained(
    start: nn.Module,
    x: Tensor,
    labels: Tensor,
    optimizer: Literal["sgd", "adam"],
    rate: float,
    epochs: int,
    batch: int,
    seed: int,
) -> Pair:
    settings = Training(
        epochs,
        rate,
        optimizer=optimizer,
        momentum=0.9 if optimizer == "sgd" else 0.0,
        batch=batch,
        drop_last=True,
        schedule=LinearDecay(),
        loss="bce",
    )
    pair = train_pair(start, x, labels, settings, key=Key(seed).fold("eigenfunctions", "batches"))
    diverged = [name for name, value in pair.last("train loss").items() if isnan(value)]
    if diverged:
        raise NumericalError(f"{' and '.join(diverged)} diverged", hint=f"a smaller --{optimizer}-rate")
    return pair


def _steps_to(loss: float, history: History) -> tuple[int, bool]:
    """Steps until the end of the first epoch whose training loss is at most this; all, if there is none."""
    steps = [int(row["step"]) for row in history.rows if row["train loss"] <= loss]
    return (steps[0], True) if steps else (int(history.rows[-1]["step"]), False)
