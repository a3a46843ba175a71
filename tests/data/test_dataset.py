from dataclasses import FrozenInstanceError, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tangentkit.core import InputError, Key, UnknownNameError
from tangentkit.data import Data
from tangentkit.data.dataset import balanced_quotas

CLASSES = ("ant", "bee", "cat")
COUNTS = st.lists(st.integers(0, 20), min_size=1, max_size=6).filter(any)


def labeled(*labels: int) -> Data:
    # The inputs are the sample numbers, so that every sample can be followed.
    return Data(torch.arange(len(labels))[:, None], torch.tensor(labels), "toy", "train", CLASSES)


LABELED = st.lists(st.integers(0, 2), min_size=1, max_size=40).map(lambda labels: labeled(*labels))


@given(counts=COUNTS, data=st.data())
def test_quotas_are_as_equal_as_the_counts_allow(counts, data):
    total = data.draw(st.integers(1, sum(counts)))
    quotas = balanced_quotas(counts, total)
    assert sum(quotas) == total
    assert all(0 <= quota <= count for quota, count in zip(quotas, counts, strict=True))
    # A class that has more to give is at most one below any other.
    for quota, count in zip(quotas, counts, strict=True):
        assert quota == count or quota >= max(quotas) - 1


@given(counts=COUNTS, data=st.data())
def test_quotas_grow_with_the_total(counts, data):
    total = data.draw(st.integers(1, sum(counts)))
    pairs = zip(balanced_quotas(counts, total - 1), balanced_quotas(counts, total), strict=True)
    assert all(fewer <= more for fewer, more in pairs)


@given(whole=LABELED, seed=st.integers(0, 3), data=st.data())
def test_a_partition_is_a_partition(whole, seed, data):
    n = data.draw(st.integers(1, len(whole)))
    first, rest = whole.partition(n, key=Key(seed))
    assert len(first) == n
    numbers = [part.inputs.flatten().tolist() for part in (first, rest)]
    assert sorted(numbers[0] + numbers[1]) == list(range(len(whole)))
    assert all(part == sorted(part) for part in numbers)
    assert torch.equal(first.targets, whole.targets[first.inputs.flatten()])
    assert list(first.counts.values()) == balanced_quotas(list(whole.counts.values()), n)
    again = whole.some(n, key=Key(seed))
    assert torch.equal(again.inputs, first.inputs)


@given(whole=LABELED, data=st.data())
def test_fewer_samples_are_a_part_of_more(whole, data):
    few = data.draw(st.integers(1, len(whole)))
    many = data.draw(st.integers(few, len(whole)))
    parts = [whole.partition(n, key=Key(0))[0].inputs.flatten().tolist() for n in (few, many)]
    assert set(parts[0]) <= set(parts[1])


def test_other_seeds_take_other_samples():
    whole = labeled(*[0, 1, 2] * 100)
    first, second = (whole.partition(30, key=Key(seed))[0].inputs for seed in (0, 1))
    assert not torch.equal(first, second)


def test_classes_are_drawn_independently():
    part, _ = labeled(*[0, 1, 2] * 100).partition(90, key=Key(0))
    places = [set((part.inputs[part.targets == label] // 3).flatten().tolist()) for label in range(3)]
    assert len(places[0]) == 30
    assert places[0] != places[1] != places[2]


def test_the_order_of_other_classes_does_not_change_the_choice():
    whole = labeled(*[0, 1, 2] * 20)
    alone, _ = whole.only(["cat"]).partition(5, key=Key(0))
    together, _ = whole.partition(15, key=Key(0))
    assert torch.equal(alone.inputs, together.only(["cat"]).inputs)


def test_regression_sets_are_partitioned_without_classes():
    whole = Data(torch.randn(10, 2), torch.randn(10), "toy", "train")
    first, rest = whole.partition(4, key=Key(0))
    assert (len(first), len(rest)) == (4, 6)
    assert whole.counts == {}
    with pytest.raises(InputError, match="no classes"):
        whole.only([0])


@pytest.mark.parametrize("n", [0, -1, 7, True, 2.0, "3"])
def test_bad_numbers_of_samples_are_refused(n):
    with pytest.raises(InputError, match="from 1 to 6"):
        labeled(0, 1, 2, 0, 1, 2).partition(n, key=Key(0))


def test_classes_are_relabeled_in_the_order_given():
    data = labeled(0, 1, 2, 1, 0).only(["cat", 0])
    assert data.classes == ("cat", "ant")
    assert data.targets.tolist() == [1, 0, 1]
    assert data.inputs.flatten().tolist() == [0, 2, 4]


def test_unknown_and_bad_classes_are_refused():
    data = labeled(0, 1, 2)
    with pytest.raises(UnknownNameError, match=r"unknown class of toy 'cut'\. Try: 'cat'"):
        data.only(["cut"])
    for classes in ([3], [-1], [], [0, 0], ["ant", 0], "ant"):
        with pytest.raises(InputError, match=r"0\.\.2|a list of classes, each once"):
            data.only(classes)


def test_sentences_are_taken_like_tensors():
    data = Data(["a", "b", "c", "d"], torch.tensor([0, 1, 0, 1]), "toy", "train", ("x", "y"))
    assert data.take([3, 0]).inputs == ["d", "a"]
    assert data.only(["y"]).inputs == ["b", "d"]
    assert repr(data) == "Data(toy/train: 4 samples, inputs sentences, 2 classes)"


def test_fingerprints_follow_content_and_order():
    data = labeled(0, 1, 2)
    assert data.fingerprint == replace(data, note="same content").fingerprint
    others = [data.take([0, 2, 1]), data.take([0, 1]), replace(data, targets=torch.tensor([0, 1, 1]))]
    others.append(data.map(lambda x: x + 1, note="plus one"))
    assert len({data.fingerprint, *(other.fingerprint for other in others)}) == 5


def test_images_are_standardized_by_training_moments():
    train = Data(torch.rand(50, 3, 4, 4), torch.zeros(50, dtype=torch.int64), "toy", "train", ("one",))
    train = train.map(lambda x: x * torch.tensor([1.0, 2.0, 3.0])[:, None, None], note="scaled")
    whitened = train.standardized(*train.moments())
    torch.testing.assert_close(whitened.inputs.mean((0, 2, 3)), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(whitened.inputs.std((0, 2, 3), correction=0), torch.ones(3))
    assert whitened.inputs.dtype == torch.float32
    assert whitened.note == "scaled; standardized by channel"
    torch.testing.assert_close(train.standardized(1.0, 2.0).inputs, (train.inputs - 1) / 2)
    with pytest.raises(InputError, match="positive"):
        train.standardized(0.0, [1.0, 0.0, 1.0])


def test_points_are_standardized_by_column():
    data = Data(torch.randn(40, 2) * 3 + 1, torch.zeros(40), "toy", "train")
    mean, std = data.moments()
    torch.testing.assert_close(mean, data.inputs.mean(0))
    torch.testing.assert_close(data.standardized(mean, std).moments()[1], torch.ones(2))


def test_inputs_and_targets_must_match():
    with pytest.raises(InputError, match="expected 3 inputs, got 2"):
        Data(torch.zeros(2, 1), torch.zeros(3), "toy", "train")


def test_data_is_frozen():
    with pytest.raises(FrozenInstanceError):
        labeled(0).name = "other"  # pyright: ignore[reportAttributeAccessIssue]
