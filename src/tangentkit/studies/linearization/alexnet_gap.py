"""AlexNet×k and its linearization on classes that look alike, at two learning rates of the linearization.

All start from the same weights and see the same mini-batches.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from torch.nn import functional as F

from tangentkit.core.errors import InputError
from tangentkit.core.seeds import Key
from tangentkit.data.dataset import Data
from tangentkit.data.own_files import read_files
from tangentkit.linearized import ConstantRate, StepDecay, Training, linearize, train
from tangentkit.models import alexnet, lecun_normal, pytorch_default
from tangentkit.studies.linearization.alexnet_gap_result import result as result
from tangentkit.studies.linearization.width_gap import accuracy
from tangentkit.studies.trials.data import cards, drawn, first_here
from tangentkit.studies.trials.fields import check_rising
from tangentkit.studies.trials.own_files import content
from tangentkit.studies.trials.study import DataCard
from tangentkit.studies.trials.trial import Trial, sweep

SIMILAR = {"cifar10": (2, 3, 4, 5, 6, 7), "fashion-mini": (0, 2, 3, 4, 6)}
"""Classes that look alike: the animals of CIFAR-10; the garments with a trunk of Fashion-MNIST."""
SPLITS = ("train", "val")
"""Sub-folders of a folder of pictures, for training and for testing."""
WEIGHT_DECAY, LINEAR_DECAYS = 5e-6, (5e-7, 5e-6)
"""Of the network, and of the linearization at its two learning rates, as published."""
INITS = {"pytorch": pytorch_default, "lecun": lecun_normal}


@dataclass(frozen=True)
class Config:
    """Settings of the study of AlexNet and its linearization."""

    folder: str = ""
    """A folder of pictures train/CLASS/NAME and val/CLASS/NAME of similar classes; none for those of `data`."""
    data: tuple[str, ...] = ("cifar10", "fashion-mini")
    """Data sets whose similar classes are taken where there is no folder, in order of preference."""
    train: int = 720
    """Training images of a data set; of a folder all are taken."""
    test: int = 500
    """Test images of a data set; Fashion-MNIST as it comes with tangentkit has 500 of the similar classes."""
    size: int = 64
    """Height and width of the images, at least 63: scaled, and of a folder also cropped, to it."""
    widths: tuple[float, ...] = (0.0625, 0.125)
    """The k of AlexNet×k, rising."""
    epochs: int = 12
    """Passes over the training images."""
    decay_every: int | None = None
    """Epochs after which the learning rate is divided by 10; none for a constant one."""
    learning_rate: float = 0.1
    """Of the network, as published."""
    linear_rates: tuple[float, ...] = (0.01, 0.001)
    """The higher and the lower one of the linearization; published: 1 and 0.1."""
    init: Literal["pytorch", "lecun"] = "lecun"
    """How weights are drawn; published: as PyTorch does."""
    loss: Literal["l2", "l2-mean"] = "l2-mean"
    """Squared error, summed or averaged over the outputs: the publication does not say which."""
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    """Each has its own images (of a data set), initialization and mini-batches."""

    def __post_init__(self) -> None:
        check_rising("widths", self.widths)
        if len(self.linear_rates) != 2 or self.linear_rates[0] <= self.linear_rates[1]:
            raise InputError("bad linear_rates", expected="a higher and a lower one", got=self.linear_rates)
        if self.size < 63:
            raise InputError("bad size", expected="at least 63, for AlexNet", got=self.size)


SCALES = {
    "quick": Config(),
    "evening": Config(train=1500, test=1000, widths=(0.0625, 0.125, 0.25), epochs=20),
    "full": Config(
        data=(),
        size=224,
        widths=(1.0, 2.0, 3.0, 4.0),
        epochs=100,
        decay_every=30,
        linear_rates=(1.0, 0.1),
        init="pytorch",
    ),
}


def trials(config: Config) -> list[Trial]:
    """One for each width and seed.

    Raises:
        InputError: there are neither pictures nor a data set.
    """
    check_folder(config.folder, needed=not config.data)
    fixed = ("folder", "train", "test", "size", "epochs", "decay_every", "learning_rate", "linear_rates")
    return sweep(
        compare,
        {"width": config.widths, "seed": config.seeds},
        data="" if config.folder else first_here(config.data),
        init=config.init,
        loss=config.loss,
        **{name: getattr(config, name) for name in fixed},
    )


def check_folder(folder: str, *, needed: bool) -> None:
    """Refuses a folder without train and val in it, and the absence of one where it is needed.

    Raises:
        InputError: with the layout that is expected.
    """
    layout = "--folder PATH, with pictures PATH/train/CLASS/NAME and PATH/val/CLASS/NAME"
    hint = "published: ten classes of snakes of ImageNet, about 13,000 pictures; any classes that look alike will do"
    if not folder:
        if needed:
            raise InputError(
                "no data for this study: pictures of your own", expected=layout, got="no folder", hint=hint
            )
        return
    missing = [str(Path(folder) / split) for split in SPLITS if not (Path(folder) / split).is_dir()]
    if missing:
        raise InputError(
            "the folder of pictures is not as expected", expected=layout, got=f"no {missing[0]}", hint=hint
        )


def compare(
    *,
    folder: str,
    data: str,
    train: int,
    test: int,
    size: int,
    width: float,
    seed: int,
    epochs: int,
    decay_every: int | None,
    learning_rate: float,
    linear_rates: Sequence[float],
    init: Literal["pytorch", "lecun"],
    loss: Literal["l2", "l2-mean"],
) -> dict[str, Any]:
    """Trains a network, and its linearization at two learning rates, and evaluates the three."""
    key = Key(seed).fold("alexnet-gap")
    sets = pictures(folder, size) if folder else enlarged(data, train, test, size, key.fold("images"))
    network = alexnet(
        width,
        channels=sets[0].inputs.shape[1],
        outputs=len(sets[0].classes),
        seed=key.fold("network"),
        init=INITS[init],
    )
    higher, lower = linear_rates
    models = {
        "network": (deepcopy(network), learning_rate, WEIGHT_DECAY),
        "higher": (linearize(network), higher, LINEAR_DECAYS[0]),
        "lower": (linearize(network), lower, LINEAR_DECAYS[1]),
    }
    found: dict[str, Any] = {"parameters": sum(p.numel() for p in network.parameters())}
    for name, (model, rate, decay) in models.items():
        _fit(model, sets[0], epochs, rate, decay, decay_every, loss, key.fold("batches"))
        found |= {
            f"{split}_{name}": accuracy(model, one)
            for split, one in zip(("train", "test"), sets, strict=True)
        }
    return {**found, "classes": list(sets[0].classes), "data_cards": _cards(folder, data, sets)}


def _fit(
    model: Any,
    data: Data,
    epochs: int,
    rate: float,
    weight_decay: float,
    decay_every: int | None,
    loss: Literal["l2", "l2-mean"],
    key: Key,
) -> None:
    settings = Training(
        epochs,
        rate,
        momentum=0.9,
        weight_decay=weight_decay,
        batch=32,
        loss=loss,
        schedule=StepDecay(decay_every) if decay_every else ConstantRate(),
    )
    train(model, data.inputs, data.targets, settings, key=key)


@lru_cache(maxsize=1)
def enlarged(name: str, train: int, test: int, size: int, key: Key) -> tuple[Data, Data]:
    """Random images of the similar classes of a data set, scaled up and standardized by channel.

    Example:
        >>> train, test = enlarged("fashion-mini", 10, 5, 64, Key(0))
        >>> train.inputs.shape, len(train.classes)
        (torch.Size([10, 1, 64, 64]), 5)
    """
    first, second = (
        one.map(
            lambda images: F.interpolate(images, size=(size, size), mode="bilinear"),
            note=f"scaled to {size} x {size}",
        )
        for one in drawn(name, train, test, key=key, classes=SIMILAR[name])
    )
    moments = first.moments()
    return first.standardized(*moments), second.standardized(*moments)


def pictures(folder: str, size: int) -> tuple[Data, Data]:
    """All pictures of a folder: the shorter side scaled to 8/7 of the size (256 of 224), cropped, standardized.

    Raises:
        InputError: training and test pictures are of other classes.
    """
    return _pictures(folder, size, content(Path(folder)))


@lru_cache(maxsize=1)
def _pictures(folder: str, size: int, _digest: str) -> tuple[Data, Data]:
    """The same, read once for each digest of what lies in the folder."""
    first, second = (
        read_files(Path(folder) / split, size=round(size * 8 / 7), crop=size).data for split in SPLITS
    )
    if first.classes != second.classes:
        raise InputError(
            "training and test pictures are of other classes",
            expected=f"{', '.join(first.classes)} in val as in train",
            got=", ".join(second.classes),
        )
    moments = first.moments()
    return first.standardized(*moments), second.standardized(*moments)


def _cards(folder: str, data: str, sets: tuple[Data, Data]) -> list[dict[str, Any]]:
    if not folder:
        return cards(data)
    return [
        asdict(
            DataCard(
                Path(folder).name,
                split,
                len(one),
                "a folder of pictures",
                "that of the pictures",
                one.fingerprint,
            )
        )
        for split, one in zip(SPLITS, sets, strict=True)
    ]
