"""The real sets: counts, class shares and moments as published. They skip where the sets are not."""

import gzip
import importlib.util
import re
from pathlib import Path

import pytest
import torch

from tangentkit.core import DataError, Key
from tangentkit.data import SETS, fetch, is_here, load
from tangentkit.data.registry import EMBEDDED

pytestmark = pytest.mark.data


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cola", "sentiment140"])
def test_every_file_has_its_sum(real_data, name):
    folder = fetch(name)
    assert folder is not None
    assert folder.is_relative_to(real_data)


@pytest.mark.parametrize(
    ("name", "mean", "std"), [("mnist", 0.1307, 0.3081), ("fashion-mnist", 0.2860, 0.3530)]
)
def test_gray_images_have_the_published_shapes_and_moments(real_data, name, mean, std):
    train, test = load(name, "train"), load(name, "test")
    assert (train.inputs.shape, test.inputs.shape) == ((60_000, 1, 28, 28), (10_000, 1, 28, 28))
    assert train.inputs.dtype == torch.float32
    assert [float(moment) for moment in train.moments()] == pytest.approx([mean, std], abs=5e-5)
    if name == "fashion-mnist":
        assert set(train.counts.values()) == {6000}
    else:
        assert (train.counts["0"], train.counts["1"], test.counts["0"]) == (5923, 6742, 980)


def test_the_small_binary_sets(real_data):
    train = load("mnist", "train", classes=[0, 1], limit=10_000)
    test = load("mnist", "test", classes=[0, 1], limit=1960)
    assert train.counts == {"0": 5000, "1": 5000}
    assert test.counts == {"0": 980, "1": 980}


def test_cifar_has_the_published_shape_and_moments(real_cifar):
    train = load("cifar10", "train")
    assert train.inputs.shape == (50_000, 3, 32, 32)
    assert set(train.counts.values()) == {5000}
    mean, std = train.moments()
    assert mean.tolist() == pytest.approx([0.49140, 0.48216, 0.44653], abs=5e-6)
    assert std.tolist() == pytest.approx([0.24703, 0.24349, 0.26159], abs=5e-6)


def test_cifar2_is_cifar10_in_two_groups(real_cifar):
    ten, two = load("cifar10", "test"), load("cifar2", "test")
    assert ten.inputs.shape == (10_000, 3, 32, 32)
    assert set(ten.counts.values()) == {1000}
    assert torch.equal(two.targets, (ten.targets <= 4).long())
    assert torch.equal(two.inputs, ten.inputs)
    assert two.counts == {"classes 5-9": 5000, "classes 0-4": 5000}


@pytest.mark.parametrize(
    ("split", "zeros", "ones"), [("train", 2528, 6023), ("dev", 162, 365), ("out-of-domain", 162, 354)]
)
def test_cola_has_the_published_counts(real_data, split, zeros, ones):
    data = load("cola", split)
    assert data.counts == {"unacceptable": zeros, "acceptable": ones}
    assert all(isinstance(sentence, str) and sentence.strip() for sentence in data.inputs)


@pytest.mark.parametrize(("split", "negative", "positive"), [("P", 9_999, 10_001), ("M", 177, 182)])
def test_tweets_have_the_published_counts_and_no_handles(real_data, split, negative, positive):
    data = load("sentiment140", split)
    assert data.counts == {"negative": negative, "positive": positive}
    assert "confounded" in data.note
    assert any("USERNAME" in text for text in data.inputs)
    assert not any(re.search(r"@\w", text) for text in data.inputs)


def test_the_published_split_of_hand_labeled_tweets(real_data):
    train, test = load("sentiment140", "M").partition(300, key=Key(0))
    assert train.counts == {"negative": 150, "positive": 150}
    assert len(test) == 59


def test_a_truncated_copy_of_real_data_is_an_error(real_data, tmp_path):
    source = real_data / "mnist" / "t10k-labels-idx1-ubyte.gz"
    (tmp_path / "t10k-images-idx3-ubyte.gz").symlink_to(real_data / "mnist" / "t10k-images-idx3-ubyte.gz")
    (tmp_path / source.name).write_bytes(gzip.compress(gzip.decompress(source.read_bytes())[:-1]))
    with pytest.raises(DataError, match="27ae3e4e09519cfbb04c329615203637"):
        load("mnist", "test", path=tmp_path)


def test_the_script_makes_the_embedded_set(real_data, tmp_path):
    if not is_here("fashion-mnist", path=real_data):
        pytest.skip("Fashion-MNIST is not in TANGENTKIT_DATA")
    path = Path(__file__).parents[2] / "scripts" / "make_fashion_mini.py"
    spec = importlib.util.spec_from_file_location("make_fashion_mini", path)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    script.make(real_data, tmp_path)
    made = {path.name: gzip.decompress(path.read_bytes()) for path in tmp_path.iterdir()}
    kept = {path.name: gzip.decompress(path.read_bytes()) for path in EMBEDDED.glob("*.gz")}
    assert made == kept
    assert {path.name.removesuffix(".gz") for path in tmp_path.iterdir()} == {
        file.name for file in SETS["fashion-mini"].editions[0].all_files
    }
