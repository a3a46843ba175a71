"""The two-sample test is scipy's, and silent."""

import numpy as np
import pytest
from scipy.stats import ks_2samp

from tangentkit.analysis.kolmogorov_smirnov import kolmogorov_smirnov


def test_statistic_and_p_value_are_those_of_scipy():
    chance = np.random.default_rng(0)
    a, b = chance.normal(size=30), chance.normal(size=25) + 1
    for method in ("auto", "exact", "asymp"):
        expected = ks_2samp(a, b, method=method)
        assert kolmogorov_smirnov(a, b, method) == (expected.statistic, expected.pvalue)


@pytest.mark.parametrize("n", [5, 30, 48])
def test_samples_that_take_turns_have_a_p_value_of_1_without_a_warning(n):
    a = np.arange(float(n))
    statistic, p = kolmogorov_smirnov(a, a + 0.5)
    assert (statistic, p) == (pytest.approx(1 / n), 1)
