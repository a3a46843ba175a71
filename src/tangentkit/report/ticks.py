"""Ticks of logarithmic axes."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FEW_VALUES = 12
"""Values on an axis that may each have a tick."""
FEW_DECADES = 100
"""The ratio of the ends of a logarithmic axis below which powers of ten are too few for its ticks."""
LABEL = 0.09
"""The share of an axis that a label of a tick needs."""


def ticks_at(ax: "Axes", x: np.ndarray) -> None:
    """Ticks of a logarithmic axis at the few values that were measured, as far apart as their labels need.

    Matplotlib's own would be at powers of ten, of which there may be none, and at numbers between, which overlap. Of
    many values over less than two decades, round numbers among them take their place.
    """
    values = np.unique(x[x > 0])
    if len(values) > FEW_VALUES and values[-1] < FEW_DECADES * values[0]:
        values = _round_numbers(values[0], values[-1])
    if not 2 <= len(values) <= FEW_VALUES:
        return
    kept = apart(values)
    ax.set_xticks(kept, [f"{value:g}" for value in kept])
    ax.set_xticks([], minor=True)


def _round_numbers(low: float, high: float) -> np.ndarray:
    """1, 2 and 5 times powers of ten in a range; where there are fewer than three of them, evenly spaced ones."""
    from matplotlib.ticker import MaxNLocator

    powers = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    found = np.outer(powers, [1, 2, 5]).ravel()
    inside = found[(found >= low) & (found <= high)]
    if len(inside) < 3:
        found = np.asarray(MaxNLocator(5).tick_values(low, high))
        inside = found[(found >= low) & (found <= high)]
    return inside


def apart(values: ArrayLike, label: float = LABEL) -> list[float]:
    """The largest of some positive values, and others as far from it and from each other as labels need.

    Args:
        values: on a logarithmic axis, all of which they span.
        label: the share of the axis that a label needs.

    Example:
        >>> apart([1, 2, 9, 10])
        [10.0, 2.0, 1.0]
    """
    values = np.unique(np.asarray(values, dtype=float))
    gap = label * np.log(values[-1] / values[0])
    kept = [float(values[-1])]
    for value in values[-2::-1].tolist():
        if np.log(kept[-1] / value) >= gap and (value == values[0] or np.log(value / values[0]) >= gap):
            kept.append(value)
    return kept
