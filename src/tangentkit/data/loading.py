"""`load`: one door to every data set."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from os import PathLike

import numpy as np
import torch
from torch import Tensor

from tangentkit.core.errors import InputError
from tangentkit.core.seeds import Key
from tangentkit.data.dataset import Data
from tangentkit.data.fetching import locate, named, read
from tangentkit.data.formats import parse_cifar, parse_cola, parse_idx, parse_sentiment140, zip_member
from tangentkit.data.places import Found
from tangentkit.data.registry import SETS, Entry
from tangentkit.data.synthetic import function_data, grid_data, random_teacher

Samples = tuple[Tensor | list[str], Tensor]
"""Inputs and targets; images still as bytes, so that a small part of a large set stays cheap."""

DIGITS_TRAIN = 1200
TEACHER_DIMENSION, TEACHER_SAMPLES = 1000, 2000
ORIGINAL_TWEETS = {"P": "training.1600000.processed.noemoticon.csv", "M": "testdata.manual.2009.06.14.csv"}


def load(
    name: str,
    split: str,
    *,
    limit: int | None = None,
    classes: Sequence[int | str] | None = None,
    seed: int = 0,
    path: str | PathLike[str] | None = None,
) -> Data:
    """A data set, or a part of it.

    It is looked for under `path` if that is given; else under TANGENTKIT_DATA, in the cache folder, where
    Debian's package puts Fashion-MNIST, and at last at its public address. Every file is checked by md5.

    Args:
        name: of the data set; `tangentkit data list` shows all.
        split: "train" or "test"; cola has "train", "dev" and "out-of-domain", sentiment140 "P" and "M",
            digits also "all".
        limit: take so many random samples, of each class the same number as far as there are as many.
        classes: keep only these (numbers or names), labeled 0, 1, ... in this order.
        seed: of the samples that `limit` takes and of computed sets; the same seed gives the same samples.
        path: a folder that holds the files, or the folder of the set.

    Raises:
        UnknownNameError: there is no such set, split or class; the message shows the nearest.
        InputError: the limit is not between 1 and the number of samples, or the classes are bad.
        DataError: the set is not to be had, or a file of it is corrupt.

    Example:
        >>> load("fashion-mini", "train", limit=100, classes=["Sandal", "Bag"])
        Data(fashion-mini/train: 100 samples, inputs float32 (1, 28, 28), 2 classes)
    """
    entry, key = named(name, split), Key(seed).fold(name)
    data = _read(entry, split, path) if entry.editions else _compute(entry, split, key, path)
    if classes is not None:
        data = data.only(classes)
    if limit is not None:
        data = data.some(limit, key=key.fold(split))
    if isinstance(data.inputs, Tensor) and data.inputs.dtype == torch.uint8:
        data = replace(data, inputs=data.inputs.float().div_(255))
    return data


def _read(entry: Entry, split: str, path: str | PathLike[str] | None) -> Data:
    found = locate(entry, split, path=path)
    inputs, targets = READERS[entry.name](found, split)
    note = "; ".join(filter(None, (entry.note, found.edition.note)))
    return Data(inputs, targets, entry.name, split, entry.classes, entry.source, entry.licence, note)


def _idx_images(found: Found, split: str) -> Samples:
    images, labels = (
        torch.from_numpy(parse_idx(read(found, file), name=file.name).copy())
        for file in found.edition.files[split]
    )
    return images.unsqueeze(1), labels.long()


def _cifar_images(found: Found, split: str) -> Samples:
    batches = [parse_cifar(read(found, file), name=file.name) for file in found.edition.files[split]]
    images, labels = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    return torch.from_numpy(images), torch.from_numpy(labels).long()


def _cifar_halves(found: Found, split: str) -> Samples:
    images, labels = _cifar_images(found, split)
    return images, (labels <= 4).long()


def _cola_sentences(found: Found, split: str) -> Samples:
    (file,) = found.edition.files[split]
    sentences, labels = parse_cola(read(found, file), name=file.name)
    return sentences, torch.tensor(labels)


def _tweets(found: Found, split: str) -> Samples:
    (file,) = found.edition.files[split]
    content, encoding = read(found, file), "utf-8"
    if file.name.endswith(".zip"):
        content, encoding = zip_member(content, ORIGINAL_TWEETS[split], name=file.name), "latin-1"
    texts, labels = parse_sentiment140(content, name=file.name, encoding=encoding)
    return texts, torch.tensor(labels)


READERS: dict[str, Callable[[Found, str], Samples]] = {
    "fashion-mini": _idx_images,
    "mnist": _idx_images,
    "fashion-mnist": _idx_images,
    "cifar10": _cifar_images,
    "cifar2": _cifar_halves,
    "cola": _cola_sentences,
    "sentiment140": _tweets,
}


def _compute(entry: Entry, split: str, key: Key, path: str | PathLike[str] | None) -> Data:
    if path is not None:
        raise InputError(f"{entry.name} has no files", expected="no path", got=path, hint="leave out path=")
    kind, _, which = entry.name.partition("-")
    data = COMPUTED[kind](which, split, key)
    papers = {"source": entry.source, "licence": entry.licence, "note": entry.note}
    return replace(data, name=entry.name, split=split, classes=entry.classes, **papers)


def _digits(_: str, split: str, __: Key) -> Data:
    # More than a second, which the other sets need not wait for.
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    images = torch.from_numpy(pixels).float().reshape(-1, 1, 8, 8) / 16
    everything = Data(images, torch.from_numpy(labels).long(), "digits", "all", SETS["digits"].classes)
    train, test = everything.partition(DIGITS_TRAIN, key=Key(0).fold("digits"))
    return {"train": train, "test": test, "all": everything}[split]


def _function(which: str, split: str, _: Key) -> Data:
    return function_data(which, split)


def _grid(which: str, split: str, _: Key) -> Data:
    return grid_data(which, split)


def _teacher(_: str, split: str, key: Key) -> Data:
    teacher = random_teacher(TEACHER_DIMENSION, key=key.fold("directions"))
    return teacher.sample(TEACHER_SAMPLES, noise=0.3 if split == "train" else 0.0, key=key.fold(split))


COMPUTED: dict[str, Callable[[str, str, Key], Data]] = {
    "digits": _digits,
    "function": _function,
    "grid": _grid,
    "teacher": _teacher,
}
