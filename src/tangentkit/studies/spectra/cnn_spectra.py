"""Spectra of the tangent kernel of a small CNN on two classes of images, before and after three ways of training.

The publication shows them for CIFAR-10 restricted to two classes (Figure 22): gradient descent, SGD and Adam, with
Q-Q plots of the eigenvalues before and after.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tangentkit.analysis.alignment.kernel_target import kernel_target_alignment
from tangentkit.analysis.spectra.comparison import compare_spectra
from tangentkit.core.errors import InputError, NumericalError
from tangentkit.core.seeds import Key
from tangentkit.data.dataset import Data
from tangentkit.empirical import TangentKernel
from tangentkit.linalg.spectra.tails import Hill
from tangentkit.linearized import Stop, Training, train
from tangentkit.models import Centered, cifar2_cnn
from tangentkit.studies.spectra.cnn_spectra_result import report
from tangentkit.studies.trials.data import cards, drawn, first_here
from tangentkit.studies.trials.records import Records
from tangentkit.studies.trials.study import Result
from tangentkit.studies.trials.trial import Trial

CLASSES = (0, 1)


@dataclass(frozen=True)
class Config:
    """Settings of the spectra of a CNN."""

    data: tuple[str, ...] = ("cifar10", "fashion-mini")
    """Names of data sets, of which the first that is here is used; of its classes the first two."""
    images: int = 2000
    """Training images, those of the kernel too."""
    test: int = 2000
    """Test images."""
    pool: int = 1
    """Pixels of a side that are averaged to one: 2 makes images of 16 x 16 from those of 32 x 32."""
    width: int = 8
    """w: the convolutions have 8w, 4w and w channels, two of each."""
    gd_rate: float = 1.0
    """Learning rate of gradient descent on all images."""
    sgd_rate: float = 0.5
    """Of SGD."""
    adam_rate: float = 1e-3
    """Of Adam."""
    batch: int = 64
    """Images of a step of SGD and Adam."""
    gd_epochs: int = 5000
    """Most steps of gradient descent."""
    epochs: int = 200
    """Most passes of SGD and Adam over the images."""
    loss: float = 0.05
    """Cross-entropy on the training images at which training ends."""
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    """One draw of images and one network for each."""

    def __post_init__(self) -> None:
        if self.pool < 1:
            raise InputError("bad pool", expected="at least 1", got=self.pool)


SMALL: dict[str, Any] = {"pool": 2, "adam_rate": 3e-3, "batch": 32}
SCALES = {
    # 200 test images: Fashion-MNIST as it comes with tangentkit has no more of two classes.
    "quick": Config(images=300, test=200, width=2, gd_epochs=200, epochs=120, **SMALL),
    "evening": Config(images=600, test=1000, width=4, gd_epochs=3_000, epochs=160, **SMALL),
    "full": Config(),
}


def trials(config: Config) -> list[Trial]:
    """Three ways of training for every seed."""
    ways = {
        "GD": ("sgd", config.gd_rate, 0, config.gd_epochs),
        "SGD": ("sgd", config.sgd_rate, config.batch, config.epochs),
        "Adam": ("adam", config.adam_rate, config.batch, config.epochs),
    }
    same = {name: getattr(config, name) for name in ("images", "test", "pool", "width", "loss")}
    return [
        Trial(
            spectra,
            {
                "way": way,
                "seed": seed,
                "data": first_here(config.data),
                "optimizer": optimizer,
                "rate": rate,
                "batch": batch,
                "epochs": epochs,
                **same,
            },
        )
        for way, (optimizer, rate, batch, epochs) in ways.items()
        for seed in config.seeds
    ]


def result(config: Config, records: Records) -> Result:
    """Accuracies, and what lies beyond the initial edge."""
    size = f"w = {config.width}, {config.images} images, sides divided by {config.pool}"
    return report(records, size, config.loss)


def spectra(
    *,
    way: str,  # noqa: ARG001
    data: str,
    images: int,
    test: int,
    pool: int,
    width: int,
    optimizer: Any,
    rate: float,
    batch: int,
    epochs: int,
    loss: float,
    seed: int,
) -> dict[str, Any]:
    """Trains one CNN; eigenvalues of its tangent kernel on the training images before and after, and accuracy.

    The way is only a name. The network is the published one of two classes: its output minus that at its start.
    """
    key = Key(seed).fold("cnn-spectra")
    ours, fresh = drawn(data, images, test, key=key.fold("data"), classes=CLASSES)
    x, z = (pooled(one, pool) for one in (ours, fresh))
    model = Centered(cifar2_cnn(width, channels=x.shape[1], size=x.shape[-1], seed=key.fold("network")))
    initial, kernel = eigenvalues(model.model, x)
    settings = Training(
        epochs, rate, optimizer=optimizer, batch=batch or None, loss="bce", stop=Stop(loss=loss)
    )
    signs = 2.0 * ours.targets - 1
    aligned = [kernel_target_alignment(kernel, signs.double())]
    try:
        history = train(model, x, ours.targets[:, None].float(), settings, key=key.fold("order"))
    except NumericalError:
        return {"diverged": True}
    with torch.no_grad():
        hits = (model(z)[:, 0] > 0) == (fresh.targets > 0)
    final, kernel = eigenvalues(model.model, x)
    aligned.append(kernel_target_alignment(kernel, signs.double()))
    return {
        "diverged": False,
        "accuracy": 100 * float(hits.double().mean()),
        "train_loss": history["train loss"][-1],
        "epochs_run": len(history.rows),
        "beyond": int((final[1:] > initial[1]).sum()),
        "ks": compare_spectra(initial, final).ks,
        "growth": float(final.sum() / initial.sum()),
        "hill": [Hill().alpha(values) for values in (initial, final)],
        "kta": aligned,
        "spectra": np.stack([initial, final]).astype(np.float32),
        "data_cards": cards(data),
    }


def pooled(data: Data, pool: int) -> Tensor:
    """The images, squares of pixels averaged."""
    return nn.functional.avg_pool2d(data.inputs, pool)


def eigenvalues(model: nn.Module, x: Tensor) -> tuple[np.ndarray, Tensor]:
    """Those of the tangent kernel, from the largest and none below rounding, and the kernel; in float64."""
    kernel = TangentKernel(model.double())(x.double())
    model.float()
    values = torch.linalg.eigvalsh(kernel).flip(0).numpy()
    return values.clip(min=np.finfo(float).eps * values[0]), kernel
