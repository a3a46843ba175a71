"""What does not fit together is refused, in the user's own words."""

import numpy as np
import pytest
import torch

from tangentkit.core.errors import InputError, NumericalError
from tangentkit.linalg.operators.matrices import DenseOperator
from tangentkit.surrogate.audit import Flag
from tangentkit.surrogate.page import Explanation, KernelView, Samples
from tangentkit.surrogate.page.positions import positions

N, M, C = 4, 6, 3


def content(**changes) -> dict:
    rng = np.random.default_rng(1)
    view = KernelView("tangent", rng.normal(size=(N, M)), rng.normal(size=(M, C)), rng.normal(size=C))
    plain = {
        "test": Samples([0, 1, 2, 0]),
        "train": Samples(torch.tensor([0, 1, 2, 0, 1, 2])),
        "classes": ("a", "b", "c"),
        "network": torch.zeros(N, C),
        "kernels": (view,),
    }
    return {**plain, **changes}


def view(**changes) -> tuple[KernelView, ...]:
    parts = {"matrix": np.ones((N, M)), "weights": np.ones((M, C)), "offset": np.ones(C), **changes}
    return (KernelView("mine", **parts),)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kernels": ()}, "no kernel"),
        ({"kernels": view() + view()}, "kernels of one name"),
        ({"kernels": view(matrix=np.ones((N, 5)))}, r"matrix of kernel 'mine'.*\(4, 6\), got shape \(4, 5\)"),
        ({"kernels": view(matrix=np.ones(N))}, r"expected shape \(n, m\), got \(4,\)"),
        (
            {"kernels": view(weights=np.ones((C, M)))},
            r"weights of kernel 'mine'.*\(6, 3\), got shape \(3, 6\)",
        ),
        ({"kernels": view(weights=np.full((M, C), np.nan))}, "weights of kernel 'mine' must be finite"),
        ({"kernels": view(offset=np.ones(1))}, r"offset of kernel 'mine'.*\(3,\), got shape \(1,\)"),
        ({"kernels": view(gram=np.ones((N, N)))}, r"Gram matrix of kernel 'mine'.*\(6, 6\)"),
        ({"network": np.zeros((N, 2))}, r"network's logits.*\(4, 3\), got shape \(4, 2\)"),
        ({"network": np.full((N, C), np.inf)}, "must be finite"),
        ({"network": "logits"}, "not numbers"),
        ({"classes": ("only",)}, "two names or more"),
        ({"train": Samples(None)}, "without labels"),
        ({"train": Samples([0, 1, 2, 0, 1, 3])}, "expected 0 to 2, got 3"),
        ({"train": Samples([0, 1, 2, 0, 1, -1])}, "expected 0 to 2, got -1"),
        ({"test": Samples([0.0, 1.0, 2.0, 0.0])}, r"4 integers, got float64 of shape \(4,\)"),
        ({"test": Samples([0, 1])}, r"4 integers, got int64 of shape \(2,\)"),
        ({"test": Samples(None, texts=["one"])}, "bad texts of the test samples: expected 4 texts, got 1"),
        ({"test": Samples(None, names=[1, 2, 3, 4])}, "bad names of the test samples"),
        ({"flags": (Flag(6, "twin", 1.0, "why"),)}, "numbers from 0 to 5, got 6"),
        ({"flags": (Flag(0, "twin", 1.0, "why", (1, -1)),)}, "numbers from 0 to 5, got -1"),
    ],
)
def test_what_does_not_fit_is_refused(changes, message):
    with pytest.raises(InputError, match=message):
        Explanation(**content(**changes))


def test_what_fits_is_taken():
    assert Explanation(**content()).outputs == ("a", "b", "c")


def test_a_kernel_that_is_not_finite_is_named_with_its_row():
    matrix = np.ones((N, M))
    matrix[2, 3] = np.nan
    with pytest.raises(NumericalError, match=r"'mine' is not finite.*row 2"):
        _ = view(matrix=matrix)[0].logits


def test_tensors_arrays_and_operators_give_the_same_rows(rng):
    matrix = torch.from_numpy(rng.normal(size=(600, 7)))
    forms = (matrix, matrix.numpy(), DenseOperator(matrix), matrix.tolist())
    for form in forms:
        parts = list(KernelView("mine", form, np.ones((7, 1)), [0.0]).rows())
        assert len(parts) == 3  # more than are read at a time
        assert np.array_equal(np.concatenate([block for _, block in parts]), matrix.numpy())


def test_the_map_is_that_of_principal_components(rng):
    """With the linear kernel, kernel PCA is PCA: places of test samples included."""
    from sklearn.decomposition import PCA

    train, test = rng.normal(size=(40, 5)) * [5, 3, 1, 1, 1], rng.normal(size=(8, 5))
    found = positions(KernelView("linear", test @ train.T, np.ones((40, 1)), [0.0], gram=train @ train.T))
    assert found is not None
    pca = PCA(2).fit(train)
    for ours, theirs in ((found.train, pca.transform(train)), (found.test, pca.transform(test))):
        assert np.allclose(np.abs(ours), np.abs(theirs), atol=1e-4)


def test_without_a_training_gram_matrix_there_is_no_map():
    assert positions(view()[0]) is None
