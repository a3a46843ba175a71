"""Spectra against numpy."""

import numpy as np
import pytest
import torch
from torch import Tensor

from tangentkit.core.errors import BudgetError, InputError, NumericalError, UnknownNameError
from tangentkit.linalg import (
    FactorOperator,
    Operator,
    spectrum,
)

every_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
RTOL = {torch.float32: 1e-5, torch.float64: 1e-12}


class Lazy(Operator):
    """A symmetric matrix known only by its blocks."""

    def __init__(self, matrix: Tensor) -> None:
        super().__init__(matrix.shape, dtype=matrix.dtype, device=matrix.device, symmetric=True)
        self.matrix = matrix

    def block(self, rows: slice, cols: slice) -> Tensor:
        return self.matrix[rows, cols]


def features(n: int, p: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Features whose Gram matrix has a falling spectrum."""
    return torch.randn(n, p, dtype=dtype) * torch.arange(1, p + 1, dtype=dtype) ** -0.7


# The decomposition --------------------------------------------------------------------------------------


@every_dtype
@pytest.mark.parametrize("top", [None, 1, 4, 30, 59, 60])
@pytest.mark.parametrize("held", ["tensor", "array", "factor", "lazy", "lazy beyond memory"])
def test_agrees_with_numpy(held, top, dtype):
    A = features(60, 80, dtype)
    K = A @ A.T
    given, memory = {
        "tensor": (K, None),
        "array": (K.numpy(), None),
        "factor": (FactorOperator(A), None),
        "lazy": (Lazy(K), None),
        "lazy beyond memory": (Lazy(K), K.nbytes - 1),
    }[held]
    if memory and top in (None, 60):
        with pytest.raises(BudgetError):
            spectrum(given, top, memory=memory)
        return
    s = spectrum(given, top, memory=memory)
    r = 60 if top is None else top
    expected = torch.from_numpy(np.linalg.eigvalsh(K.double().numpy())[::-1].copy())
    assert s.values.shape == (r,)
    assert s.vectors.shape == (60, r)
    assert s.values.dtype == s.vectors.dtype == dtype
    scale = float(expected[0])
    torch.testing.assert_close(s.values.double(), expected[:r], rtol=0, atol=RTOL[dtype] * scale)
    torch.testing.assert_close(K @ s.vectors, s.vectors * s.values, rtol=0, atol=10 * RTOL[dtype] * scale)
    torch.testing.assert_close(
        s.vectors.T @ s.vectors, torch.eye(r, dtype=dtype), rtol=0, atol=10 * RTOL[dtype]
    )
    assert s.is_partial == (r < 60)
    assert s.trace == pytest.approx(float(expected.sum()), rel=RTOL[dtype])
    assert s.share == pytest.approx(float(expected[:r].sum() / expected.sum()), rel=10 * RTOL[dtype])


@pytest.mark.parametrize("top", [None, 3, 40])
def test_of_the_jacobian_are_its_singular_values(top):
    J = features(50, 20)
    s = spectrum(J @ J.T, top, of="jacobian")
    expected = torch.zeros(50, dtype=torch.float64)
    expected[:20] = torch.linalg.svdvals(J)
    torch.testing.assert_close(s.values, expected[:top], rtol=1e-10, atol=1e-6)
    assert s.of == "jacobian"
    assert s.share == pytest.approx(float(expected[:top].square().sum() / expected.square().sum()))


@pytest.mark.parametrize("top", [None, 2])
def test_is_the_same_every_time(top):
    K = features(60, 60)
    K = K @ K.T
    assert torch.equal(spectrum(K, top).vectors, spectrum(K, top).vectors)


@pytest.mark.parametrize("top", [1, 3])
def test_repeated_eigenvalues_are_all_found(top):
    s = spectrum(torch.eye(40, dtype=torch.float64), top)
    torch.testing.assert_close(s.values, torch.ones(top, dtype=torch.float64))
    torch.testing.assert_close(s.vectors.T @ s.vectors, torch.eye(top, dtype=torch.float64))


@every_dtype
@pytest.mark.parametrize("times", [2, 20, 60])
def test_an_eigenvalue_is_found_as_often_as_it_occurs(times, dtype):
    values = torch.linspace(0, 1, 700, dtype=dtype).square()
    values[-times - 5 :] = 3.0
    values[-5:] = torch.arange(5.0, 10.0)
    values, _ = values.sort(descending=True)
    Q, _ = torch.linalg.qr(torch.randn(700, 700, dtype=dtype))
    K = (Q * values) @ Q.T
    s = spectrum((K + K.T) / 2, times + 7)
    torch.testing.assert_close(s.values, values[: times + 7], rtol=0, atol=10 * RTOL[dtype])


# Spectra that fall quickly, slowly and hardly, and one that is rounding from the eighth value on.
every_decay = pytest.mark.parametrize(
    "values",
    [
        torch.arange(1.0, 601.0) ** -2,
        torch.arange(1.0, 601.0) ** -0.2,
        torch.linspace(1.0, 0.9, 600),
        torch.cat([torch.arange(8.0, 1.0, -1.0), torch.zeros(593)]),
        torch.linspace(2.0, -3.0, 600),
    ],
    ids=["steep", "slow", "flat", "of low rank", "indefinite"],
)


@every_decay
@every_dtype
@pytest.mark.parametrize(
    ("memory", "roundings"), [(None, 20), (600 * 8 * 40, 500)], ids=["room", "hardly any room"]
)
def test_a_few_are_as_accurate_as_all(values, dtype, memory, roundings):
    Q, _ = torch.linalg.qr(torch.randn(600, 600, dtype=torch.float64))
    K = ((Q * values) @ Q.T).to(dtype)
    K = (K + K.T) / 2
    few, every = spectrum(K, 20, memory=memory), spectrum(K)
    scale, eps = float(every.values.abs().max()), torch.finfo(dtype).eps
    torch.testing.assert_close(few.values, every.values[:20], rtol=0, atol=RTOL[dtype] * scale)
    residuals = (K @ few.vectors - few.vectors * few.values).norm(dim=0)
    assert float(residuals.max()) <= roundings * eps * scale
    overlaps = few.vectors.T @ few.vectors - torch.eye(20, dtype=dtype)
    assert float(overlaps.abs().max()) <= 50 * eps


@pytest.mark.parametrize(
    ("dtype", "size"),
    [
        (torch.float32, 1e-30),
        (torch.float32, 1e-25),
        (torch.float32, 1e19),
        (torch.float32, 1e30),
        (torch.float64, 1e-300),
        (torch.float64, 1e300),
    ],
)
def test_a_few_eigenpairs_go_with_the_size_of_the_matrix_however_small_or_large(dtype, size):
    W = torch.randn(120, 240, dtype=dtype, generator=torch.Generator().manual_seed(0))
    K = W @ W.T / 240
    expected, found = spectrum(K, top=3), spectrum(size * K, top=3)
    torch.testing.assert_close(found.values / size, expected.values, rtol=1e-5, atol=0.0)
    torch.testing.assert_close(found.vectors.abs(), expected.vectors.abs(), rtol=0.0, atol=1e-4)


def test_a_power_of_two_times_a_matrix_has_the_same_eigenvectors_to_the_bit():
    W = torch.randn(120, 240, generator=torch.Generator().manual_seed(0))
    one, other = spectrum(W @ W.T, top=3), spectrum(2.0**-70 * (W @ W.T), top=3)
    assert torch.equal(one.vectors, other.vectors)
    assert torch.equal(2.0**-70 * one.values, other.values)


def test_indefinite_matrices_have_spectra():
    K = torch.diag(torch.tensor([1.0, -5.0, 3.0]))
    s = spectrum(K)
    torch.testing.assert_close(s.values, torch.tensor([3.0, 1.0, -5.0]))
    for ask in (s.effective_rank, s.condition_number, lambda: spectrum(K, of="jacobian")):
        with pytest.raises(NumericalError, match=r"got -5\. Try: a ridge of 5"):
            ask()


def test_the_top_of_an_indefinite_matrix_is_its_largest_not_its_longest():
    K = torch.diag(torch.linspace(-5, 3, 41, dtype=torch.float64))
    torch.testing.assert_close(spectrum(K, 2).values, torch.tensor([3.0, 2.8], dtype=torch.float64))


def test_one_by_one():
    s = spectrum(torch.tensor([[4.0]]), of="jacobian")
    assert s.values.tolist() == [2.0]
    assert s.effective_rank() == s.condition_number() == s.energy(torch.ones(1)) == 1.0


@pytest.mark.parametrize("top", [0, -1, 4])
def test_bad_numbers_of_eigenpairs_are_refused(top):
    with pytest.raises(InputError, match="from 1 to 3"):
        spectrum(torch.eye(3), top)


@pytest.mark.parametrize("top", [None, 1, 3])
def test_the_spectrum_of_zero_is_zero(top):
    found = spectrum(torch.zeros(30, 30, dtype=torch.float64), top)
    assert not found.values.any()
    torch.testing.assert_close(found.vectors.T @ found.vectors, torch.eye(len(found.values)).double())


def test_where_lanczos_fails_the_error_says_what_to_do(monkeypatch):
    monkeypatch.setattr("tangentkit.linalg.spectra.block_lanczos.MOST_PRODUCTS", 2)
    with pytest.raises(NumericalError, match=r"Lanczos found no 1 largest .* 2 products .* top=None"):
        spectrum(torch.diag(torch.linspace(0, 1, 300)), 1)


@pytest.mark.parametrize("top", [None, 1])
def test_bad_matrices_are_refused(top):
    K = torch.eye(20)
    K[2, 5] = 1.0
    with pytest.raises(NumericalError, match="symmetric"):
        spectrum(K, top)
    with pytest.raises(InputError, match="square"):
        spectrum(K[:5], top)
    K[2, 5] = torch.nan
    with pytest.raises(NumericalError, match="non-finite"):
        spectrum(K, top)
    for memory in (None, 8):
        with pytest.raises(
            NumericalError if top or memory is None else BudgetError, match=r"non-finite|budget"
        ):
            spectrum(Lazy(K), top, memory=memory)
    with pytest.raises(UnknownNameError, match="jacobian"):
        spectrum(torch.eye(3), of="jacobain")  # type: ignore[arg-type]


def test_features_are_told_from_kernels_with_the_way_to_one():
    with pytest.raises(InputError, match=r"x @ x\.T.*FactorOperator.*jacobian"):
        spectrum(torch.randn(8, 3))
