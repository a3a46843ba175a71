from collections import UserDict, namedtuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.data import DataLoader, TensorDataset

from tangentkit.core import InputError, as_batch, batch_size
from tangentkit.core.batches import check_same_structure, concatenate, describe, move, split, take, tensors

Pair = namedtuple("Pair", ["left", "right"])


def nested(n):
    return {"a": torch.arange(n), "b": [torch.rand(n, 2), (torch.rand(n, 1, 3), None)], "flag": True}


@given(st.integers(1, 30), st.integers(1, 40))
def test_pieces_join_to_the_whole(n, size):
    batch = nested(n)
    pieces = list(split(batch, size))
    assert sum(batch_size(piece) for piece in pieces) == n
    assert all(batch_size(piece) <= size for piece in pieces)
    joined = concatenate(pieces)
    assert describe(joined) == describe(batch)
    assert all(torch.equal(a, b) for a, b in zip(tensors(joined), tensors(batch), strict=True))


def test_samples_are_taken_by_slice_and_by_index():
    batch = nested(6)
    assert take(batch, slice(2, 4))["a"].tolist() == [2, 3]
    assert take(batch, [5, 0])["a"].tolist() == [5, 0]
    assert take(batch, slice(0, 1))["flag"] is True


def test_mappings_arrays_and_named_tuples_are_batches():
    read_only = np.ones((3, 2))
    read_only.setflags(write=False)
    batch = as_batch(UserDict(x=np.zeros((3, 2)), y=Pair(read_only, torch.ones(3))))
    assert isinstance(batch, dict)
    assert isinstance(batch["y"], Pair)
    assert batch_size(batch) == 3
    assert describe(batch) == "{'x': float64 (n, 2), 'y': Pair(left=float64 (n, 2), right=float32 (n))}"


def test_moving_keeps_constants():
    assert move(nested(2), "cpu")["flag"] is True


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("text", "expected a tensor or a pytree of tensors, got str"),
        ([], "got list"),
        (torch.tensor(1.0), "expected tensors with the samples first"),
        ({"a": torch.ones(3), "b": torch.ones(4)}, r"lengths \['3', '4'\]"),
        (torch.ones(0, 3), "expected at least one sample"),
    ],
)
def test_what_is_no_batch_is_refused(data, message):
    with pytest.raises(InputError, match=message):
        as_batch(data)


@pytest.mark.parametrize(
    "other", [torch.ones(4, 3), torch.ones(4, 2, dtype=torch.float64), [torch.ones(4, 2)]]
)
def test_batches_of_other_structure_are_refused(other):
    with pytest.raises(InputError, match=r"expected float32 \(n, 2\)"):
        check_same_structure(torch.ones(5, 2), other)


@pytest.mark.parametrize(
    "wrap", [lambda d: d, lambda d: DataLoader(d, batch_size=2)], ids=["data set", "loader"]
)
def test_data_sets_are_all_their_samples(wrap):
    x = torch.arange(10.0).reshape(5, 2)
    (found,) = as_batch(wrap(TensorDataset(x)))
    assert torch.equal(found, x)


class Labeled:
    """Data that know their inputs, as those of tangentkit.data do."""

    def __init__(self, inputs):
        self.inputs, self.targets = inputs, None


def test_of_labeled_data_the_inputs_are_the_batch():
    x = torch.ones(3, 2)
    assert as_batch(Labeled(x)) is x


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("hello", 'got str. Try: tokenizer.*return_tensors="pt"'),
        (["hello", "world"], "got list of str. Try: tokenizer"),
        (Labeled(["hello", "world"]), "got Labeled. Try: tokenizer"),
        ([[0.0, 1.0], [2.0, 3.0]], r"got list of list. Try: torch.tensor"),
        ({"input_ids": [[1, 2], [3, 4]]}, 'Try: .*return_tensors="pt"'),
        ([torch.ones(3), torch.ones(4)], r"lengths \['3', '4'\].*Try: .*pad_sequence"),
        (torch.eye(3).to_sparse(), r"sparse inputs: .*got torch.sparse_coo \(3, 3\). Try: x.to_dense\(\)"),
        (
            pack_padded_sequence(torch.ones(2, 3, 1), torch.tensor([3, 1]), batch_first=True),
            "a packed sequence has no axis of samples: expected padded.*lengths - 1",
        ),
    ],
)
def test_the_error_for_what_is_no_batch_says_how_to_make_one(data, message):
    with pytest.raises(InputError, match=message):
        as_batch(data)


def test_the_error_for_images_says_how_to_make_a_batch():
    image = pytest.importorskip("PIL.Image").new("RGB", (4, 4))
    for data in (image, [image, image]):
        with pytest.raises(InputError, match=r"Image. Try: .*to_tensor"):
            as_batch(data)


TOKENS = {"input_ids": torch.ones(4, 6).long(), "attention_mask": torch.ones(4, 6).long()}


@pytest.mark.parametrize(
    ("other", "advice"),
    [
        ({**TOKENS, "labels": torch.ones(4)}, "Try: leave out 'labels', or give it in both"),
        (dict(reversed(TOKENS.items())), "Try: the entries in one order"),
        ({name: part[:, :5] for name, part in TOKENS.items()}, 'Try: .*padding="max_length"'),
    ],
    ids=["labels", "order", "length"],
)
def test_the_error_for_tokens_that_do_not_match_says_what_to_do(other, advice):
    for pair in ((TOKENS, other), (other, TOKENS)):
        with pytest.raises(InputError, match=advice):
            check_same_structure(*pair)


@pytest.mark.parametrize("kind", [dict, UserDict])
def test_the_error_for_lists_of_tokens_says_how_to_make_tensors(kind):
    with pytest.raises(InputError, match=f'got {kind.__name__}. Try: .*padding=True, return_tensors="pt"'):
        as_batch(kind({"input_ids": [[1, 2, 3], [4, 5]]}))


def test_lists_match_tuples_as_loaders_make_lists():
    pair = torch.zeros(4, 2), {"mask": (torch.ones(4),)}
    check_same_structure(pair, [pair[0], {"mask": [torch.ones(3)]}])
    with pytest.raises(InputError, match="do not match"):
        check_same_structure(pair, [pair[0]])


class Frame:
    """As a data frame of pandas is."""

    def to_numpy(self):
        return np.ones((2, 3))


def test_the_error_for_data_frames_says_how_to_make_a_batch():
    with pytest.raises(InputError, match=r"got Frame. Try: x.to_numpy\(\)"):
        as_batch(Frame())


@pytest.mark.parametrize("dtype", [">f8", ">i2", np.longdouble, "<c16", bool])
def test_arrays_that_torch_cannot_share_are_copied(dtype):
    array = np.array([[0, 1], [1, 0]]).astype(dtype)
    assert torch.equal(
        as_batch(array).to(torch.complex128), torch.tensor([[0, 1], [1, 0]]).to(torch.complex128)
    )


def test_arrays_of_words_are_refused():
    with pytest.raises(InputError, match=r"an array without numbers: expected numbers, got <U3 \(2,\)"):
        as_batch(np.array(["one", "two"]))
