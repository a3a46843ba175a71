"""Tables 1 and 2 of the surrogate study: a kernel GLM on a network's own kernel, and how faithful it is.

For each seed: train a network, take its kernels on its training set, fit a softmax kernel GLM to the true
labels, and compare its probabilities and classes with the network's on test points.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tangentkit import reference
from tangentkit.compute.kernel import Kernel
from tangentkit.core.errors import InputError
from tangentkit.core.progress import Progress, silent
from tangentkit.core.seeds import Key
from tangentkit.data import load
from tangentkit.data.dataset import Data
from tangentkit.empirical import ConjugateKernel, EmbeddingKernel, TangentKernel
from tangentkit.linearized import Training
from tangentkit.linearized import train as train_network
from tangentkit.models import lenet
from tangentkit.studies.study import DataCard
from tangentkit.studies.surrogate_result import KERNELS, Examples, Result, Scores
from tangentkit.studies.threads import torch_threads
from tangentkit.surrogate.faithfulness import accuracy_difference, kendall_tau
from tangentkit.surrogate.invertible_map import fit_invertible_map, interior, log_odds

SHOWN_NEIGHBORS = 5
SHOWN_CLASSES = 5
SHOWN_GRAM = 200
"""What the figures show: neighbors of a test image, test images, rows of the Gram matrix."""


@dataclass(frozen=True)
class Config:
    """Settings of the surrogate study."""

    data: str = "fashion-mini"
    """Data set of images; `tangentkit data list` shows all."""
    classes: tuple[int, ...] | None = None
    """Classes to tell apart; none means all of the data set."""
    train: int = 500
    """Training images of the network and of its surrogate, balanced, drawn anew for each seed."""
    test: int = 300
    """Test images on which the two are compared, balanced, drawn anew for each seed."""
    width: float = 1.0
    """The k of LeNet×k: all widths are multiplied by it."""
    epochs: int = 40
    """Passes of Adam over the training images."""
    batch: int = 32
    """Images of one step."""
    learning_rate: float = 2e-3
    """Of Adam."""
    ridge: float = 1e-4
    """Penalty of the kernel GLM on its squared weights."""
    steps: int = 500
    """Most steps of L-BFGS in the fit of the kernel GLM."""
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    """One network, one choice of images and one surrogate for each."""
    threads: int | None = 1
    """Threads of torch, none for all; at the quick size one is as fast as two, and much faster on a busy machine."""

    def __post_init__(self) -> None:
        for name in ("train", "test", "epochs", "batch", "learning_rate", "ridge", "steps", "width"):
            if not getattr(self, name) > 0:
                raise InputError(f"bad {name}", expected="more than 0", got=getattr(self, name))
        if self.threads is not None and self.threads < 1:
            raise InputError("bad threads", expected="at least 1", got=self.threads)
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise InputError("bad seeds", expected="different integers", got=self.seeds)


SCALES = {
    "quick": Config(),
    "full": Config(
        data="fashion-mnist",
        classes=(0, 1),
        train=10_000,
        test=2_000,
        seeds=tuple(range(100)),
        threads=None,
    ),
}


def run(config: Config, *, progress: Progress = silent) -> Result:
    """Trains, fits and compares, once for each seed."""
    train, test = (load(config.data, split, classes=config.classes) for split in ("train", "test"))
    if min(config.train, config.test) < len(train.classes):
        raise InputError(
            "too few points",
            expected=f"train and test at least {len(train.classes)}, the number of classes",
            got=f"{config.train} and {config.test}",
        )
    trials = []
    with torch_threads(config.threads):
        for i, seed in enumerate(config.seeds, 1):
            key, label = Key(seed).fold("surrogate"), f"seed {i} of {len(config.seeds)}"
            trials.append(_trial(config, key, train, test, label=label, progress=progress))
    return Result(
        seeds=config.seeds,
        data=(_card(train), _card(test)),
        model=f"LeNet×{config.width:g}",
        parameters=trials[0].parameters,
        test=config.test,
        train=config.train,
        classes=len(train.classes),
        accuracy=tuple(trial.accuracy for trial in trials),
        removed=tuple(trial.removed for trial in trials),
        scores={
            kernel: Scores(*map(tuple, zip(*(trial.scores[kernel] for trial in trials), strict=True)))
            for kernel in KERNELS
        },
        examples=trials[0].examples,
    )


@dataclass(frozen=True, eq=False)
class _Trial:
    """What one seed gives."""

    parameters: int
    accuracy: float
    removed: int
    scores: dict[str, tuple[float, float, float, float]]
    examples: Examples


def _trial(config: Config, key: Key, train: Data, test: Data, *, label: str, progress: Progress) -> _Trial:
    train, _ = train.partition(config.train, key=key.fold("train"))
    test, _ = test.partition(config.test, key=key.fold("test"))
    channels, size = train.inputs.shape[1], train.inputs.shape[-1]
    model = lenet(
        config.width, channels=channels, size=size, outputs=len(train.classes), seed=key.fold("network")
    )
    settings = Training(
        config.epochs, config.learning_rate, optimizer="adam", batch=config.batch, loss="cross-entropy"
    )
    train_network(
        model,
        train.inputs,
        train.targets,
        settings,
        key=key.fold("order"),
        progress=progress,
        stage=f"{label}: training",
    )
    progress(f"{label}: kernels", 0, 1)
    grams = kernels(model, train.inputs, test.inputs)
    progress(f"{label}: kernels", 1, 1)
    with torch.no_grad():
        network = model(test.inputs).double().softmax(1)
    surrogates = {}
    for i, (name, gram) in enumerate(grams.items()):
        progress(f"{label}: surrogates", i, len(grams))
        w, b = reference.kernel_glm(gram.train, train.targets, ridge=config.ridge, steps=config.steps)
        surrogates[name] = (gram.test @ w + b).softmax(1)
    progress(f"{label}: surrogates", len(grams), len(grams))
    kept = _interior(network, *surrogates.values(), targets=test.targets)
    return _Trial(
        parameters=sum(p.numel() for p in model.parameters()),
        accuracy=100 * float((network.argmax(1) == test.targets).double().mean()),
        removed=int((~kept).sum()),
        scores={name: _scores(network, q, test.targets, kept) for name, q in surrogates.items()},
        examples=_examples(train, test, grams["trNTK"], network, surrogates["trNTK"], kept),
    )


def kernels(model: nn.Module, x: Tensor, z: Tensor) -> "dict[str, Grams]":
    """Every kernel of the study for training points x and test points z."""
    tangent = grams(TangentKernel(model), x, z)
    return {
        "trNTK": tangent.cosine(),
        "trNTK0": tangent.scaled(),
        "Em": grams(EmbeddingKernel(model), x, z).cosine(),
        "CK": grams(ConjugateKernel(model), x, z).cosine(),
        "pixels": pixel_grams(x, z).cosine(),
    }


@dataclass(frozen=True, eq=False)
class Grams:
    """A kernel on the points of a surrogate, and between them and test points."""

    train: Float[Tensor, "n n"]
    test: Float[Tensor, "m n"]
    test_diagonal: Float[Tensor, " m"]

    def cosine(self) -> "Grams":
        """k(x, y) / √(k(x, x) k(y, y))."""
        diagonal = self.train.diagonal()
        return Grams(
            reference.normalize(self.train, diagonal, diagonal),
            reference.normalize(self.test, self.test_diagonal, diagonal),
            torch.ones_like(self.test_diagonal),
        )

    def scaled(self) -> "Grams":
        """The kernel divided by the standard deviation of the Gram matrix of the training points."""
        std = self.train.std()
        return Grams(self.train / std, self.test / std, self.test_diagonal / std)


def grams(kernel: Kernel, x: Tensor, z: Tensor) -> Grams:
    """A kernel for training points x and test points z, in float64."""
    return Grams(kernel(x).double(), kernel(z, x).double(), kernel.diag(z).double())


def pixel_grams(x: Tensor, z: Tensor) -> Grams:
    """The inner products of the images themselves."""
    x, z = x.flatten(1).double(), z.flatten(1).double()
    return Grams(x @ x.T, z @ x.T, z.square().sum(1))


def _interior(*probabilities: Float[Tensor, "m c"], targets: Int[Tensor, " m"]) -> np.ndarray:
    return interior(*(_of_true_class(q, targets) for q in probabilities))


def _of_true_class(q: Float[Tensor, "m c"], targets: Int[Tensor, " m"]) -> np.ndarray:
    return q.gather(1, targets[:, None])[:, 0].numpy()


def _scores(
    network: Float[Tensor, "m c"],
    surrogate: Float[Tensor, "m c"],
    targets: Int[Tensor, " m"],
    kept: np.ndarray,
) -> tuple[float, float, float, float]:
    """τ, TAD, R² and agreement."""
    p, q = (_of_true_class(table, targets)[kept] for table in (network, surrogate))
    named, guessed = network.argmax(1), surrogate.argmax(1)
    z = log_odds(q)
    return (
        kendall_tau(p, q),
        accuracy_difference(guessed, named, targets),
        fit_invertible_map(z, p).r2(z, p),
        100 * float((named == guessed).double().mean()),
    )


def _examples(
    train: Data, test: Data, gram: Grams, network: Tensor, surrogate: Tensor, kept: np.ndarray
) -> Examples:
    p, q = (_of_true_class(table, test.targets)[kept] for table in (network, surrogate))
    # Every k-th point of the sorted ones keeps the balance of the classes.
    order = torch.argsort(train.targets, stable=True)[:: max(1, -(-len(train) // SHOWN_GRAM))]
    counts = torch.bincount(train.targets[order], minlength=len(train.classes)).tolist()
    first = [int((test.targets == label).nonzero()[0]) for label in range(len(test.classes))][:SHOWN_CLASSES]
    near = gram.test[first].topk(min(SHOWN_NEIGHBORS, len(train)), dim=1).indices
    rows = [
        [
            (test.inputs[t], int(test.targets[t])),
            *((train.inputs[n], int(train.targets[n])) for n in neighbors),
        ]
        for t, neighbors in zip(first, near, strict=True)
    ]
    return Examples(
        network=p,
        surrogate=q,
        correct=(network.argmax(1) == test.targets).numpy()[kept],
        curve=fit_invertible_map(log_odds(q), p),
        gram=gram.train[order][:, order].numpy(),
        gram_classes=dict(zip(train.classes, counts, strict=True)),
        images=np.stack([np.stack([_picture(image) for image, _ in row]) for row in rows]),
        labels=tuple(tuple(train.classes[label] for _, label in row) for row in rows),
    )


def _picture(image: Float[Tensor, "channels height width"]) -> np.ndarray:
    return (image[0] if len(image) == 1 else image.permute(1, 2, 0)).numpy()


def _card(data: Data) -> DataCard:
    return DataCard(data.name, data.split, len(data), data.source, data.licence, data.fingerprint, data.note)
