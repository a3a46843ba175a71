"""Data sets read by ranges give the same matrices as tensors, and betray it when they change."""

import numpy as np
import pytest
import torch
import zarr
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import tangentkit as tk
from compute.toy_kernels import Gaussian, Linear
from tangentkit.compute import Samples, gram
from tangentkit.compute.sources import as_source, identify_samples
from tangentkit.core.errors import DataError, InputError


def numbers(n: int = 9) -> torch.Tensor:
    return torch.randn(n, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def identified(data) -> dict:
    source = as_source(data)
    return identify_samples(source, source.hashes())


class Plain(Dataset):
    """A map-style data set; it notes the most samples that were read at once."""

    def __init__(self, x: torch.Tensor):
        self.x = x

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i: int):
        return self.x[i]


class Labeled(Plain):
    def __getitem__(self, i: int):
        return self.x[i], i


class InBatches(Plain):
    def __getitems__(self, rows: list[int]):
        return [self.x[i] for i in rows]


def forms(tmp_path):
    x = numbers()
    mapped = np.memmap(tmp_path / "x", dtype="f8", mode="w+", shape=(9, 3))
    mapped[:] = x.numpy()
    array = zarr.create_array(str(tmp_path / "x.zarr"), shape=(9, 3), chunks=(2, 3), dtype="f8")
    array[:] = x.numpy()
    return {
        "tensor": x,
        "array": x.numpy(),
        "map-style": Plain(x),
        "in batches": InBatches(x),
        "labeled": Samples(Labeled(x), inputs=lambda batch: batch[0]),
        "tensor data set": Samples(TensorDataset(x, x), inputs=lambda batch: batch[0]),
        "memory map": np.memmap(tmp_path / "x", dtype="f8", mode="r", shape=(9, 3)),
        "zarr": array,
    }


def test_every_form_of_data_gives_the_same_matrix_and_is_the_same_data(tmp_path):
    kernel = Linear().normalized() + Gaussian()
    expected = kernel(numbers())
    for name, form in forms(tmp_path).items():
        # One store for all: it would refuse other data.
        G = gram(kernel, form, store=tmp_path / "k.zarr", tile=4)
        torch.testing.assert_close(G.dense(), expected, msg=name)
        torch.testing.assert_close(gram(kernel, form).dense(), expected, msg=name)


def test_a_pytree_of_data(tmp_path):
    model = nn.Bilinear(3, 3, 2).double()
    kernel = tk.TangentKernel(model)
    x = numbers()
    pairs = TensorDataset(x, x.flip(0))
    G = gram(kernel, Samples(pairs, inputs=tuple), store=tmp_path / "k", tile=4)
    torch.testing.assert_close(G.dense(), kernel((x, x.flip(0))))


def test_no_more_than_a_tile_is_read_at_once(tmp_path):
    class Ranges:
        most = 0

        def __len__(self):
            return 50

        def __getitem__(self, span: slice):
            self.most = max(self.most, span.stop - span.start)
            return numbers(50)[span]

    data = Ranges()
    source = Samples(data)
    source.hashes()
    data.most = 0
    gram(Gaussian(), source, store=tmp_path / "k", tile=7)
    assert data.most == 7


def test_hashes_are_taken_once():
    class Counting(Plain):
        reads = 0

        def __getitem__(self, i: int):
            self.reads += 1
            return super().__getitem__(i)

    data = Counting(numbers())
    source = Samples(data)
    first = identified(source)
    reads = data.reads
    assert identified(source) == first
    assert data.reads == reads + 1  # the form of the first sample


def test_data_that_change_between_two_readings_are_an_error(tmp_path):
    class Augmented(Plain):
        def __getitem__(self, i: int):
            return self.x[i] + torch.randn(3)

    with pytest.raises(DataError, match=r"samples 0 to 0 have changed"):
        gram(Gaussian(), Augmented(numbers()), store=tmp_path / "k", tile=4)


def test_data_of_the_wrong_length_are_an_error():
    class Short(Plain):
        def __len__(self):
            return 20

        def __getitems__(self, rows):
            return [self.x[i] for i in rows if i < 9]

    with pytest.raises(DataError, match="expected 20 samples, got 9"):
        identified(Samples(Short(numbers())))


