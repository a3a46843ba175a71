"""Kernel-target alignment and labels along eigenvectors, against formulas written out."""

import math

import numpy as np
import pytest
import torch

import tangentkit as tk
from tangentkit.analysis import eigenvector_alignments, task_complexity
from tangentkit.core import InputError, NumericalError
from tangentkit.core.seeds import Key
from tangentkit.linalg import FactorOperator
from tangentkit.linalg.spectra.labels import ClassNumbersWarning


def draws(n=40, d=12, seed=0):
    generator = Key(seed).fold("alignment").torch()
    return (torch.randn(n, k, generator=generator, dtype=torch.float64) for k in (d, 1, 3))


def cosine(K, L):
    return float((K * L).sum() / (K.norm() * L.norm()))


def test_alignment_is_the_cosine_of_two_kernels_centered_or_not():
    X, y, Y = draws()
    K, H = (X + 1) @ (X + 1).T, torch.eye(40).double() - 1 / 40
    for labels in (y, Y):
        L = labels @ labels.T
        assert tk.kernel_target_alignment(K, labels) == pytest.approx(cosine(K, L), rel=1e-12)
        found = tk.kernel_target_alignment(K, labels, center=True)
        assert found == pytest.approx(cosine(H @ K @ H, H @ L @ H), rel=1e-12)
    assert tk.kernel_target_alignment(K, y[:, 0]) == tk.kernel_target_alignment(K.numpy(), y.numpy())


def test_operators_are_read_in_tiles_and_give_the_same():
    X, y, _ = draws()
    operator = FactorOperator(X)
    for center in (False, True):
        dense = tk.kernel_target_alignment(X @ X.T, y, center=center)
        tiled = tk.kernel_target_alignment(operator, y, center=center, memory=4000)
        assert tiled == pytest.approx(dense, rel=1e-12)


def test_centering_makes_alignment_blind_to_a_constant():
    X, y, _ = draws()
    K, labels = X @ X.T, y.sign()
    shifted = tk.kernel_target_alignment(K + 7, labels + 3, center=True)
    assert shifted == pytest.approx(tk.kernel_target_alignment(K, labels, center=True), rel=1e-10)


def test_the_conjugate_kernel_of_a_wide_network_aligns_as_published():
    # SPEC 7.9: n = 400, h = 300, d = 200; the kernel-target alignment of CK at the start is 0.065 (one draw).
    found = []
    for seed in range(5):
        key = Key(seed)
        data = tk.data.random_teacher(200, key=key.fold("teacher")).sample(400, key=key.fold("data"))
        W = torch.randn(300, 200, generator=key.fold("W").torch(), dtype=torch.float64)
        h = torch.tanh(data.inputs @ W.T / math.sqrt(200)) / 0.627928 / math.sqrt(300)
        found.append(tk.kernel_target_alignment(h @ h.T, data.targets))
    assert np.mean(found) == pytest.approx(0.065, abs=0.01)


def test_labels_along_eigenvectors_are_a_unit_vector_and_make_the_energy():
    X, y, Y = draws()
    K = X @ X.T
    s = tk.spectrum(K)
    for labels in (y, Y):
        found = eigenvector_alignments(s, labels)
        assert float(found.square().sum()) == pytest.approx(1)
        for top in (1, 5):
            energy = s.energy(labels, top)
            assert float(found[:top].square().sum().sqrt()) == pytest.approx(energy)
            assert torch.allclose(eigenvector_alignments(K, labels, top), found[:top])


def test_the_norm_of_labels_is_at_least_the_bound_of_lemma_1_and_equals_it_on_an_eigenvector():
    X, y, Y = draws(n=10)
    K = X @ X.T
    for labels in (y, Y):
        found = task_complexity(K, labels)
        norm = float((labels * torch.linalg.solve(K, labels)).sum())
        assert found.partial_norm == pytest.approx(norm, rel=1e-8)
        assert found.alignment == pytest.approx(float((labels * (K @ labels)).sum()) / 100)
        assert found.bound <= norm
        assert found.bound == pytest.approx((float(labels.square().sum()) / 10) ** 2 / found.alignment)
    on_axis = task_complexity(K, tk.spectrum(K).vectors[:, 2])
    assert on_axis.bound == pytest.approx(on_axis.partial_norm, rel=1e-8)
    assert torch.allclose(on_axis.energy[2:], torch.ones(8).double())


def test_a_part_of_the_spectrum_gives_a_part_of_the_norm_and_the_same_bound():
    X, y, _ = draws(n=60, d=80)
    whole, part = task_complexity(X @ X.T, y), task_complexity(FactorOperator(X), y, top=5)
    assert part.bound == pytest.approx(whole.bound)
    assert part.partial_norm < whole.partial_norm
    assert torch.allclose(part.energy, whole.energy[:5])
    assert set(part.to_dict()) >= {"energy", "bound", "alignment"}
    assert len(part.table().rows) == 5


