"""The data of trials: the best set that is here, loaded once for each process, with its papers."""

from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from typing import Any

from tangentkit.core.errors import InputError
from tangentkit.core.seeds import Key
from tangentkit.data import is_here, load
from tangentkit.data.dataset import Data
from tangentkit.studies.trials.study import DataCard


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
    raise InputError(
        "no data for this study",
        expected=f"one of {', '.join(names)}",
        got="none on this machine",
        hint="tangentkit data list says how to get them",
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