@pytest.mark.parametrize("bad", [object(), 3, TensorDataset(torch.zeros(0, 3)), [], "text"])
def test_what_is_no_data_is_refused(bad):
    with pytest.raises(InputError):
        as_source(bad)


def test_targets_that_come_along_are_left_where_the_kernel_takes_one_input(tmp_path):
    kernel, labeled = tk.TangentKernel(nn.Linear(3, 2).double()), TensorDataset(numbers(), torch.arange(9))
    expected = kernel(numbers())
    for data in (labeled, DataLoader(labeled, batch_size=4)):
        torch.testing.assert_close(gram(kernel, data, store=tmp_path / "k", tile=4).dense(), expected)
        torch.testing.assert_close(kernel(data), expected)
        torch.testing.assert_close(gram(kernel, data, data).dense(), expected)
    # Two inputs are no targets.
    pairs, two = TensorDataset(numbers(), numbers().flip(0)), tk.TangentKernel(nn.Bilinear(3, 3, 2).double())
    torch.testing.assert_close(gram(two, pairs).dense(), two((numbers(), numbers().flip(0))))


def test_pairs_of_which_no_part_will_do_are_refused_with_all_parts(tmp_path):
    kernel = tk.TangentKernel(nn.Linear(5, 2).double())
    with pytest.raises(
        InputError, match=r"Linear 'model' .*float64 \(2, 3\)|got \[float64 \(1, 3\), int64 \(1,\)\]"
    ):
        gram(kernel, TensorDataset(numbers(), torch.arange(9)), store=tmp_path / "k")
    assert not (tmp_path / "k").exists()


def test_rows_of_lists_as_of_hugging_face_are_tensors(tmp_path):
    class Rows(Plain):
        def __getitems__(self, rows):
            return [{"input": self.x[i].tolist(), "label": i} for i in rows]

    x = numbers().float()
    kernel = tk.TangentKernel(nn.Linear(3, 2))
    data = Samples(Rows(x), inputs=lambda batch: batch["input"])
    torch.testing.assert_close(gram(kernel, data, store=tmp_path / "k", tile=4).dense(), kernel(x))


def test_samples_of_several_lengths_are_an_error_that_says_so(tmp_path):
    class Ragged(Plain):
        def __getitem__(self, i):
            return self.x[i, : 1 + i % 3]

    with pytest.raises(InputError, match=r"samples 0 to 8 cannot be one batch.*one length"):
        identified(Samples(Ragged(numbers())))


def test_a_stream_is_refused():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter([])

    with pytest.raises(InputError, match="ranges"):
        Samples(Stream())


def test_labeled_data_are_their_inputs():
    data = tk.data.load("fashion-mini", "train", limit=10)
    kernel = tk.ConjugateKernel(nn.Sequential(nn.Flatten(), nn.Linear(data.inputs[0].numel(), 2)))
    assert torch.equal(kernel(data), kernel(data.inputs))
    torch.testing.assert_close(gram(kernel, data).dense(), kernel(data.inputs))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shuffle": True}, r"an order of its own \(RandomSampler\). Try: loader.dataset"),
        ({"batch_size": 4, "drop_last": True}, "drop_last"),
        ({"batch_size": None}, "batches of its own making"),
    ],
)
def test_loaders_with_another_order_than_their_data_set_are_refused(options, message):
    loader = DataLoader(TensorDataset(numbers()), **options)
    with pytest.raises(InputError, match=message):
        gram(Linear(), loader)
    with pytest.raises(InputError, match=message):
        tk.TangentKernel(nn.Linear(3, 2).double())(loader)


def test_a_loader_collates_as_it_does():
    loader = DataLoader(Plain(numbers()), batch_size=4, collate_fn=lambda rows: torch.stack(rows) * 2)
    torch.testing.assert_close(gram(Linear(), loader).dense(), 4 * Linear()(numbers()))


@given(st.permutations(range(6)))
def test_order_and_content_are_told_apart(order):
    x = numbers(6)
    first, second = identified(x), identified(x[list(order)])
    assert first["content"] == second["content"]
    assert (first["order"] == second["order"]) == (list(order) == sorted(order))


def test_a_copied_sample_is_not_another():
    x = numbers(4)
    y = x.clone()
    y[1] = x[0]
    assert identified(x)["content"] != identified(y)["content"]