def test_bad_labels_and_kernels_are_refused():
    K = torch.eye(6)
    with pytest.raises(InputError, match=r"expected shape \(6,\)"):
        tk.kernel_target_alignment(K, torch.ones(5))
    with pytest.raises(InputError, match="constant, and centering leaves nothing"):
        tk.kernel_target_alignment(K, torch.ones(6), center=True)
    with pytest.raises(InputError, match="kernel is constant"):
        tk.kernel_target_alignment(torch.ones(6, 6), torch.arange(6.0), center=True)
    with pytest.raises(InputError, match="kernel is zero"):
        tk.kernel_target_alignment(torch.zeros(6, 6), torch.arange(6.0))
    with pytest.raises(NumericalError, match="labels"):
        tk.kernel_target_alignment(K, torch.full((6,), torch.nan))
    with pytest.raises(NumericalError, match="symmetric"):
        tk.kernel_target_alignment(torch.ones(6, 6).triu(), torch.ones(6))
    with pytest.raises(NumericalError, match="no alignment"):
        task_complexity(torch.diag(torch.tensor([1.0, 0.0])), torch.tensor([0.0, 1.0]))
    with pytest.raises(InputError, match="number of eigenvectors"):
        eigenvector_alignments(tk.spectrum(K, 2), torch.ones(6), 3)


def test_numbers_of_classes_are_met_with_a_warning():
    K = torch.eye(6, dtype=torch.float64)
    with pytest.warns(ClassNumbersWarning, match=r"labels 0 to 2 are taken as numbers; .* one_hot"):
        as_numbers = tk.kernel_target_alignment(K, torch.tensor([0, 1, 2, 0, 1, 2]))
    with pytest.warns(ClassNumbersWarning):
        assert as_numbers == tk.kernel_target_alignment(K, torch.tensor([0.0, 1, 2, 0, 1, 2]))
    for quiet in ([0, 1, 1, 0, 1, 1], [-1, 1, 1, -1, 1, 1]):
        tk.kernel_target_alignment(K, torch.tensor(quiet))


@pytest.mark.parametrize(
    "y",
    [torch.arange(30) % 3 + 1, (torch.arange(30) % 3).float(), (torch.arange(30) % 4 + 1).double()],
    ids=["from 1", "float32", "float64 from 1"],
)
def test_numbers_of_classes_are_told_whatever_they_begin_with_and_their_dtype(y):
    with pytest.warns(ClassNumbersWarning, match="one_hot"):
        tk.kernel_target_alignment(torch.eye(30), y)


@pytest.mark.parametrize(
    "y",
    [torch.arange(30.0), torch.arange(30) % 2, (torch.arange(30) % 2) * 2.0 - 1, torch.linspace(0, 2, 30)],
    ids=["all different", "two classes", "signs", "no whole numbers"],
)
def test_other_numbers_bring_no_warning(y):
    tk.kernel_target_alignment(torch.eye(30), y)


@pytest.mark.parametrize("y", [np.array(["cat", "dog"] * 5), ["cat", "dog"] * 5], ids=["array", "list"])
def test_words_are_no_labels_and_the_error_says_what_is(y):
    with pytest.raises(InputError, match=r"expected numbers.*'cat'.*np\.unique"):
        tk.kernel_target_alignment(torch.eye(10), y)


def test_an_indefinite_matrix_may_point_away_from_the_labels():
    y = torch.tensor([1.0, -1.0, 1.0, -1.0])
    assert tk.kernel_target_alignment(-torch.outer(y, y), y) == pytest.approx(-1.0)


@pytest.mark.parametrize("scale", [1e-300, 1e-46, 1e-40, 1e-25, 1e20, 1e37, 1e300])
@pytest.mark.parametrize("centered", [True, False])
def test_alignments_do_not_depend_on_the_scale_of_labels_or_kernel(scale, centered):
    torch.manual_seed(0)
    X, y = torch.randn(30, 40), torch.randn(30, dtype=torch.float64)
    K = X @ X.T
    expected = tk.kernel_target_alignment(K, y, center=centered)
    assert tk.kernel_target_alignment(K, scale * y, center=centered) == pytest.approx(expected, rel=1e-4)
    scaled = tk.kernel_target_alignment(scale * K.double(), scale * y, center=centered)
    assert scaled == pytest.approx(expected, rel=1e-4)
    torch.testing.assert_close(eigenvector_alignments(K, scale * y), eigenvector_alignments(K, y))


@pytest.mark.parametrize("scale", [1e-40, 1e-25, 1e20, 1e37])
def test_labels_in_float32_may_have_any_scale(scale):
    torch.manual_seed(0)
    X, y = torch.randn(30, 40), torch.randn(30)
    K = X @ X.T
    scaled = tk.kernel_target_alignment(K, scale * y, center=True)
    assert scaled == pytest.approx(tk.kernel_target_alignment(K, y, center=True), rel=1e-3)
    found, plain = (eigenvector_alignments(K, one) for one in (scale * y, y))
    torch.testing.assert_close(found, plain, rtol=1e-3, atol=1e-4)


def test_the_warning_about_class_numbers_points_at_the_call():
    y, K = torch.arange(12) % 3, torch.eye(12) + 1
    calls = [
        lambda: tk.kernel_target_alignment(K, y),
        lambda: tk.spectrum(K).energy(y),
        lambda: tk.target_alignment(torch.nn.Linear(2, 1), torch.randn(12, 2), y),
    ]
    for call in calls:
        with pytest.warns(ClassNumbersWarning, match="one_hot") as warned:
            call()
        assert [one.filename for one in warned] == [__file__]
