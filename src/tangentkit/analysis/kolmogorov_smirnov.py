"""The two-sided test that two samples are of one distribution."""

import warnings
from typing import Any, Literal

from numpy.typing import ArrayLike


def kolmogorov_smirnov(
    a: ArrayLike, b: ArrayLike, method: Literal["auto", "exact", "asymp"] = "auto"
) -> tuple[float, float]:
    """The largest difference of two distribution functions, and its p-value.

    Example:
        >>> statistic, p = kolmogorov_smirnov([1.0, 2.0, 3.0], [4.0, 5.0, 6.0])
        >>> statistic, round(p, 6)
        (1.0, 0.1)
    """
    from scipy.stats import ks_2samp

    with warnings.catch_warnings():
        # Rounding may put an exact p-value of 1 above 1: scipy takes the asymptotic one then, which is 1 as well.
        warnings.filterwarnings("ignore", "ks_2samp: Exact calculation unsuccessful", RuntimeWarning)
        found: Any = ks_2samp(a, b, method=method)
    return float(found.statistic), float(found.pvalue)
