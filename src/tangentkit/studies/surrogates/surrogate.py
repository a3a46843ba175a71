"""Kernel surrogates of trained networks (Tables 1 and 2, Figures 1 and 2): how faithful, and on which kernel.

For each network and seed: train it, take its kernels, fit a softmax kernel GLM on each to the true labels of its
training set, and compare surrogate and network point by point on test samples.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tangentkit.core.errors import InputError
from tangentkit.core.seeds import Key
from tangentkit.data.dataset import Data
from tangentkit.linalg import as_operator
from tangentkit.linearized import Training, train
from tangentkit.models import Centered, cifar2_cnn, lenet, mnist2_cnn, mnist2_mlp
from tangentkit.studies.surrogates.kernel_matrices import Matrices, kernel_matrices
from tangentkit.studies.surrogates.surrogate_cases import CASES
from tangentkit.studies.surrogates.surrogate_report import report
from tangentkit.studies.trials.data import cards, drawn, first_here
from tangentkit.studies.trials.fields import check_known
from tangentkit.studies.trials.records import Records
from tangentkit.studies.trials.study import Result
from tangentkit.studies.trials.trial import Trial
from tangentkit.surrogate.attribution import Attribution
from tangentkit.surrogate.faithfulness import Faithfulness
from tangentkit.surrogate.invertible_map import interior, log_odds
from tangentkit.surrogate.nearest import Neighbors, neighbors

NEAREST = 5
"""Training samples shown beside a test sample."""
SHOWN_CLASSES = 5
SHOWN_GRAM = 100
"""What figures show: test samples, and rows of the Gram matrix."""
LARGEST_RATE = 0.1
"""Of SGD: beyond it training diverges."""


@dataclass(frozen=True)
class Config:
    """Settings of the surrogate study."""

    cases: tuple[str, ...] = ("mlp-mnist2", "cnn-fashion2", "lenet")
    """Which networks: see Table 1 of the report."""
    train: int = 300
    """Training images of a network and its surrogates, balanced, drawn anew for each seed."""
    test: int = 200
    """Test images on which the two are compared, balanced, drawn anew for each seed; the images that come with
    tangentkit are no more of two classes."""
    passes: float = 0.2
    """Epochs, as a share of the published ones."""
    dim: int = 2048
    """Features of the projected kernels."""
    ridge: float = 1e-4
    """Penalty of the kernel GLM on its squared weights."""
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    """One network of each kind, with its own images, for each."""

    def __post_init__(self) -> None:
        check_known("cases", self.cases, CASES)
        if min(self.train, self.test) < 20 or not self.passes > 0:
            raise InputError(
                "too small",
                expected="at least 20 images and more than 0 passes",
                got=(self.train, self.passes),
            )


SCALES = {
    "quick": Config(),
    "evening": Config(tuple(CASES), train=800, test=400, passes=0.5),
    "full": Config(tuple(CASES), train=10_000, test=2_000, passes=1.0, dim=10_240, seeds=tuple(range(100))),
}


def trials(config: Config) -> list[Trial]:
    """One for each network and seed; the first seed brings what the figures show."""
    return [
        Trial(
            faithfulness,
            {
                "case": case,
                "seed": seed,
                "data": first_here(CASES[case].data),
                "samples": config.train,
                "test": config.test,
                "passes": config.passes,
                "dim": config.dim,
                "ridge": config.ridge,
                "shown": seed == config.seeds[0],
            },
        )
        for case in config.cases
        for seed in config.seeds
    ]


def faithfulness(
    *,
    case: str,
    seed: int,
    data: str,
    samples: int,
    test: int,
    passes: float,
    dim: int,
    ridge: float,
    shown: bool,
) -> dict[str, Any]:
    """Trains a network and measures the surrogates on all its kernels."""
    kind, key = CASES[case], Key(seed).fold("surrogate", case)
    ours, theirs = drawn(data, samples, test, key=key, classes=kind.classes)
    model = NETWORKS[case](ours, key, passes)
    matrices = kernel_matrices(model, ours.inputs, theirs.inputs, dim, seed)
    surrogates = {
        name: one.surrogate(model, ours.inputs, ours.targets, ridge) for name, one in matrices.items()
    }
    found = {
        name: surrogates[name].faithfulness(theirs.inputs, theirs.targets, cross=one.test, bootstrap=2)
        for name, one in matrices.items()
    }
    # The authors' variant for one-logit networks: the probability of class 1 at all points.
    of_class_1 = {
        name: surrogates[name].faithfulness(
            theirs.inputs, theirs.targets, cross=one.test, bootstrap=2, tau="class-1"
        )
        for name, one in matrices.items()
        if kind.classes
    }
    attribution = surrogates["trNTK"].attribute(theirs.inputs, cross=matrices["trNTK"].test)
    near = {
        name: neighbors(as_operator(one.test), k=NEAREST, progress=False) for name, one in matrices.items()
    }
    return {
        "parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "accuracy": found["trNTK"].network_accuracy.value,
        "kernels": {name: _numbers(one, matrices[name].seconds) for name, one in found.items()},
        "tau_class_1": {name: one.kendall_tau.value for name, one in of_class_1.items()},
        "overlap": {
            name: float(one.overlap(near["trNTK"]).mean()) for name, one in near.items() if name != "trNTK"
        },
        **_spread(attribution),
        **(
            _examples(found["trNTK"], attribution, matrices["trNTK"], near["trNTK"], ours, theirs)
            if shown
            else {}
        ),
        "data_cards": cards(data),
    }


def result(config: Config, records: Records) -> Result:
    """Tables, figures and claims."""
    return report(records, train=config.train, test=config.test, passes=config.passes, dim=config.dim)


def _epochs(published: int, passes: float) -> int:
    return max(1, round(published * passes))


def _sgd(ours: Data, passes: float) -> Training:
    """The published training by SGD, with as large a sum of steps: rate 1e-3 for 100 epochs of 10,000 images."""
    epochs = _epochs(100, passes)
    rate = 1e-3 * (100 * 10_000) / (epochs * len(ours))
    return Training(epochs, min(rate, LARGEST_RATE), batch=4)


def _mlp(ours: Data, key: Key, passes: float) -> nn.Module:
    sizes = (ours.inputs[0].numel(), 100, 100, 100, 1)
    model = mnist2_mlp(sizes, seed=key.fold("network"))
    return _trained(model, ours, key, _sgd(ours, passes), torch.sigmoid)


def _mnist2(ours: Data, key: Key, passes: float) -> nn.Module:
    model = mnist2_cnn(channels=ours.inputs.shape[1], size=ours.inputs.shape[-1], seed=key.fold("network"))
    return _trained(model, ours, key, _sgd(ours, passes), torch.sigmoid)


def _fashion2(ours: Data, key: Key, passes: float) -> nn.Module:
    model = Centered(
        mnist2_cnn(channels=ours.inputs.shape[1], size=ours.inputs.shape[-1], seed=key.fold("network"))
    )
    settings = Training(_epochs(200, passes), 1e-3, optimizer="adam", batch=4)
    return _trained(model, ours, key, settings, torch.sigmoid)


def _cifar2(ours: Data, key: Key, passes: float) -> nn.Module:
    model = Centered(
        cifar2_cnn(channels=ours.inputs.shape[1], size=ours.inputs.shape[-1], seed=key.fold("network"))
    )
    settings = Training(_epochs(200, passes), 1e-3, optimizer="adam", batch=64, loss="bce")
    return _trained(model, ours, key, settings)


def _lenet(ours: Data, key: Key, passes: float) -> nn.Module:
    model = lenet(
        channels=ours.inputs.shape[1],
        size=ours.inputs.shape[-1],
        outputs=len(ours.classes),
        seed=key.fold("network"),
    )
    settings = Training(_epochs(160, passes), 2e-3, optimizer="adam", loss="cross-entropy")
    return _trained(model, ours, key, settings)


NETWORKS: dict[str, Callable[[Data, Key, float], nn.Module]] = dict(
    zip(CASES, (_mlp, _mnist2, _fashion2, _cifar2, _lenet), strict=True)
)
"""Case -> samples, key and share of the epochs -> the trained network."""


def _trained(
    model: nn.Module,
    ours: Data,
    key: Key,
    settings: Training,
    link: Callable[[Tensor], Tensor] = lambda outputs: outputs,
) -> nn.Module:
    """The network after training on the outputs that the link makes of its own."""
    targets = ours.targets if settings.loss == "cross-entropy" else ours.targets[:, None].float()
    train(model, ours.inputs, targets, settings, key=key.fold("order"), forward=lambda net, x: link(net(x)))
    return model


def _numbers(found: Faithfulness, seconds: float) -> dict[str, float]:
    return {
        "tau": found.kendall_tau.value,
        "difference": found.accuracy_difference.value,
        "r2": found.r2.value,
        "agreement": found.agreement.value,
        "seconds": seconds,
    }


def _spread(attribution: Attribution) -> dict[str, float]:
    """What Figure 2 claims of attributions, each as a share of the test samples."""
    predicted = attribution.logits.argmax(1)
    means = attribution.by_class()[torch.arange(len(predicted)), predicted]
    return {
        "mass": float(attribution.share_of_mass(0.01).mean()),
        "largest_is_predicted": float((means.argmax(1) == predicted).double().mean()),
        "mean_in_box": float(attribution.spread().mean_in_box.double().mean()),
    }


def _examples(
    found: Faithfulness,
    attribution: Attribution,
    matrices: Matrices,
    near: Neighbors,
    ours: Data,
    theirs: Data,
) -> dict[str, Any]:
    """What the figures show."""
    network, own = (torch.as_tensor(logits).double() for logits in (attribution.network, attribution.logits))
    rows = torch.arange(len(theirs))
    p, q = (logits.softmax(1)[rows, theirs.targets].numpy() for logits in (network, own))
    inner = interior(p, q)
    mapped = found.curve.forward_log_odds(log_odds(q[inner])) if found.curve else log_odds(q[inner])
    order = torch.argsort(ours.targets, stable=True)[:: max(1, len(ours) // SHOWN_GRAM)]
    first = [int((theirs.targets == label).nonzero()[0]) for label in range(len(theirs.classes))][
        :SHOWN_CLASSES
    ]
    nearest = near.indices[first]
    pictures = [
        torch.cat([theirs.inputs[t][None], ours.inputs[n]]) for t, n in zip(first, nearest, strict=True)
    ]
    labels = [
        [int(theirs.targets[t]), *ours.targets[n].tolist()] for t, n in zip(first, nearest, strict=True)
    ]
    return {
        "odds": np.stack([mapped, log_odds(p[inner])]).astype(np.float32),
        "right": (network.argmax(1) == theirs.targets).numpy()[inner],
        "gram": matrices.train[order][:, order].numpy().astype(np.float16),
        "gram_classes": {
            name: int((ours.targets[order] == label).sum()) for label, name in enumerate(ours.classes)
        },
        "pictures": (255 * torch.stack(pictures).clamp(0, 1)).byte().numpy(),
        "labels": [[ours.classes[label] for label in row] for row in labels],
    }
