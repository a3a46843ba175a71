"""The data of trials: the best set that is here, loaded once for each process, with its papers."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import cache
from typing import Any

from tangentkit.core.errors import InputError
from tangentkit.core.seeds import Key
from tangentkit.data import is_here, load
from tangentkit.data.dataset import Data
from tangentkit.data.registry import SETS
from tangentkit.studies.trials.study import DataCard
from tangentkit.studies.trials.trial import Trial

DRAWN = {
    "train": ("train", "samples", "train_samples", "images"),
    "test": ("test", "watched", "test_samples"),
    "shift": ("shift",),
}
"""What is asked of a data set -> the settings of trials that say how much of it."""


def first_here(names: Sequence[str]) -> str:
    """The first of some data sets that is on this machine.

    Raises:
        InputError: none is.

    Example:
        >>> first_here(("fashion-mini", "digits"))
        'fashion-mini'
    """
    for name in names:
        if is_here(name):
            return name
    if not names:
        raise InputError("no data for this study", expected="the name of a data set", got="none")
    raise InputError(
        "no data for this study",
        expected=f"one of {', '.join(names)}",
        got="none on this machine",
        hint="tangentkit data list says how to get them",
    )


def check_data(trials: Iterable[Trial]) -> None:
    """Refuses trials whose setting `data` names no images, or fewer or smaller ones than they ask for.

    They would all fail, some of them only after hours.

    Raises:
        InputError: with what the data set has.
    """
    asked: dict[str, Counter[str]] = {}
    for trial in trials:
        name = trial.settings.get("data")
        if isinstance(name, str) and name in SETS:  # else there are none, or pictures of the user's own
            most = asked.setdefault(name, Counter())
            for what, names in DRAWN.items():
                numbers = (trial.settings.get(one) for one in names)
                most[what] = max(most[what], *(n for n in numbers if isinstance(n, int)), 0)
    for name, most in asked.items():
        check_images(name, **most)


def check_images(name: str, *, train: int = 0, test: int = 0, shift: int = 0) -> None:
    """Refuses a data set that is not of images, or has fewer or smaller ones than are asked for.

    Raises:
        InputError: with what it has.

    Example:
        >>> check_images("mnist", shift=28)
        Traceback (most recent call last):
        tangentkit.core.errors.InputError: bad value for --shift: expected less than the 28 pixels of mnist, got 28
    """
    entry = SETS[name]
    if not entry.shape:
        names = ", ".join(one.name for one in SETS.values() if one.shape)
        raise InputError("no data for this study", expected=f"images: one of {names}", got=name)
    for split, number in (("train", train), ("test", test)):
        if number > entry.counts[split]:
            words = f"at most the {entry.counts[split]:,} {split} images of {name}"
            raise InputError("no data for this study", expected=words, got=f"{number:,}")
    if shift >= (side := min(entry.shape[1:])):
        raise InputError(
            "bad value for --shift", expected=f"less than the {side} pixels of {name}", got=shift
        )


@cache
def whole(name: str, split: str, classes: tuple[int, ...] | None = None) -> Data:
    """A data set, loaded once for each process."""
    return load(name, split, classes=classes)


def drawn(
    name: str,
    train: int,
    test: int,
    *,
    key: Key,
    classes: Sequence[int] | None = None,
    standardized: bool = False,
) -> tuple[Data, Data]:
    """Random training and test samples, balanced over the classes.

    Args:
        name: of a data set with the splits train and test.
        train: number of training samples.
        test: number of test samples.
        key: of the choice.
        classes: to tell apart; None for all.
        standardized: by the mean and the standard deviation of each channel of the training samples.

    Raises:
        InputError: there are fewer samples than asked for.

    Example:
        >>> train, test = drawn("fashion-mini", 20, 10, key=Key(0))
        >>> len(train), len(test), set(train.counts.values())
        (20, 10, {2})
    """
    chosen = None if classes is None else tuple(classes)
    first = _some(whole(name, "train", chosen), train, key.fold("train"))
    second = _some(whole(name, "test", chosen), test, key.fold("test"))
    if standardized:
        moments = first.moments()
        return first.standardized(*moments), second.standardized(*moments)
    return first, second


def _some(data: Data, n: int, key: Key) -> Data:
    """Random n samples, or an error that says what to do where there are fewer."""
    if n > len(data):
        raise InputError(
            f"too few samples of {data.name}, {data.split}"
            + (f", of the classes {', '.join(data.classes)}" if data.classes else ""),
            expected=f"{n:,}, as the settings of the study say",
            got=f"{len(data):,}",
            hint="smaller numbers of samples (--train, --test or what the study calls them), or a larger data set: "
            "tangentkit data list",
        )
    return data.some(n, key=key)


def cards(*names: str, splits: Sequence[str] = ("train", "test")) -> list[dict[str, Any]]:
    """The papers of whole data sets; a trial returns them under `data_cards`, and the page shows each once."""
    return [_card(name, split) for name in names for split in splits]


@cache
def _card(name: str, split: str) -> dict[str, Any]:
    data = whole(name, split)
    return asdict(
        DataCard(data.name, data.split, len(data), data.source, data.licence, data.fingerprint, data.note)
    )
