"""Both sides of the inequalities between two kernels, from the norms and losses of one network.

Each is log10 of the left side over the right one: above 0 the inequality fails, far below 0 it is loose.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Row = Mapping[str, Any]
Quantity = Callable[[Row], float]
"""Norms, losses and constants of one network -> a number, such as log10 of the left side over the right one."""


def on_nodes(row: Row) -> float:
    """log10 of what NTK has on the nodes over what CK has: ‖f - f_NTK‖_0 over ‖f - f_CK‖_0, or their losses."""
    return float(np.log10(row["NTK_0"] / row["CK_0"]))


def monotone(row: Row) -> float:
    """The smaller share of cells on which the error of a kernel is monotone."""
    return min(row["NTK_monotone"], row["CK_monotone"])


def lemma_4_1(row: Row) -> float:
    """log10 of ‖g‖_1 over √2 ‖g‖_0, for the error g of the kernel where it is larger."""
    return float(np.log10(max(row[f"{name}_1"] / row[f"{name}_0"] for name in ("NTK", "CK")) / 2**0.5))


def theorem_4_1(row: Row) -> float:
    """log10 of ‖f - f_NTK‖_1 over √(2τ) ‖f - f_CK‖_1."""
    return float(np.log10(row["NTK_1"] / row["CK_1"] / (2 * row["tau"]) ** 0.5))


def theorem_4_2(row: Row) -> float:
    """log10 of ‖f - f_CK‖_1 over √(2τ)/(1 - β) ‖f - f_NTK‖_1."""
    return float(np.log10(row["CK_1"] / row["NTK_1"] / second_constant(row)))


def one_less_beta(row: Row) -> float:
    """1 - β, where β = ‖f_NTK - f_CK‖_0 / ‖f - f_CK‖_0, from x = ‖f - f_NTK‖_0 / ‖f - f_CK‖_0.

    f_NTK is the best fit in a space that holds f_CK too, so that f - f_NTK is orthogonal to f_NTK - f_CK: β² + x² = 1
    and 1 - β = x² / (1 + √(1 - x²)), in which nothing cancels where β is near 1. An x above 1 is rounding.

    Example:
        >>> round(one_less_beta({"NTK_0": 0.6, "CK_0": 1.0}), 12)
        0.2
    """
    x = min(row["NTK_0"] / row["CK_0"], 1.0)
    return x**2 / (1 + math.sqrt(1 - x**2))


def second_constant(row: Row) -> float:
    """C₂ = √(2τ)/(1 - β)."""
    return (2 * row["tau"]) ** 0.5 / one_less_beta(row)


def log_constant(row: Row, name: str) -> float:
    """log10 of τ₁τ₂ exp(hL), with the slope of one kernel."""
    return float(np.log10(row["tau"]) + row["mesh"] * row[f"{name}_lipschitz"] / np.log(10))


def lemma_5_2(row: Row) -> float:
    """log10 of ℓ_1 over τ₁τ₂ exp(hL) ℓ_0, for the kernel where it is larger."""
    return max(
        float(np.log10(row[f"{name}_1"] / row[f"{name}_0"])) - log_constant(row, name)
        for name in ("NTK", "CK")
    )


def theorem_5_1(row: Row) -> float:
    """log10 of ℓ_1 of NTK over D₁ times that of CK."""
    return float(np.log10(row["NTK_1"] / row["CK_1"])) - log_constant(row, "NTK")


def theorem_5_2(row: Row) -> float:
    """log10 of ℓ_1 of CK over D₂ times that of NTK."""
    omega = float(np.log10(row["CK_0"] / row["NTK_0"]))
    return float(np.log10(row["CK_1"] / row["NTK_1"])) - omega - log_constant(row, "CK")
