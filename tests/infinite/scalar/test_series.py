"""Power series from circles: closed forms, the errors they state, and functions they must see through."""

import math

import mpmath as mp
import numpy as np
import pytest
import torch

from infinite.scalar_kernels import CASES, real_only
from tangentkit.core.errors import InputError, NumericalError
from tangentkit.infinite.scalar.series import Continued, evaluate, power_series


@pytest.mark.parametrize("name", CASES)
def test_coefficients_and_their_errors_against_mpmath(name):
    case = CASES[name]
    with mp.workdps(60):
        # Cauchy's integral on a circle of radius 1/2 in 60 digits
        n = 512
        circle = [mp.mpf(1) / 2 * mp.expjpi(mp.mpf(2 * m) / n) for m in range(n)]
        values = [case.mpmath(z) for z in circle]
        truth = [
            float(
                mp.re(mp.fsum(v * mp.expjpi(mp.mpf(-2 * m * j) / n) for m, v in enumerate(values)) / n * 2**j)
            )
            for j in range(0, 30, 5)
        ]
    series = power_series(case.torch, 100)
    assert series is not None
    gaps = np.abs(series.coefficients[:30:5] - truth)
    assert (gaps <= 3 * series.errors[:30:5] + 1e-15 * np.abs(truth)).all()
    assert series.errors[:30].max() < 1e-13 * np.abs(series.coefficients).sum()


def test_small_coefficients_keep_their_relative_accuracy():
    series = power_series(torch.exp, 60)
    assert series is not None
    truth = [1 / math.factorial(j) for j in range(60)]
    np.testing.assert_allclose(series.coefficients, truth, rtol=1e-11)
    assert series.even == series.odd == 0


def test_the_tail_is_what_is_missing():
    # (1 - t²)^(1/2) has a_2j = -binom(2j, j)/4^j/(2j - 1), which fall like a power
    series = power_series(lambda t: 1 - torch.sqrt(1 - t * t), 101)
    assert series is not None
    sums = math.fsum(math.comb(2 * j, j) / 4**j / (2 * j - 1) for j in range(1, 51))
    assert series.even == pytest.approx(1 - sums, rel=1e-10)
    assert abs(series.odd) <= series.tail_error < 1e-12


@pytest.mark.parametrize(
    "phi",
    [
        torch.abs,
        lambda t: t.abs() ** 2,
        lambda t: torch.relu(t.real),
        lambda t: torch.sign(t.real) + 0 * t,
        real_only(torch.exp),
        lambda t: torch.sqrt(t + 0.5),
    ],
)
def test_functions_without_a_continuation_have_none(phi):
    def real(t):
        return phi(t) if t.is_complex() else t**2 + 1

    assert power_series(real, 20) is None


def test_guards_are_continued():
    def guarded(t):
        t = torch.clamp(t, -1, 1)
        root = torch.where(t < 2, 1 - t * t, 1.0).clamp_min(0).sqrt()
        return torch.maximum(math.pi / 2 + torch.atan2(t, root), 0 * t)

    plain = power_series(lambda t: math.pi - torch.acos(t), 40)
    series = power_series(guarded, 40)
    assert series is not None
    assert plain is not None
    np.testing.assert_allclose(series.coefficients, plain.coefficients, atol=2e-14)


def test_the_continuation_leaves_real_numbers_alone():
    t = torch.linspace(-2, 2, 9, dtype=torch.float64)
    expected = [t.clamp(-1, 1), torch.atan2(t, t * t), t > 0, torch.maximum(t, -t)]
    with Continued():
        found = [t.clamp(-1, 1), torch.atan2(t, t * t), t > 0, torch.maximum(t, -t)]
    for a, b in zip(expected, found, strict=True):
        assert torch.equal(a, b)


def test_values_are_checked():
    t = np.linspace(-1, 1, 5)
    with pytest.raises(InputError, match=r"shape.*\(5,\)"):
        evaluate(lambda t: t[:3], t)
    with pytest.raises(NumericalError, match=r"1 of 5 values.* at t = 0"):
        evaluate(lambda t: torch.where(t == 0, torch.nan, t), t)
    values, eps = evaluate(lambda t: t.float(), t)
    assert values.dtype == np.float64
    assert eps == torch.finfo(torch.float32).eps
