"""What is read off a spectrum: ranks, condition numbers, energies and tails, against their formulas."""

import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tangentkit.core.errors import InputError, NumericalError
from tangentkit.linalg import (
    DenseOperator,
    SpectrumWarning,
    condition_number,
    effective_rank,
    hill,
    participation_ratio,
    spectrum,
)

every_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
RTOL = {torch.float32: 1e-5, torch.float64: 1e-12}


def features(n: int, p: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Features whose Gram matrix has a falling spectrum."""
    return torch.randn(n, p, dtype=dtype) * torch.arange(1, p + 1, dtype=dtype) ** -0.7


# Effective rank and condition number --------------------------------------------------------------------


@pytest.mark.parametrize("of", ["kernel", "jacobian"])
@pytest.mark.parametrize("n", [1, 2, 7, 50])
def test_the_effective_rank_of_the_identity_is_its_size(n, of):
    assert spectrum(torch.eye(n, dtype=torch.float64), of=of).effective_rank() == pytest.approx(n, rel=1e-12)


values_of_spectra = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=20).map(
    lambda numbers: torch.tensor(numbers, dtype=torch.float64)
)


@settings(max_examples=50, deadline=None)
@given(values=values_of_spectra, scale=st.floats(1e-6, 1e6))
def test_laws_of_the_effective_rank(values, scale):
    rank = effective_rank(values)
    assert 1 - 1e-9 <= rank <= len(values) + 1e-9
    assert effective_rank(scale * values) == pytest.approx(rank, rel=1e-9)
    assert effective_rank(values.flip(0)) == pytest.approx(rank, rel=1e-9)
    assert effective_rank(torch.cat([values, torch.zeros(3).double()])) == pytest.approx(rank, rel=1e-9)
    assert effective_rank(values.repeat(2)) == pytest.approx(2 * rank, rel=1e-9)
    p = values.numpy() / values.numpy().sum()
    assert rank == pytest.approx(math.exp(-(p * np.log(p)).sum()), rel=1e-9)


def test_the_effective_rank_does_not_depend_on_the_basis():
    values = torch.arange(1.0, 9.0, dtype=torch.float64)
    Q, _ = torch.linalg.qr(torch.randn(8, 8, dtype=torch.float64))
    assert spectrum((Q * values) @ Q.T).effective_rank() == pytest.approx(effective_rank(values), rel=1e-10)


def test_negative_rounding_counts_as_zero():
    values = torch.tensor([2.0, 2.0, -1e-12], dtype=torch.float64)
    assert effective_rank(values) == pytest.approx(2)
    assert condition_number(values, rtol=1e-9) == 1
    assert spectrum(torch.diag(values), of="jacobian").values[-1] == 0


def test_zero_has_neither_effective_rank_nor_condition_number():
    s = spectrum(torch.zeros(3, 3))
    for ask in (s.effective_rank, s.condition_number):
        with pytest.raises(NumericalError, match="zero"):
            ask()


def test_condition_number_is_that_of_the_values_that_do_not_vanish():
    J = features(30, 12)
    expected = float(torch.linalg.cond(J))
    for of, power in (("kernel", 2), ("jacobian", 1)):
        with pytest.warns(SpectrumWarning, match="18 of 30 values .* count as zero"):
            found = spectrum(J @ J.T, of=of).condition_number()
        assert found == pytest.approx(expected**power, rel=1e-8)
        assert spectrum(J @ J.T, of=of).condition_number(rtol=1e-7) == found
    s = spectrum(torch.diag(torch.tensor([1.0, 1e-2, 1e-5])))
    assert s.condition_number(rtol=1e-3) == pytest.approx(100)
    assert s.condition_number(rtol=0.5) == 1


def with_values(values: Tensor) -> Tensor:
    """A symmetric matrix with these eigenvalues."""
    Q, _ = torch.linalg.qr(torch.randn(len(values), len(values), dtype=torch.float64))
    K = (Q * values) @ Q.T
    return (K + K.T) / 2


@every_dtype
@pytest.mark.parametrize("n", [20, 400])
def test_a_condition_number_near_the_resolution_of_the_dtype_is_right_to_within_noise(n, dtype):
    smallest = 12 * torch.finfo(dtype).eps  # above rounding, and below n ε of the largest
    s = spectrum(with_values(torch.logspace(0, math.log10(smallest), n, dtype=torch.float64)).to(dtype))
    assert s.condition_number() == pytest.approx(1 / smallest, rel=s.noise / smallest)
    assert s.noise < smallest / 2
    half = spectrum(
        with_values(torch.logspace(0, math.log10(smallest), n, dtype=torch.float64)).to(dtype), of="jacobian"
    )
    assert half.condition_number() == pytest.approx(smallest**-0.5, rel=s.noise / smallest)


@every_dtype
@pytest.mark.parametrize("of", ["kernel", "jacobian"])
def test_values_that_rounding_hides_are_said_to_be_left_out_of_the_condition_number(of, dtype):
    eps = torch.finfo(dtype).eps
    s = spectrum(
        with_values(torch.logspace(0, math.log10(eps) - 3, 60, dtype=torch.float64)).to(dtype), of=of
    )
    advice = "float64" if dtype == torch.float32 else "rtol="
    with pytest.warns(SpectrumWarning, match=rf"of 60 values are within rounding.*at least.*{advice}"):
        found = s.condition_number()
    assert found == pytest.approx(float(s.values[0] / s.values[s.values > s._noise][-1]))
    assert s.condition_number(rtol=0.1) < 10


def test_an_effective_rank_that_rounding_decides_says_so():
    K = with_values(torch.arange(1.0, 301.0, dtype=torch.float64) ** -4)
    assert spectrum(K.float()).effective_rank() == pytest.approx(spectrum(K).effective_rank(), rel=1e-3)
    spectrum(K, of="jacobian").effective_rank()
    with pytest.warns(
        SpectrumWarning, match=r"within rounding.*without them the effective rank is .*float64"
    ):
        spectrum(K.float(), of="jacobian").effective_rank()


def test_zeros_add_to_the_effective_rank_of_a_jacobian_in_float32_and_the_warning_tells_how_much():
    J = features(300, 10) + 1.0
    s = spectrum((J @ J.T).float(), of="jacobian")
    with pytest.warns(SpectrumWarning, match="290 of 300") as told:
        assert s.effective_rank() == effective_rank(s.values)
    without = float(str(told[0].message).split("effective rank is ")[1].split(". ")[0])
    assert without == pytest.approx(effective_rank(torch.linalg.svdvals(J)), rel=1e-3)


def test_a_partial_spectrum_does_not_answer_for_the_whole():
    K = features(200, 300)
    s = spectrum(K @ K.T, 5)
    with pytest.raises(InputError, match=r"expected 200 values.*got the largest 5"):
        s.condition_number()
    with pytest.warns(SpectrumWarning, match=r"largest 5 of 200 values.*without top"):
        assert s.effective_rank() == effective_rank(s.values)
    with pytest.raises(InputError, match=r"expected m from 1 to 4.*Try: spectrum\(K, top=21\)"):
        s.tail()
    assert s.tail(3).alpha == pytest.approx(spectrum(K @ K.T).tail(3).alpha)
    ratio = float(s.values[0] / s.values[2])
    assert s.condition_number(rtol=float(s.values[3] / s.values[0])) == pytest.approx(ratio)


@pytest.mark.parametrize("of", ["kernel", "jacobian"])
def test_a_partial_spectrum_that_reaches_zero_answers_for_the_whole(of):
    J = features(200, 8)
    part, whole = (spectrum(J @ J.T, top, of=of) for top in (12, None))
    assert part.effective_rank() == pytest.approx(whole.effective_rank(), rel=1e-5)
    with pytest.warns(SpectrumWarning, match="192 of 200"):
        assert part.condition_number() == pytest.approx(
            float(torch.linalg.cond(J)) ** (2 if of == "kernel" else 1)
        )


def test_a_float32_kernel_in_float64_shows_its_own_rounding():
    J = features(100, 30, torch.float32)
    K = (J @ J.T).double()
    with pytest.warns(SpectrumWarning, match="70 of 100"):
        found = spectrum((K + K.T) / 2).condition_number()
    assert found == pytest.approx(float(torch.linalg.cond(J.double())) ** 2, rel=1e-3)


def test_reprs_show_sizes():
    K = features(40, 50)
    K = K @ K.T
    assert re.fullmatch(
        r"Spectrum\(all 40 eigenvalues of a kernel, [\d.]+ to [\d.]+, float64\)", repr(spectrum(K))
    )
    words = (
        r"Spectrum\(3 of 40 singular values of a Jacobian, [\d.]+ to [\d.]+, [\d.]+% of the trace, float64\)"
    )
    assert re.fullmatch(words, repr(spectrum(K, 3, of="jacobian")))


# Energy -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("top", [None, 2])
def test_energy_of_eigenvectors_is_one_or_nothing(top):
    K = features(40, 40)
    s = spectrum(K @ K.T, top)
    assert s.energy(s.vectors[:, 0], 1) == pytest.approx(1)
    assert s.energy(s.vectors[:, 1], 1) == pytest.approx(0, abs=1e-12)
    assert s.energy(3 * s.vectors[:, 0] - 4 * s.vectors[:, 1], 1) == pytest.approx(0.6)
    assert s.energy(s.vectors[:, :2], 1) == pytest.approx(0.5**0.5)
    assert s.energy(s.vectors[:, 1]) == pytest.approx(1)


def test_energy_grows_to_one_whatever_the_labels_are():
    K = features(15, 20)
    s = spectrum(K @ K.T)
    for y in (torch.randint(0, 2, (15,)) * 2 - 1, torch.randn(15, 3), np.arange(15.0)):
        energies = [s.energy(y, top) for top in range(1, 16)]
        assert energies == sorted(energies)
        assert energies[-1] == pytest.approx(1)
        assert 0 <= energies[0] < 1


def test_energy_refuses_what_has_no_direction():
    s = spectrum(torch.eye(3), 2)
    with pytest.raises(InputError, match="zero"):
        s.energy(torch.zeros(3))
    with pytest.raises(InputError, match="shape"):
        s.energy(torch.ones(4))
    with pytest.raises(NumericalError, match="labels"):
        s.energy(torch.tensor([1.0, torch.nan, 0.0]))
    for top in (0, 3):
        with pytest.raises(InputError, match="1 to 2, which are held"):
            s.energy(torch.ones(3), top)


# Tail ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [1.5, 2.0, 4.0])
def test_the_tail_of_a_power_law_has_its_exponent(alpha):
    n, m = 20_000, 2000
    uniform = torch.rand(n, dtype=torch.float64)
    values = uniform ** (-1 / (alpha - 1))  # density ∝ x^(-alpha) on x > 1
    # The standard error of Hill's estimate is (alpha - 1) / √m.
    assert hill(values, m) == pytest.approx(alpha, abs=5 * (alpha - 1) / m**0.5)
    assert hill(7.0 * values, m) == pytest.approx(hill(values, m))


def test_the_tail_is_that_of_its_formula():
    values = torch.tensor([8.0, 4.0, 2.0, 1.0], dtype=torch.float64)
    s = spectrum(torch.diag(values))
    assert s.tail(1).alpha == pytest.approx(1 + 1 / math.log(2))
    assert s.tail(3).alpha == pytest.approx(1 + 3 / math.log(8 * 4 * 2))
    assert s.tail().alpha == s.tail(2).alpha
    assert spectrum(torch.eye(4)).tail(2).alpha == math.inf
    assert spectrum(torch.diag(values), of="jacobian").tail(3).alpha - 1 == pytest.approx(
        2 * (s.tail(3).alpha - 1)
    )


def test_tails_that_cannot_be_are_refused():
    s = spectrum(DenseOperator(torch.diag(torch.tensor([2.0, 1.0, 0.0]))))
    for m in (0, 3):
        with pytest.raises(InputError, match="tail"):
            s.tail(m)
    with pytest.raises(NumericalError, match="smaller m"):
        s.tail(2)


# Other measures -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("of", ["kernel", "jacobian"])
def test_ranks_of_kernel_and_jacobian_are_those_of_their_formulas(of):
    J = features(40, 60)
    s = spectrum(J @ J.T, of=of)
    sigma = torch.linalg.svdvals(J)
    assert s.participation_ratio() == pytest.approx(float(sigma.square().sum() ** 2 / sigma.pow(4).sum()))
    assert s.stable_rank() == pytest.approx(float(J.norm() / torch.linalg.matrix_norm(J, 2)) ** 2)
    rows = dict(s.table().rows)
    assert rows["effective rank of K"] == pytest.approx(effective_rank(sigma.square()))
    assert rows["effective rank of J"] == pytest.approx(effective_rank(sigma))
    assert rows["condition number of K"] == pytest.approx(float(torch.linalg.cond(J)) ** 2)
    assert s.to_dict()["values"] == s.values.tolist()
    assert s.plot().get_yscale() == "log"


def test_measures_of_a_partial_spectrum_say_what_is_missing():
    J = features(60, 80)
    part, whole = (spectrum(J @ J.T, top) for top in (5, None))
    assert part.stable_rank() == pytest.approx(whole.stable_rank())
    with pytest.warns(SpectrumWarning, match="participation ratio is that of the largest 5 of 60") as told:
        part.participation_ratio()
    assert told[0].filename == __file__
    table = part.table()
    assert dict(table.rows)["effective rank of J"] is None
    assert table.note == "– needs all values"


def test_measures_of_zero_are_not_defined():
    s = spectrum(torch.zeros(3, 3))
    for ask in (s.stable_rank, s.participation_ratio, s.table):
        with pytest.raises(NumericalError, match="zero"):
            ask()


def test_a_participation_ratio_of_huge_values_does_not_overflow():
    assert participation_ratio(torch.full((4,), 1e30)) == 4


@pytest.mark.parametrize("scale", [1e-40, 1e-25, 1e20, 1e37])
def test_energy_does_not_depend_on_the_scale_of_labels(scale):
    torch.manual_seed(0)
    X, y = torch.randn(20, 30), torch.randn(20)
    s = spectrum(X @ X.T, 3)
    assert s.energy(scale * y) == pytest.approx(s.energy(y), rel=1e-4)
