"""The readers of the large sets on small files of the same form, so that they are tested without the sets."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from data.toy_set import idx, md5, zipped
from tangentkit.data import SETS, load
from tangentkit.data.registry import Edition


@pytest.fixture
def stand_in(bare, monkeypatch):
    """Writes files of these contents to the cache, and puts their sums into the table."""

    def write(name: str, contents: dict[str, bytes], number: int = 0) -> None:
        def known(edition: Edition) -> Edition:
            files = {
                split: tuple(replace(file, md5=md5(contents[file.name])) for file in files)
                for split, files in edition.files.items()
            }
            return replace(edition, files=files)

        editions = SETS[name].editions
        folder = bare / editions[number].folders[0]
        folder.mkdir(parents=True)
        for file, content in contents.items():
            Path(folder / file).write_bytes(content)
        for other in SETS.values():
            if other.editions == editions:
                monkeypatch.setitem(SETS, other.name, replace(other, editions=(known(editions[number]),)))

    return write


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_sets_in_idx_files_are_read_as_written(stand_in, name):
    images = {
        "train": np.arange(5 * 6, dtype=np.uint8).reshape(5, 3, 2),
        "t10k": np.full((1, 3, 2), 255, np.uint8),
    }
    labels = {"train": np.array([9, 0, 1, 2, 3], np.uint8), "t10k": np.array([4], np.uint8)}
    contents = {f"{part}-images-idx3-ubyte": idx(array) for part, array in images.items()}
    stand_in(name, contents | {f"{part}-labels-idx1-ubyte": idx(array) for part, array in labels.items()})
    train, test = load(name, "train"), load(name, "test")
    torch.testing.assert_close(train.inputs, torch.from_numpy(images["train"])[:, None] / 255)
    assert train.targets.tolist() == [9, 0, 1, 2, 3]
    assert test.inputs.unique().tolist() == [1]
    assert test.targets.tolist() == [4]


def test_cifar_batches_are_joined_in_order(stand_in):
    def batch(*labels):
        return b"".join(bytes([label]) + bytes([label]) * 1024 + bytes(2048) for label in labels)

    train = {f"data_batch_{number}.bin": batch(number, 9 - number) for number in range(1, 6)}
    stand_in("cifar10", train | {"test_batch.bin": batch(7)})
    data = load("cifar10", "train")
    assert data.targets.tolist() == [1, 8, 2, 7, 3, 6, 4, 5, 5, 4]
    torch.testing.assert_close(data.inputs[:, 0, 0, 0] * 255, data.targets.float())
    assert data.inputs[:, 1:].count_nonzero() == 0
    assert load("cifar10", "test").inputs.shape == (1, 3, 32, 32)
    assert load("cifar2", "train").targets.tolist() == [1, 0, 1, 0, 1, 0, 1, 0, 0, 1]


def test_every_split_of_cola_is_read_from_its_own_file(stand_in):
    files = ("in_domain_train.tsv", "in_domain_dev.tsv", "out_of_domain_dev.tsv")
    stand_in("cola", {file: f'a\t1\t\tIn "{file}\nb\t0\t*\tNot in it\n'.encode() for file in files})
    for split, file in zip(("train", "dev", "out-of-domain"), files, strict=True):
        data = load("cola", split)
        assert data.inputs == [f'In "{file}', "Not in it"]
        assert data.targets.tolist() == [1, 0]
        assert data.classes == ("unacceptable", "acceptable")


def rows(*tweets: tuple[int, str]) -> str:
    return "\r\n".join(f'"{polarity}","1","Mon","q","someone","{text}"' for polarity, text in tweets)


TWEETS = {
    "P": rows((0, "bad"), (4, "olé @you"), (4, "fine")),
    "M": rows((2, "neutral"), (0, "ugh"), (4, "yes")),
}


def test_the_sample_of_tweets_warns_that_class_and_date_are_confounded(stand_in):
    names = {"P": "training.sample20000.noemoticon.csv", "M": "testdata.manual.2009.06.14.csv"}
    stand_in("sentiment140", {names[split]: text.encode() for split, text in TWEETS.items()})
    check_tweets()
    assert "confounded" in load("sentiment140", "P").note


def test_the_original_archive_of_tweets(stand_in):
    names = {"P": "training.1600000.processed.noemoticon.csv", "M": "testdata.manual.2009.06.14.csv"}
    pack = zipped({names[split]: text.encode("latin-1") for split, text in TWEETS.items()})
    stand_in("sentiment140", {"trainingandtestdata.zip": pack}, number=1)
    check_tweets()
    assert "confounded" not in load("sentiment140", "P").note


def check_tweets() -> None:
    tweets, by_hand = load("sentiment140", "P"), load("sentiment140", "M")
    assert tweets.inputs == ["bad", "olé USERNAME", "fine"]
    assert tweets.counts == {"negative": 1, "positive": 2}
    assert by_hand.inputs == ["ugh", "yes"]
    assert load("sentiment140", "P", limit=2).counts == {"negative": 1, "positive": 1}
