"""The histogram of a spectrum on a logarithmic axis, beside the law of noise and the places where its parts begin."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from tangentkit.report.figure import Figure, words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BINS = (8, 60)
"""The fewest and the most bars."""
CURVE = 512
"""Points of the law of noise."""
HEADROOM = 1.6
"""The height of the axes over that of what is drawn."""
DECADES = 30
"""The quotient of the ends of a spectrum from which powers of ten alone are enough ticks."""


@dataclass(frozen=True, eq=False, kw_only=True)
class SpectrumHistogram(Figure):
    """Positive eigenvalues as bars of log10 λ, with a curve of noise and vertical lines with names."""

    values: Float[np.ndarray, " r"]
    curve: tuple[Float[np.ndarray, " t"], Float[np.ndarray, " t"]] | None = None
    """Eigenvalues, and the density of log10 λ there."""
    lines: Mapping[str, float] = field(default_factory=dict)
    """Name -> eigenvalue where a line stands."""
    size: tuple[float, float] = (6.0, 3.2)

    def draw(self, ax: "Axes") -> None:
        """Adds the figure to axes."""
        logs, ink = np.log10(self.values), ax.xaxis.label.get_color()
        bars = int(np.clip(2 * math.sqrt(len(logs)), *BINS))
        edges = np.histogram_bin_edges(logs, bars)
        heights, _ = np.histogram(logs, edges, density=True)
        ax.bar(10 ** edges[:-1], heights, np.diff(10**edges), align="edge", alpha=0.55, label="eigenvalues")
        if self.curve is not None:
            ax.plot(*self.curve, label="Marchenko-Pastur", color="C1")
        for style, (name, place) in zip((":", "--", "-."), self.lines.items(), strict=False):
            ax.axvline(place, ymax=1 / HEADROOM, color=ink, linestyle=style, linewidth=1.2, label=words(name))
        ax.set(xscale="log", xlabel="λ, eigenvalue of Wᵀ W", ylabel="density of log10 λ")
        self._set_ticks(ax)
        # Room for the names above the bars: outside, they would lie over the axes beside these.
        ax.set_ylim(0, ax.get_ylim()[1] * HEADROOM)
        ax.legend(loc="upper left", fontsize="small", frameon=False, borderpad=0, labelspacing=0.2)

    def _set_ticks(self, ax: "Axes") -> None:
        """Few numbers, which a narrow axis has room for: powers of ten, within one or two decades 1, 2 and 5."""
        from matplotlib.ticker import LogFormatterMathtext, LogLocator, NullFormatter, StrMethodFormatter

        short = self.values.max() < DECADES * self.values.min()
        ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if short else (1,), numticks=5))
        ax.xaxis.set_major_formatter(StrMethodFormatter("{x:g}") if short else LogFormatterMathtext())
        ax.xaxis.set_minor_formatter(NullFormatter())


def marchenko_pastur_density(
    start: float, high: float, ratio: float, share: float
) -> tuple[Float[np.ndarray, " t"], Float[np.ndarray, " t"]]:
    """The density of log10 λ by the law of Marchenko and Pastur up to its upper end, of a share of all values.

    √((high - λ)(λ - low)) / (2 π v r λ) per unit of λ with v = high / (1 + √r)², low = v (1 - √r)², for d/n = r <= 1.
    The law may reach down to 0, which an axis of logarithms does not: the curve begins at `start`.

    Example:
        >>> λ, density = marchenko_pastur_density(0.25, 2.25, 0.25, 1.0)
        >>> round(float(np.trapezoid(density, np.log10(λ))), 2)
        1.0
    """
    variance = high / (1 + math.sqrt(ratio)) ** 2
    low = variance * (1 - math.sqrt(ratio)) ** 2
    λ = np.geomspace(max(low, min(start, high / 2)), high, CURVE)
    inside = np.sqrt(((high - λ) * (λ - low)).clip(min=0))
    return λ, share * inside / (2 * math.pi * variance * ratio) * math.log(10)
